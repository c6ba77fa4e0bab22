"""Present files, folders and zip archives as one tree. No path leads out of it, and every part has a size limit.

Links are not followed, archives are read in memory, and nothing is written. An unreadable item does not spoil the rest:
it becomes a `LeftOut`, or reading it raises `Refused` with the reason.
"""

import io
import os
import re
import stat
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# Sizes in bytes.
LARGEST_ARCHIVE = 64_000_000  # an archive inside another one, which is kept in memory
LARGEST_LIST = 16_000_000  # an archive's list of members
MOST_RATIO = 500  # unpacked size over packed size: a million equal outputs stay below it, a zip bomb does not
DEEPEST_FOLDER = 32
PIECE = 1_000_000  # read at a time

Place = tuple[str, ...]  # the names from the submission down


class Refused(Exception):
    """An item that cannot be read. The message is the end of a sentence that begins with the file's name."""


@dataclass(frozen=True)
class File:
    """A file. packed: its size in bytes inside the archive, or None on disk."""

    name: str
    open: Callable[[], IO[bytes]]
    packed: int | None = None

    def read(self, most: int, charge: Callable[[int], None]) -> bytes:
        """Return the full content. Errors: Refused, as in `pieces`."""
        return b"".join(self.pieces(most, charge))

    def pieces(self, most: int, charge: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the full content piece by piece. `charge` is called with the size of every piece and may refuse it.

        Errors: Refused if there are more than `most` bytes, or more than the packed size allows.
        """
        size = 0
        charge(0)
        try:
            with self.open() as stream:
                while piece := stream.read(PIECE):
                    charge(len(piece))
                    size += len(piece)
                    if size > most:
                        raise Refused(f"is larger than {megabytes(most)}")
                    if self.packed is not None and size > PIECE + MOST_RATIO * self.packed:
                        raise Refused(f"unpacks to more than {MOST_RATIO} times its size")
                    yield piece
        except Refused:
            raise
        except Exception as error:  # a damaged archive can raise almost anything
            raise Refused("is damaged or cannot be opened") from error


@dataclass(frozen=True)
class Folder:
    """A folder, or an opened archive. note: the end of a sentence on what was salvaged in opening it."""

    name: str
    items: Callable[[], Iterable["Item"]]  # in natural order
    note: str = ""


@dataclass(frozen=True)
class LeftOut:
    """An item that is not opened at all."""

    name: str
    why: str


Item = File | Folder | LeftOut
LINK = "is a symbolic link, which is not followed"
NO_FILE = "is no ordinary file"
AMBIGUOUS = "is in the archive twice, so it is unclear which one counts"
TOO_DEEP = f"lies more than {DEEPEST_FOLDER} folders deep"
ENCRYPTED, UTF8 = 0x1, 0x800  # flags of an archive member
BACKSLASHES = "was packed with backslashes between its folders: they were read as folders"
OUTSIDE = "has a name that leads out of the archive"
NOWHERE = (OUTSIDE, TOO_DEEP)
OTHER_ARCHIVES = (".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz")
LITTER = {"__MACOSX", "__pycache__", ".DS_Store", ".git", ".ipynb_checkpoints", "Thumbs.db", "desktop.ini"}
IGNORED = LITTER | {"node_modules", "site-packages", "venv"}


def on_disk(path: Path) -> Item:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return LeftOut(path.name, "cannot be opened")
    if stat.S_ISDIR(mode):
        return Folder(path.name, lambda: items_of(path))
    if stat.S_ISREG(mode):
        return File(path.name, lambda: _opened(path))
    return LeftOut(path.name, LINK if stat.S_ISLNK(mode) else NO_FILE)


def items_of(path: Path) -> Iterator[Item]:
    try:
        names = sorted(os.listdir(path), key=natural)
    except OSError:
        names = []
        yield LeftOut(path.name, "cannot be opened")
    for name in names:
        yield on_disk(path / name)


def _opened(path: Path) -> IO[bytes]:
    """Open a path only if it still is an ordinary file, without following a link or waiting on a pipe."""
    flags = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(path, os.O_RDONLY | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(NO_FILE)
    return os.fdopen(descriptor, "rb")


class _Bounded:
    """A file for `zipfile` with a size limit, because `zipfile` reads an archive's list of members at once."""

    def __init__(self, stream: IO[bytes]):
        self.stream, self.seek, self.tell = stream, stream.seek, stream.tell

    def seekable(self) -> bool:
        return True

    def read(self, count: int = -1) -> bytes:
        if count > LARGEST_LIST:
            raise Refused("lists too many members")
        return self.stream.read(count)


def unpacked(file: File, charge: Callable[[int], None], until: ExitStack, salvage: bool = True) -> Folder:
    """Return an archive as a folder that can be read until `until` closes. Errors: Refused if it is not an archive.

    Args:
        salvage: read backslashes in names as folder separators, as in archives made by Windows before 2016.
    """
    try:
        on_disk = file.packed is None
        stream = until.enter_context(file.open() if on_disk else io.BytesIO(file.read(LARGEST_ARCHIVE, charge)))
        archive = until.enter_context(zipfile.ZipFile(_Bounded(stream)))
        members = [_member(archive, info, salvage) for info in archive.infolist()]
    except Refused:
        raise
    except Exception as error:  # a damaged archive can raise almost anything
        raise Refused("is no zip archive that can be read") from error
    inside: dict[Place, dict[str, Item]] = {}
    for path, item in members:
        _register(inside, path[:-1] if item else path)
    count = Counter(path for path, item in members if item)
    for path, item in members:
        if item:
            twice = isinstance(item, File) and (count[path] > 1 or path in inside)  # `path in inside`: also a folder
            inside[path[:-1]][path[-1]] = LeftOut(path[-1], AMBIGUOUS) if twice else item
    _register(inside, ())
    backslashes = any(
        "\\" in info.orig_filename and not isinstance(item, LeftOut)
        for info, (_, item) in zip(archive.infolist(), members)
    )
    return Folder(file.name, lambda: _sorted(inside[()]), BACKSLASHES if backslashes else "")


def _register(inside: dict[Place, dict[str, Item]], path: Place) -> None:
    """Add an archive's folder and its parent folders, which the archive may not list."""
    if path not in inside:
        inside[path] = {}
        if path:
            _register(inside, path[:-1])
            inside[path[:-1]][path[-1]] = Folder(path[-1], lambda: _sorted(inside[path]))


def _sorted(items: Mapping[str, Item]) -> list[Item]:
    return [items[name] for name in sorted(items, key=natural)]


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, salvage: bool) -> tuple[Place, Item | None]:
    """Return a member's path below the archive, and the member, or None if it is a folder."""
    name = info.orig_filename  # the raw name: `filename` ends at the first NUL
    if not info.flag_bits & UTF8:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode()  # macOS writes UTF-8 without setting the flag
    written = name
    if salvage:
        name = name.replace("\\", "/")
    path = tuple(part for part in name.split("/") if part not in ("", "."))
    if not path or ".." in path or name.startswith("/") or re.search(r"\\|\0|^[A-Za-z]:", name):
        return (written,), LeftOut(written, OUTSIDE)
    if len(path) > DEEPEST_FOLDER:
        return (name,), LeftOut(name, TOO_DEEP)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return path, LeftOut(path[-1], LINK if kind == stat.S_IFLNK else NO_FILE)
    if name.endswith("/"):
        return path, None
    if info.flag_bits & ENCRYPTED:
        return path, LeftOut(path[-1], "is encrypted: hand it in without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others may allocate any amount of memory
        return path, LeftOut(path[-1], "is packed in an unusual way: pack it as an ordinary zip file")
    return path, File(path[-1], lambda: archive.open(info), info.compress_size)


def natural(name: str) -> list:
    """Return a sort key that puts 2 before 10 and ignores case. It is the same on every machine."""
    parts = re.split(r"([0-9]+)", unicodedata.normalize("NFC", name).casefold())
    return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(parts)] + [(), name]


def ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def ignored(name: str) -> bool:
    return name in IGNORED or (name.startswith(".") and not name.startswith(".."))


def megabytes(size: int) -> str:
    return f"{size // 1_000_000} MB"
