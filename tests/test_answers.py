"""A learner's own answers: kept once they passed and run alone, given back in another kernel, or refused."""

import linecache

import pytest
import torch
import torch.nn.functional as F

from course_lib.grading import check, mine
from course_lib.grading.answers import NotAlone, source_alone

SOFTMAX = """
def softmax(x, dim):
    e = (x - x.max(dim=dim, keepdim=True).values).exp()
    return e / e.sum(dim=dim, keepdim=True)
"""
NORM = """
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
"""


pytestmark = pytest.mark.usefixtures("own_record")


@pytest.fixture
def notebook():
    """A notebook's namespace: run(cell) executes a cell there, and the source can be found as in Jupyter."""
    space, count = {"__name__": "__main__"}, 0

    def run(cell):
        nonlocal count
        count += 1
        title = f"<cell {count}>"
        linecache.cache[title] = (len(cell), None, cell.splitlines(keepends=True), title)
        exec(compile(cell, title, "exec"), space)
        return space

    run("import math\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F")
    return run


def test_what_passed_comes_back_in_another_kernel_and_does_the_same(notebook):
    result = check("attention.softmax", notebook(SOFTMAX)["softmax"])
    assert result.passed
    assert 'mine("attention.softmax")' in result.feedback
    own, x = mine("attention.softmax"), torch.randn(3, 5)
    assert own.__globals__["__name__"] == "mine"  # made from what was kept, not the object that was checked
    torch.testing.assert_close(own(x, -1), F.softmax(x, -1))


def test_a_class_comes_back(notebook):
    assert check("normalization.rms_norm", notebook(NORM)["RMSNorm"]).passed
    x = torch.randn(2, 4)
    torch.testing.assert_close(mine("normalization.rms_norm")(4)(x), F.rms_norm(x, (4,), eps=1e-6))


def test_helpers_constants_and_imports_of_other_cells_come_along(notebook):
    notebook("import math as m\nfrom torch import exp as power\nAXIS = -1\n")
    notebook("def shifted(x):\n    return x - x.max(dim=AXIS, keepdim=True).values\n")
    space = notebook(
        "def softmax(x):\n    e = power(shifted(x)) * m.cos(0)\n    return e / e.sum(AXIS, keepdim=True)\n"
    )
    source = source_alone(space["softmax"])
    alone = {"torch": torch}
    exec(source, alone)
    x = torch.randn(2, 3)
    torch.testing.assert_close(alone["softmax"](x), x.softmax(-1))
    assert source.index("AXIS = -1") < source.index("def shifted") < source.index("def softmax")


def test_a_class_stands_after_the_one_that_it_is_made_from(notebook):
    space = notebook("class Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n        helper()\n")
    space = notebook(
        "def helper():\n    return Base\n\nclass Part(Base):\n    def forward(self, x):\n        return helper()\n"
    )
    source = source_alone(space["Part"])
    assert source.index("class Base") < source.index("class Part")
    exec(source, {"nn": torch.nn})


def test_a_decorated_function_is_kept_with_its_decorator(notebook):
    space = notebook("@torch.no_grad()\ndef double(x):\n    return 2 * x\n")
    source = source_alone(space["double"])
    assert source.startswith("@torch.no_grad()")
    alone = {"torch": torch}
    exec(source, alone)
    assert not alone["double"](torch.ones(1, requires_grad=True)).requires_grad


def test_functions_that_call_each_other_are_kept_once(notebook):
    space = notebook("def even(n):\n    return n == 0 or odd(n - 1)\n\ndef odd(n):\n    return n > 0 and even(n - 1)\n")
    source = source_alone(space["even"])
    assert source.count("def even") == source.count("def odd") == 1


@pytest.mark.parametrize(
    ("cell", "lacks"),
    [
        ("scale = torch.ones(1)\ndef f(x):\n    return x * scale", "`scale`, a Tensor of your notebook"),
        ("def f(x):\n    return missing(x)", "`missing`, which is not defined anywhere"),
        ("f = lambda x: x", "Write it with `def`"),
        ("def outer():\n    def f(x):\n        return x\n    return f\nf = outer()", "Write it with `def`"),
        ("f = print", "neither a function nor a class"),
        ("class f:\n    x = 1", "a class needs at least one method"),
    ],
    ids=["a variable", "a name", "a lambda", "a nested function", "a builtin", "an empty class"],
)
def test_what_does_not_run_alone_is_refused_with_what_it_lacks(notebook, cell, lacks):
    with pytest.raises(NotAlone, match=lacks):
        source_alone(notebook(cell)["f"])


def test_an_answer_that_leans_on_its_notebook_passes_but_is_not_kept(notebook):
    notebook("axis_holder = torch.tensor(0)")
    result = check("attention.softmax", notebook(SOFTMAX.replace("x - ", "x + axis_holder - "))["softmax"])
    assert result.passed
    assert "not kept: it uses `axis_holder`, a Tensor" in result.feedback
    with pytest.raises(ValueError, match=r"You have no answer to 'attention.softmax' that passed"):
        mine("attention.softmax")


def test_a_wrong_answer_leaves_the_kept_one(notebook):
    check("attention.softmax", notebook(SOFTMAX)["softmax"])
    wrong = notebook("def softmax(x, dim):\n    return x")["softmax"]
    assert not check("attention.softmax", wrong).passed
    assert mine("attention.softmax")(torch.zeros(4), 0).tolist() == [0.25] * 4


def test_the_last_answer_that_passed_counts(notebook):
    check("attention.softmax", notebook(SOFTMAX)["softmax"])
    check("attention.softmax", notebook(SOFTMAX.replace("e = ", "y = 0\n    e = "))["softmax"])
    assert "y" in mine("attention.softmax").__code__.co_varnames


def test_one_that_is_no_exercise_or_not_answered_is_refused():
    with pytest.raises(KeyError, match=r"attention.softmax"):
        mine("attention.softmaxx")
    with pytest.raises(ValueError, match=r"Until then, leave this part out, and the library's own part is used"):
        mine("heads.split")
