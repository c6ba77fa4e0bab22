"""The sentence below a NameError: Python's own traceback stays, and nothing else gets the sentence."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.live.names import WHERE

FIRST = "from course_lib.live import guess"


def outputs(*sources: str) -> list[nbformat.NotebookNode]:
    """What the last of these cells shows when they run in one kernel."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    NotebookClient(notebook, allow_errors=True).execute()
    return notebook.cells[-1].outputs


def test_a_name_that_is_not_made_yet_is_told_with_the_cells_to_run_below_pythons_own_words():
    (alone,) = outputs("import torch", "scores.sum()")
    error, said = outputs(FIRST, "scores.sum()")
    assert error == alone, "the traceback is as without the sentence"
    assert said.text == WHERE.format("scores") + "\n"


@pytest.mark.parametrize(
    "slip",
    ["1 / 0", "import there_is_no_such_module", "def f():\n    x += 1\n\n\nf()", "raise NameError('made by hand')"],
)
def test_any_other_error_stays_alone(slip):
    (error,) = outputs(FIRST, slip)
    assert error.output_type == "error"


def test_what_somebody_has_set_up_for_errors_stays():
    own = "get_ipython().set_custom_exc((NameError,), lambda *given, tb_offset=None: print('mine'))"
    (said,) = outputs(own, FIRST, "scores")
    assert said.text == "mine\n"
