"""The level docker, through a stand-in: a program named docker that refuses what a container must not be allowed.

It runs the container's command as a plain process, without any wall: what docker itself promises is docker's to test.
"""

import os
import sys
import textwrap

import pytest

from course_lib.__main__ import main
from course_lib.classroom.mark.marking import Job, do_job
from course_lib.classroom.read.submissions import find_submissions
from course_lib.classroom.sandbox.remote import Worker
from course_lib.classroom.sandbox.stage import Stage, container_command
from course_lib.grading.page.catalogue import EXERCISES
from tests.grading.corpus import notebook
from tests.small_class import EXERCISE, LIMITS, RIGHT, SEED, write_class

STAND_IN = '''\
#!{python} -IS
"""`docker run` and `docker kill`: state in the folder beside it. STAND_IN_FAILS: the run from which on it fails."""
import os, signal, subprocess, sys, tempfile
from pathlib import Path

state = Path(__file__).parent / "state"


def run(words):
    flags, values = set(), {{}}
    while words[0].startswith("-"):
        word = words.pop(0)
        if word in ("--rm", "--interactive", "--read-only"):
            flags.add(word)
        else:
            values.setdefault(word, []).append(words.pop(0))
    image, *arguments = words
    one = {{name: value[0] for name, value in values.items() if len(value) == 1}}
    limits = dict(limit.split("=") for limit in values["--ulimit"])
    source, inside, mode = one["--volume"].split(":")
    tmpfs, _, options = one["--tmpfs"].partition(":")
    needed = {{
        "an image": image == "course-image",
        "flags": flags == {{"--rm", "--interactive", "--read-only"}},
        "no network": one["--network"] == "none",
        "no capabilities": one["--cap-drop"] == "ALL",
        "no new privileges": one["--security-opt"] == "no-new-privileges",
        "nobody": int(one["--user"].split(":")[0]) > 0,
        "processes": 0 < int(one["--pids-limit"]) <= 100,
        "memory, without swap": 0 < int(one["--memory"]) == int(one["--memory-swap"]),
        "one core": one["--cpus"] == "1",
        "limits": limits["core"] == "0" and int(limits["nofile"]) <= 1024 and int(limits["fsize"]) > 0,
        "a small /tmp": tmpfs == "/tmp" and {{"nosuid", "nodev"}} <= set(options.split(",")) and "size=" in options,
        "a small /dev/shm": 0 < int(one["--shm-size"]) <= 1 << 30,
        "the library, to be read": (inside, mode) == ("/opt/course", "ro") and Path(source, "course_lib").is_dir(),
        "no answers in it": not [*Path(source).rglob("exercises"), *Path(source).rglob("sealed*")],
        "nothing else": set(values) <= {{
            "--name", "--network", "--cap-drop", "--security-opt", "--user", "--cpus", "--memory", "--memory-swap",
            "--pids-limit", "--ulimit", "--tmpfs", "--shm-size", "--env", "--volume", "--workdir", "--entrypoint",
        }},
        "python": one["--entrypoint"] == "python3" and arguments[:2] == ["-s", "-P"],
    }}
    if wrong := [what for what, well in needed.items() if not well]:
        (state / "refused").write_text(", ".join(wrong))
        return 125
    environment = dict(pair.split("=", 1) for pair in values["--env"])
    arguments = [word.replace(inside, source) for word in arguments]
    with tempfile.TemporaryDirectory() as folder:
        environment |= {{"PATH": os.defpath, "HOME": folder, "TMPDIR": folder}}
        process = subprocess.Popen([{python!r}, *arguments], env=environment, cwd=folder)
        name = state / one["--name"]
        name.write_text(str(process.pid))
        code = process.wait()
        name.unlink()
        return code if code >= 0 else 128 - code


def kill(words):
    (state / "killed").open("a").write(words[0] + "\\n")
    try:
        os.kill(int((state / words[0]).read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        sys.exit("Error response from daemon: No such container: " + words[0])


if sys.argv[1] == "run":
    with (state / "runs").open("a") as file:
        file.write("x")
    if os.path.getsize(state / "runs") >= int(os.environ.get("STAND_IN_FAILS", "1000")):
        sys.exit(sys.stderr.write("docker: Cannot connect to the Docker daemon. Is the daemon running?\\n") and 125)
    sys.exit(run(sys.argv[2:]))
kill(sys.argv[2:])
'''


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """The stand-in, first in PATH; the folder of its state."""
    place = tmp_path / "bin"
    (place / "state").mkdir(parents=True)
    (place / "docker").write_text(STAND_IN.format(python=sys.executable))
    (place / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COURSE_IMAGE", "course-image")
    yield place / "state"
    assert not (place / "state" / "refused").exists(), (place / "state" / "refused").read_text()


def handed_in(folder, *cells):
    (folder / "one").mkdir(parents=True)
    text = notebook([("code", textwrap.dedent(cell)) for cell in cells])
    (folder / "one" / "answers.ipynb").write_text(text, encoding="utf-8")
    [submission] = find_submissions([folder / "one"])
    return submission


def graded(submission):
    job = Job("key", submission, (EXERCISE,), SEED, "docker", LIMITS)
    with Worker("docker", LIMITS) as worker:
        return do_job(job, worker)


def running(state):
    return [path for path in state.iterdir() if path.name not in ("runs", "killed", "refused")]


@pytest.mark.proof
def test_an_answer_is_graded_in_a_container_and_a_cell_that_ends_it_is_named(docker, tmp_path):
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    marked = graded(handed_in(tmp_path / "class", "x = 1", crash, RIGHT)).marked
    assert marked.earned == marked.points == EXERCISES[EXERCISE].points
    [trouble] = marked.troubles
    assert "cell 2: It ended the process in which it ran (signal 9)" in trouble
    assert (docker / "runs").read_text() == "xx", "one container, and one in place of that which was ended"
    assert running(docker) == []


@pytest.mark.proof
def test_a_container_whose_answer_does_not_end_is_killed_by_its_name(docker, tmp_path):
    """The answer catches what should stop it; other processes of the container go with it, in a real one."""
    endless = """
        def softmax(x, dim):
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
    """
    done = graded(handed_in(tmp_path / "class", endless))
    assert done.marked.results[0].status == "failed"
    [name] = set((docker / "killed").read_text().split())
    assert name.startswith("course-grading-")
    assert running(docker) == []


@pytest.mark.proof
def test_a_docker_that_fails_in_the_middle_is_a_fault_and_no_zero(docker, tmp_path, monkeypatch):
    monkeypatch.setenv("STAND_IN_FAILS", "1")
    done = graded(handed_in(tmp_path / "class", RIGHT))
    assert done.marked is None
    assert "docker" in done.fault


def refused(capsys, folder, *more) -> str:
    arguments = ["grade", str(write_class(folder / "class", "ada", "bert")), "--sandbox", "docker", "--jobs", "1"]
    assert main([*arguments, "--exercises", EXERCISE, "--out", str(folder / "out"), *more]) == 2
    assert not (folder / "out" / "marks.jsonl").read_text()
    said = capsys.readouterr()
    assert "share" not in said.out, "no table"
    return said.err


def test_a_docker_that_does_not_start_is_named_and_nothing_is_graded(docker, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STAND_IN_FAILS", "1")
    said = refused(capsys, tmp_path)
    assert "--sandbox docker" in said
    assert "Cannot connect to the Docker daemon" in said


def test_without_docker_the_remedy_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(capsys, tmp_path)
    assert "docker is not installed" in said
    assert "--sandbox bwrap" in said


@pytest.mark.proof
def test_a_wall_with_holes_is_refused_and_the_holes_are_named(docker, tmp_path, capsys):
    """The stand-in is such a wall."""
    said = refused(capsys, tmp_path)
    assert "--sandbox docker does not hold here" in said
    assert "it reads files outside" in said
    assert "it reaches the network" in said
    assert "Nothing was graded" in said


def test_the_command_that_the_guide_gives_has_an_image(monkeypatch, tmp_path):
    """Without COURSE_IMAGE it is the name that solutions/README.md builds."""
    monkeypatch.delenv("COURSE_IMAGE", raising=False)
    (tmp_path / "docker").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with Stage() as stage:
        command = container_command(stage, "a-name", LIMITS)
    image = command[command.index("python3") + 1]
    assert image == "transformers-measured"
