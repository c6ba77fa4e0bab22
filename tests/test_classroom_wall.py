"""Wherever the course is installed, nothing behind the wall reads or imports its answers.

Each layout is a real one: a copy of the course on the disk, and a Python that runs the grader from there. The copies
hold files named planted_answer beside the answers: these are looked for, whatever the grader's own list says.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from dataclasses import replace
from pathlib import Path

import pytest

import course_lib
from course_lib.classroom.sandbox.visible_files import Installation
from tests.small_class import needs_bwrap

LIBRARY = Path(course_lib.__file__).parent
DEPENDENCIES = sysconfig.get_path("purelib")
CATALOGUE = "course_lib/chapters/heads/exercises/planted_answer.py"
BESIDE = (
    "solutions/planted_answer.ipynb",
    "tests/right/planted_answer.py",
    ".git/planted_answer",
    "class/ada/planted_answer.ipynb",
)
WITHIN = """
import os, subprocess, sys
found, seen = [], {os.path.join(top, part) for top in KNOWN for part in PARTS}
for top in ("/", *KNOWN):
    for folder, folders, files in os.walk(top):
        if folder in ("/proc", "/dev", "/sys"):
            folders.clear()
        elif any(name.endswith(".dist-info") for name in folders):  # other packages hold none, and many files
            folders[:] = {"course_lib", "solutions", "tests", ".git", "class"}.intersection(folders)
        seen |= {os.path.join(folder, name) for name in files if "planted_answer" in name}
for path in sorted(seen):
    try:
        open(path).close()
        found.append("reads " + path)
    except OSError:
        pass
for place in ("", *KNOWN):
    planted = "course_lib.chapters.heads.exercises.planted_answer"
    code = f"import sys; sys.path[:0] = {[place] if place else []}; import {planted}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if run.returncode == 0:
        found.append("imports from " + place)
    elif "course_lib" not in run.stderr.splitlines()[-1]:
        found.append(run.stderr[-300:])
"""
LOOK = """
import json, sys, time
from course_lib.classroom.sandbox import probe, remote, session
from course_lib.classroom.sandbox import stage as sandbox, visible_files as views
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook

level, source, bare = sys.argv[1:]
if bare:
    views.Installation.hidden = []
if bare == "unknown":
    views.Installation.answer_paths = []
told = {"library": sandbox.course_lib.__file__, "prefix": sys.prefix, "probe": "holds", "found": None}
try:
    with remote.Worker(level, Quotas(cell_timeout=200, exercise_timeout=20)) as worker:
        try:
            wall = probe.require_isolation(worker)
            told["probe"] = "; ".join(hole for hole in wall.holes if "answers" in hole) or "holds"
        except sandbox.SandboxError as error:
            told["probe"] = str(error)
        notebook = Notebook("look.ipynb", (Cell(1, "code", source),))
        asked = session.Session(worker, notebook, {}, {"found": False}, time.monotonic() + 300)
        told["found"] = asked.read("found", 0, 20).value if asked.found.answers else asked.found.troubles
        asked.close()
except sandbox.SandboxError as error:
    told["probe"] = str(error)
