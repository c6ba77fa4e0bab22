"""Grades a whole class. README.md here draws the way of a submission; no learner's code is trusted on it.

`command` and `autograder` are the ways in; `term` and `course_file` read `course.toml`. `read` turns submissions into
text, `sandbox` runs their answers, `mark` gives points, `report` and `export` write the results.
`graded_submission`, `text`, `spreadsheets` and `file_names` are shared by these folders.
"""
