"""Files: written whole or not at all, and read with an error that says what to do."""

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

ASSETS = Path(__file__).parent / "assets"  # what comes with the course


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all: `write` fills a file beside it, which then takes its name. If `write` raises,
    nothing is left behind."""
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save_json(path: Path, content: object) -> None:
    """Write plain values as JSON that a person can read."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write named tensors in the safetensors format: names, shapes and numbers, and no code."""

    def write(part: Path) -> None:
        try:
            save_file(tensors, part)
        except SafetensorError as error:  # a full disk, say: the package has its own name for the system's errors
            raise OSError(None, str(error), str(path)) from error

    write_whole(path, write)


def read_table(name: str) -> dict:
    """A table that comes with the course, `assets/tables/NAME.toml`: words, sizes, names, hashes."""
    return tomllib.loads((ASSETS / "tables" / f"{name}.toml").read_text(encoding="utf-8"))


def read_json(path: Path):
    """The values of a JSON file. ValueError if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors of a safetensors file. ValueError if it is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> ValueError:
    """The error for a file that cannot be used, with the remedy."""
    return ValueError(
        f"{path} is missing or damaged ({type(error).__name__}). Reinstall the course, fetch the weights again, "
        "or train again."
    )
