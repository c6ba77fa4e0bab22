"""The exercises in a learner's package: one compressed file, from which pages are read and their modules imported.

It prevents readers from seeing answers by accident, through reading, searching or `inspect`. It is not a lock: anyone
can open it deliberately, as the engine does.
"""

import importlib.abc
import importlib.util
import json
import sys
import zlib
from pathlib import Path

NAME = "sealed.bin"


def seal(files: dict[str, str]) -> bytes:
    """Return the content of the sealed file. files: text by path, such as "heads/merge.md"."""
    return zlib.compress(json.dumps(files).encode(), 9)


class Sealed(importlib.abc.Loader):
    """The contents of a sealed file. Its modules can be imported but do not reveal their source.

    Args:
        path: of the file.
        package: the name under which its folders are found, "course_lib.chapters": the module "heads/merge.py" is then
            course_lib.chapters.heads.exercises.merge.
    """

    def __init__(self, path: Path, package: str):
        self.path, self.package = path, package
        self.files: dict[str, str] = json.loads(zlib.decompress(path.read_bytes()))
        sys.meta_path.append(self)

    def find_spec(self, fullname: str, path=None, target=None):
        """Return where a module comes from, for Python's import: a sealed module, or a folder of them."""
        if not fullname.startswith(f"{self.package}."):
            return None
        slug, _, rest = fullname.removeprefix(f"{self.package}.").partition(".")
        name = rest.removeprefix("exercises").removeprefix(".")
        if rest.startswith("exercises.") and f"{slug}/{name}.py" in self.files:
            return importlib.util.spec_from_loader(fullname, self, origin=str(self.path))
        if rest in ("", "exercises") and any(file.startswith(f"{slug}/") for file in self.files):
            return importlib.util.spec_from_loader(fullname, self, origin=str(self.path), is_package=True)
        return None

    def create_module(self, spec) -> None:
        """Leave making the module to Python."""
        return None

    def exec_module(self, module) -> None:
        """Run a sealed module; a folder has nothing to run."""
        slug, _, rest = module.__name__.removeprefix(f"{self.package}.").partition(".")
        file = f"{slug}/{rest.removeprefix('exercises.')}.py"
        if file in self.files:
            exec(compile(self.files[file], str(self.path / file), "exec"), module.__dict__)
