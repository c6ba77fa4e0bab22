"""Control groups, on made-up trees: plain folders take what is written to them and say what a test has put there."""

import os
import subprocess
from pathlib import Path

import pytest

from course_lib.classroom.sandbox import resources
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.resources import Group, Meter, delegated_group, make_group

QUOTAS = Quotas(tree=1 << 30, processes=40)


def hierarchy(root: Path, own: str = "/scope", controllers: str = "cpuset cpu io memory pids", on: str = "") -> Path:
    """A tree as the kernel shows it, with the group of this process in it; returns the file that names the group."""
    for folder in {root, root / own.lstrip("/")}:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.subtree_control").write_text(on)
        (folder / "cgroup.procs").write_text("")
    membership = root.parent / "membership"
    membership.write_text(f"4:memory:/elsewhere\n0::{own}\n")
    return membership


@pytest.fixture
def as_somebody(monkeypatch):
    """Not root: what may be written was given away."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_a_group_that_was_delegated_is_found(tmp_path, as_somebody):
    membership = hierarchy(tmp_path / "cgroup")
    assert delegated_group(tmp_path / "cgroup", membership) == tmp_path / "cgroup" / "scope"


def test_a_grader_that_has_moved_to_its_leaf_finds_the_group_around_it(tmp_path, as_somebody):
    membership = hierarchy(tmp_path / "cgroup", f"/scope/{resources.LEAF}")
    hierarchy(tmp_path / "cgroup", "/scope")
    membership.write_text(f"0::/scope/{resources.LEAF}\n")
    assert delegated_group(tmp_path / "cgroup", membership) == tmp_path / "cgroup" / "scope"


@pytest.mark.parametrize(
    "missing", ["memory", "pids", "version 2", "the file", "the tree", "leave to write", "the place around it"]
)
def test_without_what_it_takes_there_is_none_and_the_watcher_counts(tmp_path, as_somebody, monkeypatch, missing):
    root = tmp_path / "cgroup"
    membership = hierarchy(root, controllers=" ".join({"cpu", "memory", "pids"} - {missing}))
    if missing == "version 2":
        membership.write_text("4:memory:/elsewhere\n1:name=systemd:/\n")
    elif missing == "the file":
        membership.unlink()
    elif missing == "the tree":
        root = tmp_path / "nothing"
    elif missing == "leave to write":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    elif missing == "the place around it":
        membership.write_text("0::/../../scope\n")
    assert delegated_group(root, membership) is None


def test_root_leaves_to_systemd_what_systemd_has_not_given_away(tmp_path, monkeypatch):
    membership = hierarchy(tmp_path / "cgroup")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert delegated_group(tmp_path / "cgroup", membership) is None
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")
    assert delegated_group(tmp_path / "cgroup", membership) == tmp_path / "cgroup" / "scope"


def test_root_in_a_container_that_may_write_its_tree_uses_it(tmp_path, monkeypatch):
    membership = hierarchy(tmp_path / "cgroup", "/")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert delegated_group(tmp_path / "cgroup", membership) == tmp_path / "cgroup"


def test_a_slots_group_has_the_submissions_limits_and_shares_the_cores(tmp_path):
    hierarchy(tmp_path / "cgroup")
    scope = tmp_path / "cgroup" / "scope"
    group = make_group(QUOTAS, 3, scope)
    assert group.folder == scope / f"course-slot-{os.getpid()}-3"
    assert (scope / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    limits = {name: (group.folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert limits == {"memory.max": str(1 << 30), "memory.swap.max": "0", "pids.max": "56"}


def test_what_is_on_is_not_asked_for_again(tmp_path):
    hierarchy(tmp_path / "cgroup", on="cpu memory pids")
    make_group(QUOTAS, 0, tmp_path / "cgroup" / "scope")
    assert (tmp_path / "cgroup" / "scope" / "cgroup.subtree_control").read_text() == "cpu memory pids"


def test_a_group_with_processes_of_its_own_sends_them_to_a_leaf_and_takes_them_back(tmp_path, monkeypatch):
    """The kernel answers "busy" as long as they are there."""
    hierarchy(tmp_path / "cgroup")
    scope = tmp_path / "cgroup" / "scope"
    (scope / "cgroup.procs").write_text("123\n")
    wrote, real = [], Path.write_text

    def write(path, text, *more):
        wrote.append((path.relative_to(scope).as_posix(), text))
        if path.name == "cgroup.subtree_control" and not (scope / resources.LEAF).exists():
            raise OSError(16, "Device or resource busy")
        return real(path, text, *more)

    monkeypatch.setattr(Path, "write_text", write)
    make_group(QUOTAS, 0, scope)
    on = ("cgroup.subtree_control", "+memory +pids +cpu")
    assert wrote[:3] == [on, (f"{resources.LEAF}/cgroup.procs", "123"), on]
    wrote.clear()
    real(scope / "cgroup.subtree_control", "memory pids cpu")
    monkeypatch.setattr(Path, "rmdir", lambda path: None)
    for each in scope.glob("course-slot-*"):
        for file in each.iterdir():
            file.unlink()
        os.rmdir(each)
    resources._leave(scope)
    assert wrote == [("cgroup.subtree_control", "-memory -pids -cpu"), ("cgroup.procs", "123")]


def test_a_limit_that_the_kernel_refuses_leaves_no_group_behind(tmp_path, monkeypatch):
    hierarchy(tmp_path / "cgroup")
    monkeypatch.setattr(Path, "write_text", lambda path, *_: (_ for _ in ()).throw(OSError(13, "Permission denied")))
    with pytest.raises(OSError, match="Permission denied"):
        make_group(QUOTAS, 0, tmp_path / "cgroup" / "scope")
    assert list((tmp_path / "cgroup" / "scope").glob("course-slot-*")) == []


def test_what_the_kernel_counts_is_what_is_looked_at(tmp_path):
    group = Group(tmp_path)
    (tmp_path / "memory.current").write_text("123456\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n")
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    look = Meter(os.getpid(), 1 << 30, True, group).look()
    assert (look.memory, look.processes, look.killed) == (123456, 1, 2)


def test_a_group_that_is_gone_holds_nothing(tmp_path):
    group = Group(tmp_path / "gone")
    assert (group.memory(), group.killed(), group.processes()) == (0, 0, [])
    group.close()


def test_a_command_enters_its_group_before_it_begins(tmp_path):
    command = Group(tmp_path).joined(["sh", "-c", 'echo "$$ $1"', "sh", "with 'quotes' and $signs"])
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    number, _, rest = run.stdout.strip().partition(" ")
    assert (tmp_path / "cgroup.procs").read_text().strip() == number
    assert rest == "with 'quotes' and $signs"
