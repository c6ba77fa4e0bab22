"""Awkward submissions of honest learners: each gets exactly the points that it earned, at every level of the sandbox.

The cases stand in `grading/honest`, one file each, and in `grading/awkward.py`; the first lines of a case argue what it
earns.
"""

from pathlib import Path

import pytest
from grading import awkward, corpus, salvaged

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.marking import mark
from course_lib.classroom.read.submissions import find_handed_in
from course_lib.grading.page.catalogue import EXERCISES

SEED = 20_261_120
CASES = {case.name: case for case in [*corpus.cases(Path(__file__).parent / "grading" / "honest"), *awkward.CASES]}
WITHOUT_A_WALL = [  # what a sandbox may change: files, imports, threads, exits, settings, time
    "a_cell_that_raises_half_way",
    "answers_in_helper_files",
    "classes_with_more_than_asked",
    "exits_in_cells",
    "experiments_and_models",
    "files_of_ones_own",
    "lines_as_windows_ends_them",
    "plots_between_the_answers",
    "settings_left_on",
    "threads_and_processes",
]
IN_EVERY_RUN = {  # one of each kind of habit, the quick ones; the proofs try all
    "a_clean_start": "what most hand in",
    "an_empty_copy_below": "the answer twice: the one that was solved counts",
    "answers_in_helper_files": "a file beside the notebook",
    "answers_in_markdown_with_a_fence": "an answer that no cell runs",
    "choices_in_many_forms": "the other kinds of exercises: a choice",
    "exits_in_cells": "a cell that ends the process",
    "data_beside_the_notebook": "reads what was handed in beside it",
    "files_of_ones_own": "reads and writes its own files",
    "hundreds_of_cells": "a long notebook",
    "magics_of_one_line": "lines that are no Python",
    "nbformat_3": "an old format",
    "numbers_in_many_forms": "numbers",
    "one_syntax_error": "one cell that cannot be read costs that cell alone",
    "prints_inside_of_answers": "output in the middle of an answer",
    "settings_left_on": "torch's settings, changed",
    "a_merge_conflict_between_two_answers": "two versions of a notebook, the better counts",
    "methods_attached_below": "a class that is completed by later cells",
    "annotations_that_nothing_imports": "a cell that runs in another way",
    "parts_that_are_numbered_like_versions": "several notebooks, none of which replaces another",
    "the_solutions_themselves": "the reference answers",
}
STRICT = "bwrap, and nothing salvaged"
SAID = {  # case -> what the teacher reads of it
    "a_cell_that_raises_half_way": "I always get this wrong",
    "a_kernel_of_another_language": "julia",
    "an_endless_loop_elsewhere": "cell 2: stopped after",
    "answers_in_markdown_with_a_fence": "masks_patterns",
    "answers_in_raw_cells": "train_flops",
    "data_that_was_not_handed_in": "measurements.csv",
    "one_syntax_error": "cell 3: SyntaxError",
    "seaborn_is_not_installed": "seaborn",
    "a_newer_pythons_syntax": "cell 1 may need a newer Python: it was written with Python 3.99 and",
}


@pytest.fixture(scope="module")
def grade(tmp_path_factory, worker_at):
    """Grades a case at a level, once: a class of one."""
    done: dict[tuple[str, str], GradedSubmission] = {}

    def graded(case: corpus.Case, level: str) -> GradedSubmission:
        if (case.name, level) not in done:
            folder = tmp_path_factory.mktemp("class")
            case.write(folder)
            (submission,) = find_handed_in([folder], salvage=level != STRICT).submissions
            expected = [EXERCISES[name] for name in case.expects]
            done[case.name, level] = mark(submission, expected, worker_at("bwrap" if level == STRICT else level), SEED)
        return done[case.name, level]

    return graded


def told(marked: GradedSubmission) -> str:
    lines = [f"{result.exercise_id}: {result.status}: {result.feedback}" for result in marked.results]
    return "\n".join([*lines, *marked.troubles])


def assert_as_earned(case: corpus.Case, marked: GradedSubmission) -> None:
    assert [result.exercise_id for result in marked.results] == list(case.expects)
    assert [result.exercise_id for result in marked.results if result.passed] == [
        name for name in case.expects if name in case.earns
    ], f"{case.about}\n{told(marked)}"
    assert marked.earned == sum(EXERCISES[name].points for name in case.earns)


def in_parts(names):
    return [name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.proof) for name in names]


@pytest.mark.parametrize("name", in_parts(CASES))
def test_an_honest_submission_gets_exactly_what_it_earned(name, grade):
    assert_as_earned(CASES[name], grade(CASES[name], "bwrap"))


@pytest.mark.proof
@pytest.mark.parametrize("name", WITHOUT_A_WALL)
def test_the_points_are_the_same_without_a_sandbox(name, grade):
    assert_as_earned(CASES[name], grade(CASES[name], "none"))


def test_what_was_written_comes_with_the_results(grade):
    texts = grade(CASES["reflections"], "bwrap").texts
    assert texts.keys() == {"attention.why_scale", "feed_forward.why_expand"}, "not the one that is too short"
    assert '<b>whatever</b> the width; "quotes", umlauts ä ö ü and 🙂 included.\n' in texts["attention.why_scale"]
    assert texts["feed_forward.why_expand"].count("\n") == 2


@pytest.mark.parametrize("name", in_parts(SAID))
def test_what_could_not_be_read_or_run_is_said(name, grade):
    marked = grade(CASES[name], "bwrap")
    assert any(SAID[name] in trouble for trouble in marked.troubles), told(marked)


@pytest.mark.parametrize("name", in_parts(salvaged.SAID))
def test_what_was_salvaged_is_said(name, grade):
    said = grade(CASES[name], "bwrap").salvaged
    assert any(salvaged.SAID[name] in each for each in said) or said == () == (*salvaged.SAID[name],), said


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(salvaged.STRICTLY))
def test_whoever_wants_no_salvage_gets_none(name, grade):
    marked = grade(CASES[name], STRICT)
    assert marked.earned < grade(CASES[name], "bwrap").earned
    assert marked.salvaged == ()


def test_there_are_many_cases_and_each_argues_what_it_earns():
    assert IN_EVERY_RUN.keys() <= CASES.keys()
    assert len(CASES) >= 60
    assert [name for name, case in CASES.items() if len(case.about.split()) < 10] == []
    assert len({case.about for case in CASES.values()}) == len(CASES)
