"""Files: written whole or not at all, and read with an error that says what to do."""

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

if TYPE_CHECKING:  # torch takes seconds to import, and many a command writes files and needs no tensor
    from torch import Tensor

ASSETS = Path(__file__).parent / "assets"  # what comes with the course
_BROUGHT = Path(__file__).resolve().parent / "handouts"
# The folder that holds notebooks/ and exercises/: a wheel brings it in the package; else it is the repository.
COURSE = _BROUGHT if _BROUGHT.is_dir() else _BROUGHT.parents[1]


def inside(folder: Path, name: str) -> Path:
    """Return the path of a name within a folder, "notebooks/02_attention.ipynb", which may come from a stranger.

    What the name itself refers to may be a link: `write_whole` replaces it, and reading is for the caller to decide.
    Errors: ValueError for a name that leads elsewhere on any system (`..`, an absolute one, a drive, a backslash), or
        if a folder on the way is a link.
    """
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or any(sign in name for sign in "\\:\0"):
        raise ValueError(f"{name!r} is no name inside {folder}: delete it from where it is written")
    path = folder
    for part in parts[:-1]:
        path = path / part
        if path.is_symlink():
            raise ValueError(f"{path} is a link: what it leads to is not inside {folder}. Delete the link")
    return path / parts[-1]


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all: `write` fills a file beside it, which then takes its name. If `write` raises,
    nothing is left behind."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # what an ended process left; or a link, through which another file would be written
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def exchange_folder(new: Path, folder: Path) -> None:
    """Put the folder `new` in the place of `folder`, which is deleted.

    Ended at any moment, it leaves either of them whole; what `folder` was until then may be in `earlier_of(folder)`,
    and `restore_folder` brings it back.
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
    """Undo an exchange that ended half-way: where `folder` is missing, what it was before takes its place again."""
    if not folder.exists() and earlier_of(folder).exists():
        os.rename(earlier_of(folder), folder)


def earlier_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.earlier")


def delete_folder(folder: Path) -> None:
    """Delete a folder with all that is in it, at any depth; what cannot be deleted stays, and nothing is raised.

    `shutil.rmtree` calls itself for every level, which Python ends at a thousand, and no path may name what lies deeper
    than 4,096 bytes. Here each folder hands what it holds up to the top before it goes; links are not followed.
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
    """Whether it could be deleted as a file or a link."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def save_json(path: Path, content: object) -> None:
    """Write plain values as JSON that a person can read."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def save_tensors(path: Path, tensors: "dict[str, Tensor]") -> None:
    """Write named tensors in the safetensors format: names, shapes and numbers, and no code."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    def write(part: Path) -> None:
        try:
            save_file(tensors, part)
        except SafetensorError as error:  # a full disk, say: the package has its own name for the system's errors
            raise OSError(None, str(error), str(path)) from error

    write_whole(path, write)


def read_table(name: str) -> dict:
    """A table that comes with the course, `assets/tables/NAME.toml`: words, sizes, names, hashes."""
    return tomllib.loads((ASSETS / "tables" / f"{name}.toml").read_text(encoding="utf-8"))


def parsed(text: str | bytes):
    """The values of a JSON text that may come from a stranger. ValueError if it is none, or nests too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error


def read_json(path: Path):
    """The values of a JSON file. ValueError if it is missing or damaged."""
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """The named tensors of a safetensors file. ValueError if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise damaged(path, error) from error


@contextmanager
def reading(source: object) -> Iterator[None]:
    """Within it, whatever goes wrong is a ValueError that names the source. What a check says is kept."""
    try:
        yield
    except ValueError as error:
        if str(source) in str(error):
            raise
        raise ValueError(f"{source}: {error}") from error
    except Exception as error:  # an entry is of a kind that nobody thought of
        raise damaged(source, error) from error


def damaged(source: object, error: Exception) -> ValueError:
    """The error for a file that cannot be used, with the remedy."""
    return ValueError(
        f"{source} is missing or damaged ({type(error).__name__}: {str(error).partition(chr(10))[0]:.200}). Reinstall "
        "the course, fetch the weights again, or train again."
    )


def require_weight_map(path: Path, index: Any) -> list[str]:
    """Return the files that an index of tensors names. ValueError unless it names a file for each tensor."""
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise damaged(path, TypeError("it has no weight_map from the names of tensors to the names of files"))
    return sorted(set(files.values()))


def require_vocabulary(path: Path, words: Any) -> list[str]:
    """Return the words of a vocabulary. ValueError unless they are a list of words."""
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise damaged(path, TypeError("it must hold a list of words"))
    return words


def require_no_pickle(folder: Path, name: str) -> None:
    """Raise ValueError if a folder has its tensors only as pickles, with the two lines that convert them."""
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    if pickles and not (folder / name).is_file() and not (folder / f"{name}.index.json").is_file():
        parts = f"[torch.load(file, weights_only=True) for file in Path({str(folder)!r}).glob('pytorch_model*.bin')]"
        tensors = "{name: tensor.clone().contiguous() for part in parts for name, tensor in part.items()}"
        raise ValueError(
            f"{pickles[0]} is a pickle, which is not read, because reading it can run code. If you trust its makers, "
            f"convert it once, after `import torch, safetensors.torch` and `from pathlib import Path`:\n"
            f"    parts = {parts}\n"
            f"    safetensors.torch.save_file({tensors}, {str(folder / name)!r})"
        )
