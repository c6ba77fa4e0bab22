"""Ways in which a course and its Python lie on a machine, as made-up trees: what a worker must see, what it must not.

Each function lays out a tree below a folder that stands for `/` and returns an `Installed`. Nothing runs there.
"""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.classroom.sandbox.visible_files import Installation, find_courses

VERSION = "python3.12"
MULTIARCH = "usr/lib/x86_64-linux-gnu"
COURSE = {  # the files of a course, and which of them hold answers
    "course_lib/__init__.py": False,
    "course_lib/attention.py": False,
    "course_lib/chapters/heads/exercises/split.py": True,
    "solutions/04_heads.ipynb": True,
    "tests/right/heads.py": True,
    ".git/objects/ab": True,
}


@dataclass(frozen=True)
class Installed:
    """An installation with the files of which a worker must read each, or none."""

    installation: Installation
    needed: tuple[Path, ...]
    answers: tuple[Path, ...]


WAYS: dict[str, Callable[[Path], Installed]] = {}


def way(make: Callable[[Path], Installed]) -> Callable[[Path], Installed]:
    WAYS[make.__name__] = make
    return make


class Machine:
    """A tree below a folder that stands for `/`, and the files in it that matter."""

    def __init__(self, root: Path):
        self.root, self.needed, self.answers = root, [], []
        self.libraries = [self.need(f"{MULTIARCH}/libc.so.6"), self.need(f"{MULTIARCH}/libstdc++.so.6.0.30")]
        self.file("etc/ld.so.cache")
        for secret in ("home/teacher/grades.csv", "etc/shadow", "usr/share/doc/notes", "usr/bin/gcc"):
            self.answers.append(self.file(secret))

    def file(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def need(self, name: str) -> Path:
        self.needed.append(self.file(name))
        return self.needed[-1]

    def link(self, name: str, target: str | Path) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        return path

    def course(self, name: str, library_alone: bool = False) -> Path:
        """A course, as a repository or as pip installs it: the library and its exercises."""
        for file, answer in COURSE.items():
            if file.startswith("course_lib/") or not library_alone:
                path = self.file(f"{name}/{file}")
                if answer:
                    self.answers.append(path)
        if library_alone:
            self.file(f"{name}/transformers_measured-0.1.0.dist-info/METADATA")
        return self.root / name

    def python(self, base: str, stdlib: str = "") -> Path:
        """A Python; returns its prefix."""
        self.need(f"{base}/bin/{VERSION}")
        self.link(f"{base}/bin/python3", VERSION)
        self.need(f"{stdlib or f'{base}/lib/{VERSION}'}/os.py")
        return self.root / base

    def packages(self, folder: str) -> Path:
        """A folder of packages, torch among them."""
        self.need(f"{folder}/torch/__init__.py")
        self.file(f"{folder}/torch-2.4.0.dist-info/METADATA")
        return self.root / folder

    def environment(self, name: str, base: Path) -> tuple[Path, Path]:
        """An environment of a Python: its prefix, and its packages."""
        self.need(f"{name}/pyvenv.cfg")
        self.link(f"{name}/bin/python", base / "bin" / "python3")
        return self.root / name, self.packages(f"{name}/lib/{VERSION}/site-packages")

    def installed(
        self,
        prefix: Path,
        base: Path,
        packages: Sequence[Path],
        own: Path,
        path: Sequence[Path] = (),
        stdlib: str = "",
        came_from: Sequence[Path] = (),
    ) -> Installed:
        """own: the folder from which the course is imported. path: what else is imported from."""
        where = (self.root / stdlib if stdlib else base / "lib" / VERSION, *packages, *path)
        executable = prefix / "bin" / ("python3" if prefix == base else "python")
        known = tuple(find_courses(own, where, came_from))
        made = Installation(
            prefix,
            base,
            executable,
            where,
            tuple(packages),
            tuple(path.parent for path in self.libraries),
            known,
            root=self.root,
        )
        return Installed(made, tuple(self.needed), tuple(self.answers))


@way
def a_repository_with_its_environment_in_it(root: Path) -> Installed:
    machine = Machine(root)
    course = machine.course("home/teacher/course")
    base = machine.python("usr")
    prefix, packages = machine.environment("home/teacher/course/.venv", base)
    return machine.installed(prefix, base, [packages], course, [course])


@way
def an_environment_that_is_the_repositorys_top(root: Path) -> Installed:
    machine = Machine(root)
    course = machine.course("home/teacher/course")
    base = machine.python("usr")
    prefix, packages = machine.environment("home/teacher/course", base)
    return machine.installed(prefix, base, [packages], course)


@way
def an_environment_around_the_repository(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    return machine.installed(prefix, base, [packages], machine.course("srv/env/lib/course"))


@way
def a_wheel_in_an_environment(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    machine.course(f"srv/env/lib/{VERSION}/site-packages", library_alone=True)
    return machine.installed(prefix, base, [packages], packages)


@way
def a_wheel_that_was_built_from_a_folder_still_there(root: Path) -> Installed:
    """Below the environment's own lib, of all places."""
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    source = machine.course("srv/env/lib/source")
    machine.course(f"srv/env/lib/{VERSION}/site-packages", library_alone=True)
    return machine.installed(prefix, base, [packages], packages, came_from=[source])


@way
def a_folder_of_packages(root: Path) -> Installed:
    """`pip install --target`, named in PYTHONPATH."""
    machine = Machine(root)
    base = machine.python("usr")
    packages = machine.packages("usr/lib/python3/dist-packages")
    target = machine.packages("srv/target")
    machine.course("srv/target", library_alone=True)
    return machine.installed(base, base, [packages], target, [target])


@way
def packages_of_one_user(root: Path) -> Installed:
    """`pip install --user`."""
    machine = Machine(root)
    base = machine.python("usr")
    packages = machine.packages("usr/lib/python3/dist-packages")
    own = machine.packages(f"home/teacher/.local/lib/{VERSION}/site-packages")
    machine.course(f"home/teacher/.local/lib/{VERSION}/site-packages", library_alone=True)
    return machine.installed(base, base, [packages], own, [own])


@way
def a_repository_in_pythonpath(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    packages = machine.packages("usr/lib/python3/dist-packages")
    course = machine.course("usr/lib/python3/course")
    return machine.installed(base, base, [packages], course, [course])


@way
def a_repository_below_usr_in_an_image(root: Path) -> Installed:
    """As in images of python: its prefix is /usr/local, and its library lies among others'."""
    machine = Machine(root)
    base = machine.python("usr/local")
    machine.libraries.append(machine.need("usr/local/lib/libpython3.12.so.1.0"))
    packages = machine.packages(f"usr/local/lib/{VERSION}/site-packages")
    course = machine.course("usr/local/lib/course")
    return machine.installed(base, base, [packages], course, [course])


@way
def a_wheel_in_an_image(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr/local")
    packages = machine.packages(f"usr/local/lib/{VERSION}/site-packages")
    machine.course(f"usr/local/lib/{VERSION}/site-packages", library_alone=True)
    return machine.installed(base, base, [packages], packages)


@way
def fedora(root: Path) -> Installed:
    """Python's own modules lie in /usr/lib64 among all libraries, packages of its system in /usr/lib."""
    machine = Machine(root)
    machine.libraries = [machine.need("usr/lib64/libc.so.6")]
    machine.needed = [path for path in machine.needed if MULTIARCH not in str(path)]
    base = machine.python("usr", stdlib=f"usr/lib64/{VERSION}")
    system = machine.packages(f"usr/lib/{VERSION}/site-packages")
    local = machine.packages(f"usr/local/lib/{VERSION}/site-packages")
    machine.course(f"usr/local/lib/{VERSION}/site-packages", library_alone=True)
    return machine.installed(base, base, [local, system], local, stdlib=f"usr/lib64/{VERSION}")


@way
def debian_with_links_out_of_its_packages(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    packages = machine.packages("usr/lib/python3/dist-packages")
    machine.need("usr/share/matplotlib/mpl-data/matplotlibrc")
    machine.link("usr/lib/python3/dist-packages/matplotlib/mpl-data", root / "usr/share/matplotlib/mpl-data")
    course = machine.course("home/teacher/course")
    machine.link("usr/lib/python3/dist-packages/course_lib", course / "course_lib")
    machine.link("usr/lib/python3/dist-packages/notes", course / "solutions")
    with zipfile.ZipFile(packages / "old.zip", "w") as file:  # something beside them that is hidden
        file.writestr("course_lib/chapters/heads/exercises/split.py", "")
    machine.answers.append(packages / "old.zip")
    return machine.installed(base, base, [packages], course)


@way
def conda(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("opt/conda/envs/course")
    machine.libraries.append(machine.need("opt/conda/envs/course/lib/libz.so.1"))
    packages = machine.packages(f"opt/conda/envs/course/lib/{VERSION}/site-packages")
    machine.course(f"opt/conda/envs/course/lib/{VERSION}/site-packages", library_alone=True)
    machine.course("opt/conda/pkgs/transformers-measured-0.1.0")
    return machine.installed(base, base, [packages], packages)


@way
def pyenv_without_an_environment(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("home/teacher/.pyenv/versions/3.12.4")
    packages = machine.packages(f"home/teacher/.pyenv/versions/3.12.4/lib/{VERSION}/site-packages")
    machine.libraries.append(machine.need("home/teacher/.pyenv/versions/3.12.4/lib/libpython3.12.so.1.0"))
    return machine.installed(base, base, [packages], machine.course("home/teacher/course"))


@way
def a_store_in_which_each_library_has_a_folder(root: Path) -> Installed:
    """As Nix and Guix have it."""
    machine = Machine(root)
    machine.libraries.append(machine.need("nix/store/abc-glibc/lib/libc.so.6"))
    base = machine.python("nix/store/def-python3")
    prefix, packages = machine.environment("home/teacher/env", base)
    machine.answers.append(machine.file("nix/store/ghi-other/lib/other.so"))
    return machine.installed(prefix, base, [packages], machine.course("home/teacher/course"))


@way
def copies_that_nobody_knows_of(root: Path) -> Installed:
    machine = Machine(root)
    for place in ("usr/local/src", "usr/src", "opt", "usr/share/doc", "usr/local/share", "var/lib", "usr/lib/course"):
        machine.course(f"{place}/old-course")
    base = machine.python("usr")
    prefix, packages = machine.environment("home/teacher/course/.venv", base)
    return machine.installed(prefix, base, [packages], machine.course("home/teacher/course"))


@way
def solutions_copied_elsewhere(root: Path) -> Installed:
    machine = Machine(root)
    for place in ("home/teacher/04_heads.ipynb", "srv/env/share/04_heads.ipynb", "srv/env/solutions/04_heads.ipynb"):
        machine.answers.append(machine.file(place))
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    return machine.installed(prefix, base, [packages], machine.course("home/teacher/course"))


@way
def archives_to_import_from(root: Path) -> Installed:
    """An egg among the packages, and a zip file in PYTHONPATH, beside the course in use."""
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    course = machine.course("home/teacher/course")
    inside = [packages / "transformers_measured-0.1.0-py3.12.egg", root / "srv/env/lib/course.zip"]
    for archive in inside:
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("course_lib/chapters/heads/exercises/split.py", "")
        machine.answers.append(archive)
    with zipfile.ZipFile(packages / "another.zip", "w") as file:
        file.writestr("another/__init__.py", "")
    machine.needed.append(packages / "another.zip")
    return machine.installed(prefix, base, [packages], course, [inside[1]])


@way
def an_egg_that_is_a_folder(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    egg = machine.course(f"srv/env/lib/{VERSION}/site-packages/transformers_measured-0.1.0-py3.12.egg")
    return machine.installed(prefix, base, [packages], egg, [egg])


@way
def a_repository_reached_by_a_link(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    machine.course("srv/env/lib/real-course")
    link = machine.link("home/teacher/course", root / "srv/env/lib/real-course")
    return machine.installed(prefix, base, [packages], link, [link])


@way
def a_library_loaded_out_of_the_repository(root: Path) -> Installed:
    machine = Machine(root)
    base = machine.python("usr")
    prefix, packages = machine.environment("srv/env", base)
    course = machine.course("home/teacher/course")
    machine.libraries.append(machine.file("home/teacher/course/kernels.so"))
    machine.libraries.append(machine.file("home/teacher/course/solutions/kernels.so"))
    return machine.installed(prefix, base, [packages], course)
