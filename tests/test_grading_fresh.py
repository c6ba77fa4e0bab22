"""What `check` says of names that a fresh run of the notebook will lack: never a false alarm."""

import os
import time

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.grading import fresh_run as fresh

ANSWER = "def softmax(x, dim):\n    return scale(x)"
HELPER = "def scale(x):\n    return 2 * x"
CHECK = 'check("attention.softmax", softmax)'


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Run cells in a shell, then say what the check in the last one finds, with other cells in the saved file."""
    shell = InteractiveShell()
    shell.user_module.__name__ = shell.user_ns["__name__"] = "__main__"
    path = tmp_path / "02_attention.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    monkeypatch.setattr(fresh, "_shell", lambda: shell)
    monkeypatch.setattr(fresh, "_ran", {})
    monkeypatch.setattr(fresh, "_began", 0.0)
    found = []
    shell.user_ns["check"] = lambda id, answer: found.append(fresh.will_lack(answer, "softmax"))

    def say(*ran, saved=None, after=100.0):
        cells = [new_code_cell(cell) for cell in (ran if saved is None else saved)]
        nbformat.write(new_notebook(cells=[new_markdown_cell("scale = 1"), *cells]), path)
        os.utime(path, (time.time() + after,) * 2)
        for number, cell in enumerate(ran, shell.execution_count):
            fresh._ran[number] = time.time()
            result = shell.run_cell(cell, store_history=True)
            assert result.success or cell == ran[-2], result
        return found[-1]

    yield say
    shell.history_manager.end_session()


def test_a_helper_whose_cell_was_deleted_is_told(notebook):
    said = notebook(HELPER, ANSWER, CHECK, saved=[ANSWER, CHECK])
    assert "A fresh run of your notebook will lack `scale`: no cell of the saved file" in said


def test_in_a_kernel_the_line_stands_below_the_verdict_and_only_there(tmp_path, monkeypatch):
    path = tmp_path / "02_attention.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    begin = "from course_lib.grading import check"
    helper = "def shifted(x, dim):\n    return (x - x.amax(dim, keepdim=True)).exp()"
    answer = "def softmax(x, dim):\n    e = shifted(x, dim)\n    return e / e.sum(dim, keepdim=True)"
    for saved, told in (([begin, answer, CHECK], True), ([begin, helper, answer, CHECK], False)):
        nbformat.write(new_notebook(cells=list(map(new_code_cell, saved))), path)
        os.utime(path, (time.time() + 1000,) * 2)
        ran = new_notebook(cells=list(map(new_code_cell, [begin, helper, answer, CHECK])))
        NotebookClient(ran).execute()
        said = str(ran.cells[-1].outputs)
        assert "✓ Passed" in said
        assert ("A fresh run of your notebook will lack `shifted`" in " ".join(said.split())) == told


@pytest.mark.parametrize("lost", ["FACTOR = 2", "import math as FACTOR", "class FACTOR:\n    pass"])
def test_a_constant_an_import_and_a_class_are_told_and_what_helpers_use_in_turn(notebook, lost):
    helper = "def scale(x):\n    return x, FACTOR"
    assert "lack `FACTOR`:" in notebook(lost, helper, ANSWER, CHECK, saved=[helper, ANSWER, CHECK])


def test_a_name_of_which_a_changed_cell_sets_no_more_is_told(notebook):
    renamed = HELPER.replace("scale", "scaled")
    assert "`scale`" in notebook(HELPER, renamed, ANSWER, CHECK, saved=[renamed, ANSWER, CHECK])


def test_a_decorator_a_base_and_what_a_lambda_reads_are_told(notebook):
    decorator = "def twice(f):\n    return lambda *a: f(*f(*a))"
    decorated = "@twice\ndef softmax(x, dim=0):\n    return x, dim"
    assert "lack `twice`:" in notebook(decorator, decorated, CHECK, saved=[decorated, CHECK])
    derived = "class softmax(Base):\n    pass"
    assert "lack `Base`:" in notebook("class Base:\n    pass", derived, CHECK, saved=[derived, CHECK])
    short = "softmax = lambda x, dim: scale(x)"
    assert "lack `scale`:" in notebook(HELPER, short, CHECK, saved=[short, CHECK])


def test_an_answer_whose_own_cell_is_gone_is_told(notebook):
    assert "lack `softmax`:" in notebook("def softmax(x, dim):\n    return x", CHECK, saved=[CHECK])


@pytest.mark.parametrize(
    "cells",
    [
        [HELPER, ANSWER],
        ["scale = lambda x: 2 * x", ANSWER],
        ["from math import sqrt as scale", ANSWER],
        ["class scale:\n    def __init__(self, x):\n        pass", ANSWER],
        ["for scale in (abs, len):\n    pass", ANSWER],
        ["if (scale := abs):\n    pass", ANSWER],
        ["def set_it():\n    global scale\n    scale = abs\nset_it()", ANSWER],
        ["globals()['scale'] = abs", ANSWER],
        ["exec('sc' + 'ale = abs')", ANSWER],
        ["from math import *", ANSWER.replace("scale", "sqrt")],
        ["%time scale = abs", ANSWER],
        ["%%time\nscale = abs", ANSWER],
        ["get_ipython().run_cell('scale = abs')", ANSWER],
        ["import functools", "@functools.cache\ndef scale(x):\n    return x", ANSWER],
        ["def made(k):\n    def inner(x):\n        return k * x\n    return inner\nscale = made(2)", ANSWER],
        ["import functools\nscale = functools.partial(pow, exp=2)", ANSWER],
        ["def softmax(x, dim):\n    scale = 2\n    return [scale * y for y in x]"],
        ["def softmax(x, dim):\n    import math\n    return math.exp(x)"],
        ["class softmax:\n    gain = 2\n    def forward(self, x):\n        return self.gain * x"],
        ["def softmax(x, dim):\n    return display(x), _, Out"],
    ],
    ids=lambda cells: cells[0][:40].replace("\n", " "),
)
def test_what_the_file_sets_in_any_way_is_no_alarm(notebook, cells):
    assert notebook(*cells, CHECK) == ""


def test_nothing_is_said_of_a_file_that_may_not_be_the_notebook_as_it_stands(notebook, monkeypatch):
    lost = [HELPER, ANSWER, CHECK]
    assert notebook(*lost, saved=[ANSWER, CHECK], after=-100) == "", "saved before the helper's cell ran"
    assert notebook(*lost, saved=[ANSWER]) == "", "the cell that runs now is not in the file"
    assert notebook(*lost, saved=[ANSWER, "%run helpers.py", CHECK]) == "", "a script may set it"
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert notebook(*lost, saved=[ANSWER, CHECK]) == "", "no file is known"


def test_visual_studio_code_names_its_file_in_another_way(notebook, monkeypatch):
    path = os.environ["JPY_SESSION_NAME"]
    monkeypatch.delenv("JPY_SESSION_NAME")
    named = f"__vsc_ipynb_file__ = {path!r}"
    assert "`scale`" in notebook(named, HELPER, ANSWER, CHECK, saved=[ANSWER, CHECK])
