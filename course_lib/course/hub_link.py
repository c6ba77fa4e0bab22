"""The link with which learners on a JupyterHub get the course: nbgitpuller clones a repository and opens a notebook.

`python -m course_lib release FOLDER --hub ADDRESS` uses this module. It needs neither torch nor a network.
"""

import re
import subprocess
from pathlib import Path
from urllib.parse import quote_plus, urlsplit, urlunsplit

from course_lib.course.handout import git

BY_SSH = re.compile(r"(?:ssh://)?(?:[\w.-]+@)(?P<host>[\w.-]+)(?::\d+/|[:/])(?P<path>.+)")


def hub_link(hub: str, repository: str, branch: str, notebook: str) -> str:
    """Return the link that nbgitpuller's own link generator makes for JupyterLab.

    If the learner is not logged in, the hub asks for that first and starts the learner's server. nbgitpuller then
    clones the repository, or merges what is new in it, and opens the notebook.

    Args:
        hub: the hub's address, with its path if it has one: https://hub.example.org.
        repository: an address that the learners' servers can clone without a password.
        branch: the branch that learners follow.
        notebook: a path in the repository: notebooks/00_start_here.ipynb.

    Errors: ValueError if one of the addresses cannot be used. Source: nbgitpuller 1.3, docs/_static/link_gen/link.js.
    """
    parts = urlsplit(hub)
    steps = parts.path.strip("/").split("/")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"--hub {hub!r} is no address of a hub: write it as in https://hub.example.org")
    if {"hub", "user"} & {*steps}:
        raise ValueError(
            f"--hub {hub!r} is the address of one of the hub's pages: leave out what follows the hub's own"
        )
    repository = public_address(repository)
    name = repository.rpartition("/")[2]  # nbgitpuller clones into a folder of this name
    asked = {"repo": repository, "urlpath": f"lab/tree/{name}/{notebook}", "branch": branch}
    query = "&".join(f"{key}={quote_plus(value, safe='*').replace('~', '%7E')}" for key, value in asked.items())
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/hub/user-redirect/git-pull", query, ""))


def public_address(repository: str) -> str:
    """Return the address at which a repository can be cloned without a key and without a password.

    A teacher's own address often needs one: git@github.com:OWNER/NAME.git becomes https://github.com/OWNER/NAME. The
    ending is left out because nbgitpuller would have it in the folder's name; git finds the repository without it.
    Errors: ValueError for a folder of this machine. (An address with file:// is allowed: the hub may be here, too.)
    """
    by_ssh = BY_SSH.fullmatch(repository)
    parts = urlsplit(f"https://{by_ssh['host']}/{by_ssh['path']}" if by_ssh else repository)
    path = parts.path.rstrip("/").removesuffix(".git")
    if parts.scheme not in ("http", "https", "file") or not path:
        raise ValueError(
            f"{repository!r} is no address that learners can clone: give it with --repository, as in "
            "https://github.com/OWNER/NAME"
        )
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", ""))


def origin(folder: Path) -> tuple[str, str]:
    """Return the address that a repository is pushed to and its branch; "" for each if it has none."""
    found = []
    for words in (("remote", "get-url", "origin"), ("symbolic-ref", "--short", "HEAD")):
        try:
            found.append(git(folder, *words).decode().strip() if (folder / ".git").exists() else "")
        except (OSError, subprocess.CalledProcessError):
            found.append("")
    return found[0], found[1]
