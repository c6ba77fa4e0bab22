"""The wheel: beside the library it brings the notebooks and exercises, so that `start` works without the repository.

They stand once, at the repository's top. pyproject.toml has this class copy them into the package that a wheel is made
of; an editable installation finds them where they are, and an sdist takes them along. `handout.course()` finds either.
It is loaded by itself where a wheel is built: nothing else of the course can be imported there.
"""

from pathlib import Path
from shutil import rmtree

from setuptools.command.build_py import build_py

HANDOUTS = {"notebooks": ("*.ipynb", "*.md"), "exercises": ("*.ipynb",)}


class BuildWithHandouts(build_py):
    """Build the package as it is, and put the notebooks and exercises into its folder `handouts/`."""

    def handouts(self) -> dict[str, str]:
        """Return where each file goes in what is built -> where it stands in the repository."""
        found = [path for part, kinds in HANDOUTS.items() for kind in kinds for path in sorted(Path(part).glob(kind))]
        return {str(Path(self.build_lib, "course_lib", "handouts", path)): str(path) for path in found}

    def run(self) -> None:
        super().run()
        rmtree(Path(self.build_lib, "course_lib", "handouts"), ignore_errors=True)  # of an earlier build
        for target, source in {} if self.editable_mode else self.handouts().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target, preserve_mode=False)

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *self.handouts().values()]

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *([] if self.editable_mode else self.handouts())]
