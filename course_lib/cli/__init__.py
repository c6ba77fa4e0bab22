"""The command line, with one module per command: `add` defines its arguments, `run` returns the exit status.

`python -m course_lib` combines them. A command imports its requirements only when it runs, so that `--help` stays quick
and the doctor works without torch.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a message is clearer than another module's traceback
    sys.exit(
        f"The course needs Python 3.11 or newer, but this is {sys.version.split()[0]} ({sys.executable}): create "
        "the environment again with a newer Python, as README.md says"
    )
