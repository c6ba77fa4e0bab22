"""What a notebook's kernel says by itself: below a NameError, and where the learner was the last time."""

import textwrap

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.cli.start import STARTUP
from course_lib.live.beginning import where_you_were
from course_lib.live.names import WHERE

FIRST = "from course_lib.live import guess"
READ = [new_markdown_cell("## 2.4 Why √d_k?", id="why"), new_code_cell("1", execution_count=3)]


def outputs(*sources: str) -> list[nbformat.NotebookNode]:
    """What the last of these cells shows when they run in one kernel."""
    return all_outputs(*sources)[-1]


def all_outputs(*sources: str) -> list[list[nbformat.NotebookNode]]:
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    NotebookClient(notebook, allow_errors=True).execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_name_that_is_not_made_yet_is_told_with_the_cells_to_run_below_pythons_own_words():
    (alone,) = outputs("import torch", "scores.sum()")
    error, said = outputs(FIRST, "scores.sum()")
    assert error == alone, "the traceback is as without the sentence"
    assert said.text == WHERE.format("scores") + "\n"


def test_a_control_waits_for_the_cell_that_runs_whatever_thread_it_is_moved_in():
    move = """\
    import threading
    moved = []
    get_ipython().kernel.shell_handlers["comm_msg"] = moved.append  # in place of ipykernel's own"""
    run = """\
    control = threading.Thread(target=get_ipython().kernel.shell_handlers["comm_msg"], args=["a message"])
    control.start()
    control.join(timeout=0.3)
    print(moved)"""
    its_turn = """\
    from course_lib.live.turns import TURN
    TURN.release()  # as at the end of the cell
    control.join()
    TURN.acquire()
    print(moved)"""
    *_, meanwhile, afterwards = all_outputs(*map(textwrap.dedent, (move, FIRST, "", run, its_turn)))
    assert meanwhile[0].text == "[]\n"
    assert afterwards[0].text == "['a message']\n"


def test_a_wrong_id_is_answered_in_a_sentence_without_a_traceback():
    calls = ("mine('attention.softmaxx')", "guess('attention.sharpnes')")
    for cell in all_outputs("from course_lib.grading import mine\nfrom course_lib.live import guess", *calls)[1:]:
        assert [len(output.traceback) for output in cell] == [1]
        assert cell[0].traceback[0].startswith("There is no ")


@pytest.mark.parametrize(
    "slip",
    ["1 / 0", "import there_is_no_such_module", "def f():\n    x += 1\n\n\nf()", "raise NameError('made by hand')"],
)
def test_any_other_error_stays_alone(slip):
    (error,) = outputs(FIRST, slip)
    assert error.output_type == "error"


def test_where_start_opened_jupyterlab_a_name_is_explained_before_any_cell_has_run(monkeypatch):
    monkeypatch.setenv("PYTHONSTARTUP", str(STARTUP))
    (_, said), (names,) = all_outputs("scores", "dir()")
    assert said.text == WHERE.format("scores") + "\n"
    assert "begin" not in names.data["text/plain"], "nothing is left in the learner's namespace"


def test_where_start_opened_jupyterlab_the_first_cell_that_runs_says_once_how_far_its_notebook_was_read(
    monkeypatch, tmp_path
):
    path = tmp_path / "02_attention.ipynb"
    nbformat.write(new_notebook(cells=READ), path)
    monkeypatch.setenv("PYTHONSTARTUP", str(STARTUP))
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    failed, ran, later = all_outputs("1 / 0", "print('Ready.')", "print('on')")
    assert [output.output_type for output in failed] == ["error"]
    assert ran[0].text == "Ready.\n"
    assert "“[2.4 Why √d_k?](02_attention.ipynb#cell-id=why)”. " in ran[1].data["text/markdown"]
    assert len(later) == 1
    for content in (new_notebook(cells=READ[:1]), None):  # of which no cell has run; of which there is no file
        nbformat.write(content, path) if content else path.unlink()
        assert len(outputs("print('Ready.')")) == 1


def test_a_notebook_of_any_name_can_be_linked_to():
    assert "](my%202nd%20try.ipynb#cell-id=why)" in where_you_were("my 2nd try.ipynb", "2.4 Why √d_k?", "why")


def test_what_somebody_has_set_up_for_errors_stays():
    own = "get_ipython().set_custom_exc((NameError,), lambda *given, tb_offset=None: print('mine'))"
    (said,) = outputs(own, FIRST, "scores")
    assert said.text == "mine\n"
