"""What a notebook's kernel does before its first cell if `python -m course_lib start` opened JupyterLab."""

import os
from pathlib import Path
from urllib.parse import quote

from course_lib.course.handout import place
from course_lib.live.names import explain_names


def begin() -> None:
    """Explain undefined names, and have the first cell that runs say how far the learner has read in the notebook."""
    from IPython import get_ipython

    explain_names()
    path = Path(os.environ.get("JPY_SESSION_NAME", ""))  # Jupyter's name for the notebook behind a kernel
    shell, (heading, cell) = get_ipython(), place(path.read_bytes()) if path.is_file() else ("", "")
    if not shell or not heading:
        return

    def say(result) -> None:
        from IPython.display import Markdown, display

        if result.success:
            shell.events.unregister("post_run_cell", say)
            display(Markdown(where_you_were(path.name, heading, cell)))

    shell.events.register("post_run_cell", say)


def where_you_were(notebook: str, heading: str, cell: str) -> str:
    """Return a sentence with a link to a section of a notebook, in Markdown.

    The link uses the id of a cell, because JupyterLab finds a heading only if it is all ASCII.
    """
    return (
        f"Last time you came as far as “[{heading}]({quote(notebook)}#cell-id={cell})”. To continue there, click this "
        "link, then the cell that comes next, and choose *Run > Run All Above Selected Cell*."
    )
