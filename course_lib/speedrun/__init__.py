"""The speedrun: with how little arithmetic does a model come within 1% of Tinytown's entropy?

`text` is what a file gets to learn from, `rules` what it may contain, `runner` runs it in a process of its own, and
`judge` measures its model. `table` holds the records, `picture` draws them.

    python -m course_lib speedrun my_gpt.py
"""