print(json.dumps(told))
"""


@pytest.fixture
def place():
    """A folder that is not in /tmp, which is another one behind the wall."""
    folder = Path(tempfile.mkdtemp(prefix="course-wall-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def library(folder: Path) -> Path:
    """The library alone, as pip installs it."""
    shutil.copytree(LIBRARY, folder / "course_lib", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / CATALOGUE).write_text("EXERCISES = []\n")
    return folder


def repository(folder: Path) -> Path:
    library(folder)
    for part in BESIDE:
        (folder / part).parent.mkdir(parents=True)
        (folder / part).touch()
    return folder


def environment(folder: Path, *more: Path) -> Path:
    """A virtual environment; its packages are those of this one, found by a .pth file. Returns its Python."""
    venv.create(folder, symlinks=True)
    [packages] = (folder / "lib").glob("python*/site-packages")
    (packages / "more.pth").write_text("".join(f"{each}\n" for each in (*more, DEPENDENCIES)))
    return folder / "bin" / "python"


def looked(python, level="bwrap", known=(), bare="", before=(), **variables) -> dict:
    """What a grader tells that this Python starts: where it is, what its probe says, and what a notebook finds."""
    source = WITHIN.replace("KNOWN", repr([*map(str, known)])).replace("PARTS", repr([CATALOGUE, *BESIDE]))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    command = [*before, str(python), "-c", LOOK, level, source, bare]
    run = subprocess.run(command, cwd="/", env={**clean, **variables}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout.splitlines()[-1])
    return told


def hold(told: dict, course: Path) -> None:
    assert Path(told["library"]).is_relative_to(course), "the grader is not the one that was meant"
    assert (told["found"], told["probe"]) == ([], "holds")


BWRAP = pytest.param("bwrap", marks=needs_bwrap)
LEVEL = pytest.mark.parametrize("level", [BWRAP, "none"])


@pytest.mark.proof  # each test of a class that is graded behind the wall stands in such an environment
@LEVEL
def test_an_ordinary_environment_in_the_repository(place, level):
    course = repository(place / "course")
    python = environment(course / ".venv", course)
    hold(looked(python, level, known=[course]), course)


@needs_bwrap
@pytest.mark.proof
def test_an_environment_that_is_the_repositorys_own_top(place):
    course = repository(place / "course")
    python = environment(course, course)
    hold(looked(python, known=[course, "/opt/venv"]), course)


@needs_bwrap
@pytest.mark.proof
def test_an_environment_around_the_repository(place):
    python = environment(place, place / "lib" / "course")
    course = repository(place / "lib" / "course")
    hold(looked(python, known=[course, "/opt/venv/lib/course"]), course)


@needs_bwrap
@pytest.mark.proof
def test_a_library_installed_into_the_environment_leaves_the_rest_importable(place):
    python = environment(place / "env")
    [packages] = (place / "env" / "lib").glob("python*/site-packages")
    library(packages)
    hold(looked(python, known=[packages]), packages)


@needs_bwrap
@pytest.mark.proof
def test_a_library_without_an_environment_in_a_folder_of_packages(place):
    """`pip install --target`: Python itself knows nothing of the folder, PYTHONPATH does."""
    target = library(place / "target")
    (target / "transformers_measured-0.1.0.dist-info").mkdir()
    path = os.pathsep.join([str(target), DEPENDENCIES])
    told = looked(os.path.realpath(sys.executable), known=[target], PYTHONPATH=path)
    hold(told, target)
    assert told["prefix"] == sys.base_prefix


@needs_bwrap
@pytest.mark.proof
def test_a_library_that_was_installed_for_one_user(place):
    """`pip install --user`."""
    packages = library(place / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages")
    (packages / "transformers_measured-0.1.0.dist-info").mkdir()
    (packages / "more.pth").write_text(f"{DEPENDENCIES}\n")
    told = looked(os.path.realpath(sys.executable), known=[packages], PYTHONUSERBASE=str(place))
    hold(told, packages)


@needs_bwrap
@pytest.mark.parametrize("below", ["/usr/src"])  # /usr/share/doc: see the copy that nobody knows of
@pytest.mark.proof
def test_a_repository_below_usr_as_images_have_it(place, below):
    """Mounted in a namespace of its own: the machine's /usr stays as it is."""
    if os.geteuid() or not Path(below).is_dir():
        pytest.skip("this needs root, and the folder")
    course = repository(place / "course")
    environment(course / ".venv", Path(below, "course"))
    mounted = 'mount -t tmpfs none "$0" && mkdir "$0/course" && mount --bind "$1" "$0/course" && shift && exec "$@"'
    before = ["unshare", "--mount", "sh", "-c", mounted, below, str(course)]
    there = Path(below, "course")
    hold(looked(there / ".venv" / "bin" / "python", known=[there], before=before), there)


