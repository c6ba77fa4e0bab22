"""The command line, one module per command: `add` says its arguments, `run` does it and returns the exit status.

`python -m course_lib` joins them. What a command needs is imported when it runs: `--help` stays quick, and the doctor
must be able to speak where torch is missing.
"""
