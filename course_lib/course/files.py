"""Files: write them without leaving incomplete ones, and read them with errors that say what to do."""

import errno
import json
import os
import secrets
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch takes seconds to import, and many commands need no tensors
    from torch import Tensor

_LIBRARY = Path(__file__).resolve().parent.parent
ASSETS = _LIBRARY / "assets"  # files that come with the course
_BROUGHT = _LIBRARY / "handouts"
# The folder with notebooks/ and exercises/: inside the package if it was installed from a wheel, else the repository.
COURSE = _BROUGHT if _BROUGHT.is_dir() else _BROUGHT.parents[1]


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder from an untrusted name such as "notebooks/02_attention.ipynb".

    The file itself may be a link: `write_whole` replaces a link, and the caller decides whether to read one.
    Errors: ValueError if the name leads out of the folder on any system (`..`, an absolute path, a drive, a backslash),
        or if a folder in the path is a link.
    """
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or any(sign in name for sign in "\\:\0"):
        raise ValueError(f"{name!r} is not a file name inside {folder}: remove this name from the file that lists it")
    path = folder
    for part in parts[:-1]:
        path = path / part
        if path.is_symlink():
            raise ValueError(f"{path} is a link, and its target is not inside {folder}. Delete the link")
    return path / parts[-1]


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file completely or not at all: `write` fills a temporary file, which then replaces `path`. If `write`
    raises an error, the temporary file is deleted."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # from a killed process; or a link, which would redirect the write
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def exchange_folder(new: Path, folder: Path) -> None:
    """Replace `folder`, which is deleted, by the folder `new`.

    If this is interrupted, one of the two is still complete. The old `folder` may then be at `earlier_of(folder)`;
    `restore_folder` restores it.
    """
    restore_folder(folder)
    earlier = earlier_of(folder)
    delete_folder(earlier)
    if folder.exists():
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file has its name", str(folder))
        os.rename(folder, earlier)
    os.rename(new, folder)
    delete_folder(earlier)


def restore_folder(folder: Path) -> None:
    """Undo an interrupted exchange: if `folder` is missing, restore the old one."""
    if not folder.exists() and earlier_of(folder).exists():
        os.rename(earlier_of(folder), folder)


def earlier_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.earlier")


def delete_folder(folder: Path) -> None:
    """Delete a folder and its contents at any depth. Files that cannot be deleted stay; no error is raised.

    `shutil.rmtree` fails for deep folders: Python limits recursion to a thousand levels, and the system limits a path
    to 4,096 bytes. Here the subfolders are moved to the top before their folder is deleted. Links are not followed.
    """
    if os.rename not in os.supports_dir_fd:  # Windows
        shutil.rmtree(folder, ignore_errors=True)
        return
    with suppress(OSError):
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            token, moved, waiting = secrets.token_hex(8), 0, ["."]
            while waiting:
                name = waiting.pop()
                with suppress(OSError):
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                    try:
                        folders = [each for each in os.listdir(inner) if not _unlinked(each, inner)]
                        for each in folders:
                            with suppress(OSError):
                                os.rename(each, f"{token}-{moved}", src_dir_fd=inner, dst_dir_fd=top)
                                waiting.append(f"{token}-{moved}")
                                moved += 1
                    finally:
                        os.close(inner)
                    if name != ".":
                        os.rmdir(name, dir_fd=top)
        finally:
            os.close(top)
        folder.rmdir()


def _unlinked(name: str, folder: int) -> bool:
    """Delete a file or a link, and return whether this succeeded."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def save_json(path: Path, content: object) -> None:
    """Write plain values as readable JSON."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def save_tensors(path: Path, tensors: "dict[str, Tensor]") -> None:
    """Write named tensors in the safetensors format, which has names, shapes and numbers but no code."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    def write(part: Path) -> None:
        try:
            save_file(tensors, part)
        except SafetensorError as error:  # such as a full disk: the package does not raise OSError
            raise OSError(None, str(error), str(path)) from error

    write_whole(path, write)


def read_table(name: str) -> dict:
    """Return a table that comes with the course, `assets/tables/NAME.toml`: words, sizes, names or hashes."""
    return tomllib.loads((ASSETS / "tables" / f"{name}.toml").read_text(encoding="utf-8"))


def parsed(text: str | bytes):
    """Return the values of an untrusted JSON text. Errors: ValueError if it is not JSON or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error


def read_json(path: Path):
    """Return the values of a JSON file. Errors: ValueError if it is missing or damaged."""
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Return the named tensors of a safetensors file. Errors: ValueError if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise damaged(path, error) from error


@contextmanager
def reading(source: object) -> Iterator[None]:
    """Convert any error in this context to a ValueError that names the source. The messages of checks are kept."""
    try:
        yield
    except ValueError as error:
        if str(source) in str(error):
            raise
        raise ValueError(f"{source}: {error}") from error
    except Exception as error:  # an entry of an unexpected kind
        raise damaged(source, error) from error


def damaged(source: object, error: Exception) -> ValueError:
    """Return the error for a file that cannot be used; its message says what to do."""
    return ValueError(
        f"{source} is missing or damaged ({type(error).__name__}: {str(error).partition(chr(10))[0]:.200}). Reinstall "
        "the course, fetch the weights again, or train again."
    )


def require_weight_map(path: Path, index: Any) -> list[str]:
    """Return the files named in an index of tensors. Errors: ValueError unless it names a file for each tensor."""
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise damaged(path, TypeError("it has no weight_map from the names of tensors to the names of files"))
    return sorted(set(files.values()))


def require_vocabulary(path: Path, words: Any) -> list[str]:
    """Return the words of a vocabulary. Errors: ValueError unless it is a list of words."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise damaged(path, TypeError("it must be a list of words"))
    return words


def require_no_pickle(folder: Path, name: str) -> None:
    """Raise ValueError if a folder has tensors only as pickles; the message has two lines that convert them."""
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    if pickles and not (folder / name).is_file() and not (folder / f"{name}.index.json").is_file():
        parts = f"[torch.load(file, weights_only=True) for file in Path({str(folder)!r}).glob('pytorch_model*.bin')]"
        tensors = "{name: tensor.clone().contiguous() for part in parts for name, tensor in part.items()}"
        raise ValueError(
            f"{pickles[0]} is a pickle, which is not read, because reading it can run code. If you trust its source, "
            f"convert it once, after `import torch, safetensors.torch` and `from pathlib import Path`:\n"
            f"    parts = {parts}\n"
            f"    safetensors.torch.save_file({tensors}, {str(folder / name)!r})"
        )
