"""What holds for every run, of tests and of notebooks alike, from wherever it is started: `-p tests.plugin` in
pyproject.toml.

A conftest.py would not reach the notebooks: they stand in other folders.

A run has two parts. What a change can break is tested in every run: minutes. What proves the tests themselves, or
takes long for one fact, is marked `proof` and runs with `--proof`. No test is in both, none in neither. What looks at
JupyterLab in a browser runs by itself, with `--browser` and no more than `-n 2`, each with a JupyterLab of its own:
beside more than that a page waits too long.
"""

import gc
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import jaxtyping
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import crossings, on_device, warm

# nbformat pulls this in for one kind of address that no notebook has, and its grammar takes a second to build, in every
# process. Who looks for it does without where it is missing, and here it is.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

# Where the environment forbids to keep compiled code, each of a run's hundred processes would compile all anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

CROSSINGS = "COURSE_CROSSINGS_OF_ALL"  # the environment variable with the folder of a run's counts


def pytest_addoption(parser):
    parser.getgroup("course").addoption(
        "--proof",
        action="store_true",
        help="run the proofs instead, which every other run leaves out: more seeds of right and wrong answers, mutants "
        "of the references, the whole corpora of hostile and honest submissions, killed and resumed graders, "
        "clusters, containers, large real weights, long trainings",
    )
    parser.getgroup("course").addoption(
        "--browser", action="store_true", help="run the tests in a browser instead, and nothing beside them: add -n 2"
    )
    parser.getgroup("course").addoption(
        "--device",
        default="",
        help="run only what depends on a device, on this one: every notebook, compared with the same outputs, the "
        "tests of the library and those that take a device (tests/on_device.py); cuda, mps, or pretend, which any "
        "machine has (tests/pretend.py)",
    )
    parser.getgroup("course").addoption(
        "--part", metavar="N/OF", help="with --device: every OF-th file, beginning with number N, such as 1/4"
    )


def pytest_configure(config):
    """Neither tests nor notebooks touch the learner's own progress file, and no notebook sees what another has done.
    One thread each: where two processes share two cores, two threads in each wait for one another many times over."""
    # Annotations are checked in every run; the proofs, which train for long, compute as a learner does.
    jaxtyping.config.update("jaxtyping_disable", config.option.proof)
    os.environ["COURSE_PROGRESS"] = ":memory:"
    os.environ["OMP_NUM_THREADS"] = "1"
    gc.set_threshold(100_000)  # ten thousand tests and all modules are looked through each time: a tenth of the run
    if config.option.device:
        os.environ["COURSE_DEVICE"] = config.option.device  # of every kernel, too
        config.option.nbval_cell_timeout = 900  # seconds: the pretend device takes several times as long as the CPU
        if config.option.device == "pretend":
            from tests import pretend  # noqa: F401  # makes it known

            if CROSSINGS not in os.environ:
                config.crossings = tempfile.TemporaryDirectory()  # as long as the run
                os.environ[CROSSINGS] = config.crossings.name
    config.option.loadscopereorder = False  # see `turn`
    config.addinivalue_line("markers", "proof: runs with --proof, and only then")
    warm.install()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """The kernel of a notebook, which is started with its first cell, counts into a file of its own."""
    if CROSSINGS in os.environ and item.path.suffix == ".ipynb":
        os.environ[crossings.FILE] = f"{os.environ[CROSSINGS]}/{item.path.parent.name} {item.path.stem}"


@pytest.hookimpl(wrapper=True)
def pytest_xdist_auto_num_workers():
    """One process more than there are cores: while one waits for a kernel or a sandbox, another computes."""
    return (yield) + 1


def pytest_collection_finish():
    gc.freeze()  # what is here now stays to the end, and need not be looked through again


