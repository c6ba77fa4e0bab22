"""What a worker sees of this machine: Python, its packages, the libraries that they load, and nothing with answers.

`Installation` states facts: where this Python is, what it has loaded, where the course lies. What is shown (`views`)
and what is hidden in it (`hidden`) follow from them alone, so that every way to install a course can be tested on a
tree.
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

VENV, MORE = "/opt/venv", "/opt/packages"  # where an environment, and folders of packages, lie in a sandbox
NEEDED = ("bin", "lib", "lib64", "pyvenv.cfg")  # of an environment: beside them may lie anything, even the course
# What an honest cell calls without thinking of it, when it means the notebook's own folder.
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
# Of the system: the loader where it is not among the libraries, the locale C.UTF-8, time zones, and the links by which
# Debian chooses among libraries of one name (libblas.so.3).
SYSTEM = ("lib64", "usr/lib64", "usr/lib/locale/C.utf8", "usr/share/zoneinfo", "etc/alternatives", "etc/ld.so.cache")
PARTS = ("course_lib", "solutions", "tests", "exercises", "notebooks", ".git")  # of the course, among other packages
ANSWERS = ("course_lib/chapters/*/exercises", "solutions", "tests/right")  # the folders of a course that hold some
ARCHIVES = (".egg", ".whl", ".zip")  # from which Python imports as from a folder


@dataclass(frozen=True)
class View:
    """A file or folder of this machine that a worker sees.

    Fields: source, what it is here · place, where it is seen · top, a folder around it that a slot's user may not be
    allowed to enter; None for the system's own · link, what it points to, if it is no file but a symbolic link.
    """

    source: Path
    place: Path
    top: Path | None = None
    link: str = ""


@dataclass(frozen=True)
class Installation:
    """A Python and a course, as they lie on a machine.

    Fields: prefix, base, of the environment and of the Python from which it was made (without one: the same) ·
    executable · path, where Python imports from · packages, the folders to which it installs · libraries, the
    folders of shared ones · courses, folders or archives that hold the course, answers included · root, of the system.
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
        """Return those of this process."""
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
        """Return the program that is run in a sandbox."""
        return os.path.realpath(self.executable) if self.prefix == self.base else f"{VENV}/bin/python"

    @cached_property
    def hidden(self) -> list[Path]:
        """Return the folders and archives that no worker may see, wherever they lie in what it sees."""
        hidden = []
        for course in self.courses:
            among_packages = _holds_packages(course) or course in {each.resolve() for each in self.packages}
            hidden += [course / part for part in PARTS if (course / part).is_dir()] if among_packages else [course]
        # A folder before what lies in it: an empty one that is laid over both would hide the place of the other.
        return sorted({path.resolve() for path in hidden}, key=lambda path: (len(path.parts), path))

    @cached_property
    def views(self) -> list[View]:
        """Return what a worker needs of this machine, in the order in which it is laid out."""
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
        """Return the places in a view that are empty for a worker."""
        whole = view.source.resolve()
        return [view.place / each.relative_to(whole) for each in self.hidden if each.is_relative_to(whole)]

    @cached_property
    def more(self) -> list[Path]:
        """Return folders of packages that Python would not find in a sandbox: `pip install --user` and `--target`."""
        own = {each.resolve() for each in self.packages}
        return [folder for folder in self.path if _holds_packages(folder) and folder.resolve() not in own]

    @cached_property
    def answer_paths(self) -> list[str]:
        """Return where answers would be found if nothing hid them: every path in this machine and in a sandbox."""
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
        """Return what is seen where nothing can be laid over it: paths that may be read, and folders in which no more
        than names may be seen, because something in them is hidden."""
        paths, listed = [], []
        for view in self.views:
            source = view.source.resolve()
            parts = _around(source, [each for each in self.hidden if each.is_relative_to(source)])
            paths += parts
            listed += [] if parts == [source] else [source]
        return [path for path in paths if path.exists()], listed

    def _library(self) -> list[Path]:
        """Return the folders of Python's own modules, and of packages that no environment parts from them."""
        if self.base not in (self.root / "usr", self.root / "usr" / "local"):
            return [path for path in (self.base / "lib", self.base / "lib64") if path.is_dir()]
        own = [path for path in (*self.path, *self.packages) if path.is_dir() and _within(path, self.root / "usr")]
        own = [path for path in own if self.prefix == self.base or not _within(path, self.prefix)]
        folders = [path for path in own if path in self.packages or (path / "os.py").is_file()]
        return [path for path in dict.fromkeys(folders) if not any(_inside(path, each) for each in folders)]

    def _executables(self) -> Iterator[View]:
        """Yield the program Python, with every link that leads to it."""
        seen = set()
        names = [self.base / "bin" / name for name in ("python", "python3")]
        for path in (*names, self.executable if self.prefix == self.base else self.executable.resolve()):
            while path not in seen and (path.is_symlink() or path.is_file()):
                seen.add(path)
                link = os.readlink(path) if path.is_symlink() else ""
                yield View(path, path, None if link else self._top(path.parent), link)
                path = Path(os.path.normpath(path.parent / link)) if link else path

    def _linked(self) -> Iterator[Path]:
        """Yield what packages point to by links that lead out of them, as those of Debian do (mpl-data)."""
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
    """Return the folders of the shared libraries that this process has loaded, those of torch and numpy among them, and
    those where it was told to look."""
    import numpy as np  # noqa: F401
    import torch  # noqa: F401

    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # macOS, where docker has what it needs in its image
        return []
    files = {line.split(None, 5)[5] for line in lines if line.count("/") and len(line.split(None, 5)) == 6}
    found = [path.parent for path in map(Path, sorted(files)) if ".so" in path.name and path.is_file()]
    found += [Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each]
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]


def find_courses(own: Path, imported_from: Iterable[Path], installed_from: Iterable[Path] = ()) -> list[Path]:
    """Return every folder or archive known to hold the course, answers included, or to have held it when pip took it.

    own: where the library in use lies. imported_from: where Python looks for modules.
    """
    found = [own, *installed_from]
    for folder in imported_from:
        if (folder / "course_lib").is_dir():
            found += [folder, (folder / "course_lib").resolve().parent]  # which may be a link to it
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
    """Yield the symbolic links in a folder, and in the folders in it."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.is_symlink():
                yield Path(each.path)
            elif depth > 1 and each.is_dir():
                yield from _links(Path(each.path), depth - 1)


def _around(folder: Path, hidden: Sequence[Path]) -> list[Path]:
    """Return the folder, or everything in it but what is hidden, in the fewest paths."""
    if folder in hidden or folder.is_symlink():  # whatever a link leads to is seen where it lies, or not at all
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
