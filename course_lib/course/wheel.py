"""The wheel: include the notebooks and exercises with the library, so that `start` works without the repository.

The repository has them only once, at its top level. `pyproject.toml` makes this class copy them into the package when a
wheel is built. An editable installation uses them where they are, and an sdist includes them. `files.COURSE` is the
folder that has them in each case. The build loads this module separately, so it cannot import the rest of the course.
"""

from pathlib import Path
from shutil import rmtree

from setuptools.command.build_py import build_py

HANDOUTS = {"notebooks": ("*.ipynb", "*.md"), "exercises": ("*.ipynb",)}


class BuildWithHandouts(build_py):
    """Build the package, and copy the notebooks and exercises to its folder `handouts/`."""

    def handouts(self) -> dict[str, str]:
        """Return a dict from each file's path in the built package to its path in the repository."""
        found = [path for part, kinds in HANDOUTS.items() for kind in kinds for path in sorted(Path(part).glob(kind))]
        return {str(Path(self.build_lib, "course_lib", "handouts", path)): str(path) for path in found}

    def run(self) -> None:
        super().run()
        rmtree(Path(self.build_lib, "course_lib", "handouts"), ignore_errors=True)  # from an earlier build
        for target, source in {} if self.editable_mode else self.handouts().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target, preserve_mode=False)

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *self.handouts().values()]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *([] if self.editable_mode else self.handouts())]
