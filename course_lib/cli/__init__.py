"""The command line, one module per command: `add` says its arguments, `run` does it and returns the exit status.

`python -m course_lib` joins them. What a command needs is imported when it runs: `--help` stays quick, and the doctor
must be able to speak where torch is missing.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - said before a module that needs it ends in a traceback
    sys.exit(
        f"The course needs Python 3.11 or newer, and this is {sys.version.split()[0]} ({sys.executable}): make the "
        "environment again with a newer one, as README.md says"
    )
