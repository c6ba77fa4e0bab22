"""What holds for every run, of tests and of notebooks alike, from wherever it is started: `-p tests.plugin` in
pyproject.toml.

A conftest.py would not reach the notebooks: they stand in other folders.
"""

import os
import tempfile

from xdist.scheduler import LoadScopeScheduling


def pytest_configure(config):
    """Neither tests nor notebooks touch the learner's own progress file."""
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the variable
        folder = tempfile.TemporaryDirectory(prefix="course-progress-")
        config.add_cleanup(folder.cleanup)
        os.environ["COURSE_PROGRESS"] = os.path.join(folder.name, "progress.json")


class ByNotebook(LoadScopeScheduling):
    """The cells of a notebook share a kernel: they go to one process, in order; so do the tests that share a large
    model. Other tests go where there is room."""

    def _split_scope(self, nodeid):
        together = ".ipynb::" in nodeid or "test_real_weights.py::" in nodeid
        return nodeid.split("::")[0] if together else nodeid


def pytest_xdist_make_scheduler(config, log):
    return ByNotebook(config, log)


def pytest_terminal_summary(terminalreporter):
    """The last line of a run: how many misconceptions there are, and whether each fails and is told from the others."""
    mark = "::test_misconception_fails_and_is_named["
    named, missed = (
        [r.nodeid for r in terminalreporter.stats.get(o, []) if mark in r.nodeid] for o in ("passed", "failed")
    )
    if named or missed:
        exercises = {nodeid.partition("[")[2].partition(":")[0] for nodeid in named + missed}
        terminalreporter.write_line(
            f"{len(named + missed)} misconceptions in {len(exercises)} exercises: "
            f"{len(named)} fail and are named, {len(missed)} slip through"
        )