def pytest_collection_modifyitems(config, items):
    part = "browser" if config.option.browser else "proof" if config.option.proof else ""
    kept = {item for item in items if part_of(item) == part}
    if config.option.device:
        kept = {item for item in kept if on_device.runs(item)}
    if config.option.part:
        number, of = map(int, config.option.part.split("/"))
        files = sorted({item.path for item in kept})
        chosen = files[number % of :: of]
        kept = {item for item in kept if item.path in chosen or on_device.takes_one(item)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted((item for item in items if item in kept), key=lambda item: turn(item.nodeid))


def part_of(item):
    """Which run a test belongs to: "" for every run, "proof", "browser"."""
    if "/browser/" in item.nodeid.partition("::")[0]:
        return "browser"
    return "proof" if item.get_closest_marker("proof") else ""


def turn(nodeid):
    """The long units first, the many small ones at the end: so that no process waits long for another."""
    return 2 if OF_ONE_EXERCISE.search(nodeid) else 0 if LONG.search(nodeid) else 1


# Units of more than half a minute: begun last, one of them would keep a core for itself while the others are idle.
LONG = re.compile(
    r"\.ipynb::|/test_(?:training_processes|term|real_weights|glass|verdicts|grading_seeds|bench|classroom_hostile)\.py::"
)

OF_ONE_EXERCISE = re.compile(
    r"test_(?:grading|grading_cases|classroom_judges|classroom_protocol)\.py::\w+\[(?:[^.]*-)?(\w+\.\w+)"
)
SHARE_WORKERS = tuple(
    f"test_classroom_{name}.py" for name in ("asks", "clones", "faults", "grade", "honest", "secrecy", "worker")
)


def unit(nodeid):
    """What stays in one process: an exercise, the files that share sandboxed workers, or a file."""
    exercise, file = OF_ONE_EXERCISE.search(nodeid), nodeid.partition("::")[0]
    return exercise[1] if exercise else "worker_at" if file.endswith(SHARE_WORKERS) else file


class Together(LoadScopeScheduling):
    """The tests of a file go to one process, in order: what one of them has made, trained or started, the next ones
    find. So do the cells of a notebook, which share a kernel; the tests of one exercise, whose reference and
    misconceptions run once for all of them; and the files that share sandboxed workers."""

    def _split_scope(self, nodeid):
        return unit(nodeid)

    def mark_test_complete(self, node, item_index, duration=0):
        """As it is; but a unit that is done is counted no more: with each test all of them would be gone through."""
        super().mark_test_complete(node, item_index, duration)
        units = self.assigned_work[node]
        for scope in [scope for scope, tests in units.items() if all(tests.values())]:
            del units[scope]


def pytest_xdist_make_scheduler(config, log):
    return Together(config, log)


COUNTED = {  # a test of tests/test_grading.py -> its line in the table at the end
    "test_the_reference_passes_with_full_points": "references: pass with full points",
    "test_right_answers_in_other_styles_pass": "right answers in other styles: pass",
    "test_strangers_answers_pass": "right answers of strangers: pass",
    "test_misconception_fails_and_is_named": "misconceptions: fail and are named",
    "test_wrong_option_gives_its_own_reason_and_no_other": "wrong options: fail with their own reason",
    "test_what_leaves_the_work_to_the_library_is_nobodys_answer": "the library's own function: is told",
    "test_of_two_mistakes_at_once_nothing_is_said_that_is_not_true": "two mistakes at once: nothing untrue",
}
NAMED = {2: "    of these, both are named", 1: "    of these, one is named", 0: "    of these, none is named"}
KINDS = ("code", "experiment", "number", "shapes", "choice", "reflect")


def pytest_terminal_summary(terminalreporter, config):
    """The last lines of a run: how many exercises, wrong answers and right ones there are, and how many of each do as
    they should. "41 of 42" says that one does not. And which part of the tests that was."""
    counts: dict[str, dict[str, list[int]]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            line = COUNTED.get(report.nodeid.partition("::")[2].partition("[")[0])
            kind = dict(report.user_properties).get("kind")
            named = NAMED.get(dict(report.user_properties).get("named", -1))
            for each in filter(None, (line, named)) if line and kind and report.when == "call" else ():
                count = counts.setdefault(each, {}).setdefault(kind, [0, 0])
                count[0] += outcome == "passed"
                count[1] += 1
    if counts:
        terminalreporter.write_line(f"\n{'':<42}" + "".join(f"{kind:>12}" for kind in (*KINDS, "all")))
    for line in (*COUNTED.values(), *NAMED.values()):
        if line in counts:
            by_kind = counts[line]
            by_kind["all"] = [sum(each) for each in zip(*by_kind.values())]
            cells = [by_kind.get(kind, [0, 0]) for kind in (*KINDS, "all")]
            texts = [f"{good:,}" if good == of else f"{good:,} of {of:,}" for good, of in cells]
            terminalreporter.write_line(f"{line:<42}" + "".join(f"{text:>12}" for text in texts))
    for line in crossings.table(Path(os.environ[CROSSINGS])) if CROSSINGS in os.environ else ():
        terminalreporter.write_line(line)
    if config.option.device:
        failed, run = (
            {file for outcome in outcomes for report in terminalreporter.stats.get(outcome, [])
             if (file := report.nodeid.partition("::")[0]).endswith(".ipynb")}
            for outcomes in (("failed", "error"), ("passed", "failed", "error"))
        )  # fmt: skip
        line = f"COURSE_DEVICE={config.option.device}: {len(run - failed)} of {len(run)} notebooks passed"
        terminalreporter.write_line(f"\n{line}, with the outputs that they have on the CPU")
    seconds = Counter()
    for report in (each for every in terminalreporter.stats.values() for each in every if hasattr(each, "duration")):
        seconds[unit(report.nodeid)] += report.duration
    longest = ", ".join(f"{name} {taken:.0f} s" for name, taken in seconds.most_common(12) if taken > 20)
    if longest:
        terminalreporter.write_line(f"\nTook longest: {longest}; all: {seconds.total():.0f} s")
    this, other = ("proofs", "") if config.option.proof else ("tests of every run", " --proof")
    if config.option.browser:
        this, other = "tests in a browser", ", and with --proof"
    terminalreporter.write_line(f"\nThese were the {this}. The others: python -m pytest{other}")
