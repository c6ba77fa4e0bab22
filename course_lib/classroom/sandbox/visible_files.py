"""Decide which files of this machine a worker sees: Python, its packages and their libraries, but no answers.

`Installation` contains facts: the places of Python, loaded libraries and the course. The visible files (`views`) and
the hidden ones (`hidden`) follow only from these, so tests can try every way to install the course on a sample tree.
"""

import importlib.metadata
import json
import os
import site
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import course_lib

VENV, MORE = "/opt/venv", "/opt/packages"  # the places of an environment and of package folders in a sandbox
NEEDED = ("bin", "lib", "lib64", "pyvenv.cfg")  # of an environment, whose other files may be anything, even the course
# Shell commands that honest cells use on the notebook's own folder.
PROGRAMS = (
    "cat",
    "cp",
    "date",
    "echo",
    "env",
    "false",
    "find",
    "grep",
    "head",
    "hostname",
    "ls",
    "mkdir",
    "mv",
    "pwd",
    "rm",
    "sed",
    "sh",
    "sleep",
    "sort",
    "tail",
    "touch",
    "true",
    "uname",
    "wc",
    "which",
)
# System files: the loader where it is not among the libraries, the locale C.UTF-8, time zones, and Debian's links
# between libraries of one name (libblas.so.3).
SYSTEM = ("lib64", "usr/lib64", "usr/lib/locale/C.utf8", "usr/share/zoneinfo", "etc/alternatives", "etc/ld.so.cache")
PARTS = ("course_lib", "solutions", "tests", "exercises", "notebooks", ".git")  # of a course among other packages
ANSWERS = ("course_lib/chapters/*/exercises", "solutions", "tests/right")  # the folders with answers
ARCHIVES = (".egg", ".whl", ".zip")  # Python imports from these files as from a folder


@dataclass(frozen=True)
class View:
    """A file or folder of this machine that a worker sees.

    Fields:
        source: its path on this machine.
        place: its path in the sandbox.
        top: a parent folder that a slot's user may not be allowed to enter; None for the system's own.
        link: the target, if it is a symbolic link.
    """

    source: Path
    place: Path
    top: Path | None = None
    link: str = ""


@dataclass(frozen=True)
class Installation:
    """An installed Python and the course on a machine.

    Fields:
        prefix, base: the environment, and the Python from which it was made (the same without an environment).
        executable: the Python program.
        path: the folders from which Python imports.
        packages: the folders for installed packages.
        libraries: the folders of shared libraries.
        courses: folders or archives that contain the course, including answers.
        root: the root of the file system.
    """

    prefix: Path
    base: Path
    executable: Path
    path: tuple[Path, ...] = ()
    packages: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    courses: tuple[Path, ...] = ()
    root: Path = Path("/")

    @classmethod
    def here(cls) -> "Installation":
        """Return the installation of this process."""
        path = tuple(Path(each) for each in dict.fromkeys(sys.path) if each)
        packages = tuple(map(Path, site.getsitepackages()))
        return cls(
            Path(sys.prefix),
            Path(sys.base_prefix),
            Path(sys.executable),
            path,
            packages,
            tuple(library_folders()),
            tuple(find_courses(Path(course_lib.__file__).parents[1], (*path, *packages), installed_from())),
        )

    @property
    def python(self) -> str:
        """Return the path of the Python program in a sandbox."""
        return os.path.realpath(self.executable) if self.prefix == self.base else f"{VENV}/bin/python"

    @cached_property
    def hidden(self) -> list[Path]:
        """Return the folders and archives that no worker may see, wherever they are."""
        hidden = []
        for course in self.courses:
            among_packages = _holds_packages(course) or course in {each.resolve() for each in self.packages}
            hidden += [course / part for part in PARTS if (course / part).is_dir()] if among_packages else [course]
        # Parent folders first: a parent mounted later would hide the mount point of its child.
        return sorted({path.resolve() for path in hidden}, key=lambda path: (len(path.parts), path))

    @cached_property
    def views(self) -> list[View]:
        """Return the files that a worker needs from this machine, in the order of mounting."""
        usual = [self.root / "usr" / "bin", *([self.root / "bin"] if _is_folder(self.root / "bin") else [])]
        views = [View(path, path) for path in (self.root / name for name in SYSTEM) if _is_there(path)]
        views += [
            View((folder / name).resolve(), folder / name)
            for folder in usual
            for name in PROGRAMS
            if (folder / name).is_file()
        ]
        views += [View(path, path, self._top(path)) for path in self._library()]
        views += self._executables()
        if self.prefix != self.base:
            views += [
                View(self.prefix / name, Path(VENV, name), self.prefix)
                for name in NEEDED
                if (self.prefix / name).exists()
            ]
        views += [View(folder, Path(MORE, str(i)), folder) for i, folder in enumerate(self.more)]
        for folder in dict.fromkeys(each.resolve() for each in self.libraries if each.is_dir()):
            if not self._covers(views, folder):
                views.append(View(folder, folder, self._top(folder)))
        for target in self._linked():
            if not self._covers(views, target):
                views.append(View(target, target, self._top(target)))
        return views

    def masks(self, view: View) -> list[Path]:
        """Return the paths in a view that must be empty for a worker."""
        whole = view.source.resolve()
        return [view.place / each.relative_to(whole) for each in self.hidden if each.is_relative_to(whole)]

    @cached_property
    def more(self) -> list[Path]:
        """Return package folders that Python would not find in a sandbox: `pip install --user` and `--target`."""
        own = {each.resolve() for each in self.packages}
        return [folder for folder in self.path if _holds_packages(folder) and folder.resolve() not in own]

    @cached_property
    def answer_paths(self) -> list[str]:
        """Return every path, on this machine and in a sandbox, where answers would be found if nothing hid them."""
        folders = [each for course in self.courses for part in ANSWERS for each in sorted(course.glob(part))]
        files = [path for each in folders if each.is_dir() for path in sorted(each.iterdir()) if path.is_file()]
        files += [course for course in self.courses if course.is_file()]
        paths = list(map(str, files))
        for view in self.views:
            whole = view.source.resolve()
            paths += [str(view.place / path.relative_to(whole)) for path in files if path.is_relative_to(whole)]
        return list(dict.fromkeys(paths))

    @property
    def readable(self) -> tuple[list[Path], list[Path]]:
        """Return the visible paths where nothing can be mounted over them.

        The first list may be read. In the second, only names may be seen, because these folders contain hidden files.
        """
        paths, listed = [], []
        for view in self.views:
            source = view.source.resolve()
            parts = _around(source, [each for each in self.hidden if each.is_relative_to(source)])
            paths += parts
            listed += [] if parts == [source] else [source]
        return [path for path in paths if path.exists()], listed

    def _library(self) -> list[Path]:
        """Return the folders of Python's own modules, and of packages outside any environment."""
        if self.base not in (self.root / "usr", self.root / "usr" / "local"):
            return [path for path in (self.base / "lib", self.base / "lib64") if path.is_dir()]
        own = [path for path in (*self.path, *self.packages) if path.is_dir() and _within(path, self.root / "usr")]
        own = [path for path in own if self.prefix == self.base or not _within(path, self.prefix)]
        folders = [path for path in own if path in self.packages or (path / "os.py").is_file()]
        return [path for path in dict.fromkeys(folders) if not any(_inside(path, each) for each in folders)]

    def _executables(self) -> Iterator[View]:
        """Yield the Python program and every link that leads to it."""
        seen = set()
        names = [self.base / "bin" / name for name in ("python", "python3")]
        for path in (*names, self.executable if self.prefix == self.base else self.executable.resolve()):
            while path not in seen and (path.is_symlink() or path.is_file()):
                seen.add(path)
                link = os.readlink(path) if path.is_symlink() else ""
                yield View(path, path, None if link else self._top(path.parent), link)
                path = Path(os.path.normpath(path.parent / link)) if link else path

    def _linked(self) -> Iterator[Path]:
        """Yield the targets of links that lead out of packages, such as Debian's mpl-data."""
        for path in (link for folder in (*self.packages, *self.more) if folder.is_dir() for link in _links(folder)):
            if os.path.isabs(os.readlink(path)) and path.exists():
                target = path.resolve()
                if not any(_within(target, each) or _within(each, target) for each in self.hidden):
                    yield target

    def _top(self, path: Path) -> Path | None:
        if any(_within(path, self.root / name) for name in ("usr", "lib", "lib64", "bin", "etc")):
            return None
        return self.base if _within(path, self.base) else path

    @staticmethod
    def _covers(views: Sequence[View], path: Path) -> bool:
        return any(not view.link and _within(path, view.source) for view in views)


