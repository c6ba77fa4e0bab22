"""Grade an entire class. README.md shows the path of a submission; learners' code is never trusted on it.

`command` and `autograder` are the entry points; `term` reads `course.toml`. `read` turns submissions into text,
`sandbox` runs their answers, `mark` gives points, `report` and `export` write the results. `graded_submission`, `text`
and `spreadsheets` are shared by these folders.
"""