def test_the_source_from_which_pip_installed_is_hidden_too(place, monkeypatch):
    """A course that was installed from /usr/local/course and is not run from there."""
    course = repository(place / "course")
    told = place / "packages" / "transformers_measured-0.1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers-measured\nVersion: 0.1.0\n")
    (told / "direct_url.json").write_text(json.dumps({"url": course.as_uri(), "dir_info": {}}))
    monkeypatch.syspath_prepend(str(told.parent))
    here = Installation.here()
    assert course in here.hidden
    assert [path for path in here.answer_paths if path.startswith(str(course))] != []


@needs_bwrap
@pytest.mark.proof
def test_a_copy_that_nobody_knows_of_lies_where_nothing_is_bound(place):
    """Of last year, in the system's own folders, while the course in use is another."""
    below = "/usr/share/doc"
    if os.geteuid() or not Path(below).is_dir():
        pytest.skip("this needs root, and the folder")
    old, course = repository(place / "old"), repository(place / "course")
    environment(course / ".venv", course)
    mounted = 'mount -t tmpfs none "$0" && mkdir "$0/course" && mount --bind "$1" "$0/course" && shift && exec "$@"'
    before = ["unshare", "--mount", "sh", "-c", mounted, below, str(old)]
    known = [course, f"{below}/course"]
    told = looked(course / ".venv" / "bin" / "python", known=known, before=before)
    hold(told, course)


@needs_bwrap
@pytest.mark.proof
def test_the_systems_own_python_without_an_environment(place):
    """Its modules lie in /usr/lib, beside much that a worker need not see."""
    python = shutil.which("python3", path="/usr/bin")
    asked = [python or "false", "-c", "import sys; print(sys.version_info[:2], sys.prefix)"]
    if subprocess.run(asked, capture_output=True, text=True, check=False).stdout != f"{sys.version_info[:2]} /usr\n":
        pytest.skip("the system has no Python of this version, for which the packages here are built")
    course = repository(place / "course")
    path = os.pathsep.join([str(course), DEPENDENCIES])
    hold(looked(python, known=[course], PYTHONPATH=path), course)


@needs_bwrap
@pytest.mark.proof
def test_archives_and_links_among_the_packages(place):
    """A zip file of the course, from which Python imports, and a link to the repository's library."""
    course = repository(place / "course")
    python = environment(place / "env", course)
    [packages] = (place / "env" / "lib").glob("python*/site-packages")
    shutil.make_archive(str(packages / "old"), "zip", library(place / "old"))
    (packages / "older.pth").write_text(f"{packages / 'old.zip'}\n")
    (packages / "course_lib").symlink_to(course / "course_lib")
    told = looked(python, known=[course, packages, packages / "old.zip"])
    assert (told["found"], told["probe"]) == ([], "holds")


@needs_bwrap
@pytest.mark.parametrize(("bare", "hole"), [("known", "reads"), ("unknown", "imports")])
@pytest.mark.proof  # in every run test_classroom_faults.py has a probe refuse what is no wall
def test_the_probe_refuses_a_wall_behind_which_answers_are_found(place, bare, hole):
    """By their paths; and where none is known, by importing them."""
    python = environment(place / "env")
    [packages] = (place / "env" / "lib").glob("python*/site-packages")
    library(packages)
    told = looked(python, bare=bare)
    assert f"--sandbox bwrap does not hold here: it {hole} the answers (/opt/venv/lib/" in told["probe"]
    assert "Nothing was graded" in told["probe"]
    assert any("planted_answer" in each for each in told["found"])


def test_an_outer_folder_is_hidden_before_what_lies_in_it(tmp_path):
    """The other way round, the empty folder that hides the outer one hides the place of the inner one as well."""
    inner = tmp_path / ".venv" / "packages"
    inner.mkdir(parents=True)
    here = replace(Installation.here(), courses=(inner, tmp_path))
    assert here.hidden == [tmp_path.resolve(), inner.resolve()]