def library_folders() -> list[Path]:
    """Return the folders of the shared libraries that this process has loaded, including those of torch and numpy.

    The folders in its search path are included.
    """
    import numpy as np  # noqa: F401
    import torch  # noqa: F401

    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # macOS, where docker uses the libraries in its image
        return []
    files = {line.split(None, 5)[5] for line in lines if line.count("/") and len(line.split(None, 5)) == 6}
    found = [path.parent for path in map(Path, sorted(files)) if ".so" in path.name and path.is_file()]
    found += [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def find_courses(own: Path, imported_from: Iterable[Path], installed_from: Iterable[Path] = ()) -> list[Path]:
    """Return every folder or archive known to contain the course with its answers, now or when pip installed it.

    Args:
        own: the folder of the library in use.
        imported_from: the folders from which Python imports.
    """
    found = [own, *installed_from]
    for folder in imported_from:
        if (folder / "course_lib").is_dir():
            found += [folder, (folder / "course_lib").resolve().parent]  # the folder may contain a link to the course
        archives = [folder] if folder.is_file() else _archives(folder)
        found += [path for path in archives if _holds_course(path)]
    return [path for path in dict.fromkeys(each.resolve() for each in found) if path.exists()]


def installed_from() -> Iterator[Path]:
    """Yield the folder from which pip installed the course, editable or not."""
    for distribution in importlib.metadata.distributions(name="transformers-measured"):
        address = urlsplit(json.loads(distribution.read_text("direct_url.json") or "{}").get("url", ""))
        if address.scheme == "file":
            yield Path(url2pathname(address.path))


def _archives(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in ARCHIVES] if folder.is_dir() else []


def _holds_course(path: Path) -> bool:
    if path.suffix == ".egg" and path.is_dir():
        return (path / "course_lib").is_dir()
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.startswith("course_lib/") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _holds_packages(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.dist-info"))


def _links(folder: Path, depth: int = 2) -> Iterator[Path]:
    """Yield the symbolic links in a folder and its subfolders."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_symlink():
                yield Path(each.path)
            elif depth > 1 and each.is_dir():
                yield from _links(Path(each.path), depth - 1)


def _around(folder: Path, hidden: Sequence[Path]) -> list[Path]:
    """Return the folder, or its contents without the hidden paths, in as few paths as possible."""
    if folder in hidden or folder.is_symlink():  # a link's target is seen at its own place, or not at all
        return []
    if not any(place.is_relative_to(folder) for place in hidden):
        return [folder]
    return [path for child in sorted(folder.iterdir()) for path in _around(child, hidden)]


def _is_there(path: Path) -> bool:
    return path.exists() and not path.is_symlink()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _inside(path: Path, folder: Path) -> bool:
    return path != folder and _within(path, folder) and path.resolve() != folder.resolve()
