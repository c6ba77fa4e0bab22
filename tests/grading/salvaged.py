"""Honest hand-ins that are not as they should be, and whose meaning is plain all the same: read with a note.

They join `awkward.CASES`. `SAID` holds what the note of each says. With `--salvage no` they earn `STRICTLY` less.
"""

from grading.awkward import BOTH, CASES, FLOPS, MASK, MEMORY, MERGE, PATTERNS, WRONG_MASK, case, code
from grading.corpus import notebook

FIRST = len(CASES)
SAID: dict[str, str] = {}
BROKEN = "<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> origin/main\n"
RMS = """class RMSNorm(nn.Module):
    pass"""
INIT = """def __init__(self, d_model, eps=1e-6):
    nn.Module.__init__(self)
    self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps"""
FORWARD = """def forward(self, x):
    return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.weight"""


def saved(note: str, *expects: str, earns: tuple[str, ...] | None = None):
    """A case that is salvaged, and what is said of it."""

    def keep(build):
        SAID[build.__name__] = note
        return case(*expects, earns=earns)(build)

    return keep


def conflict(text: str, line: str, ours: str, theirs: str) -> str:
    """A notebook's text in which one line became two."""
    found = next(each for each in text.splitlines(keepends=True) if line in each)
    return text.replace(found, BROKEN.format(ours=ours, theirs=theirs), 1)


@saved("merge that was not finished", *BOTH)
def a_merge_conflict_around_a_field():
    """Git's markers around the count of a cell, which both had run: both sides hold the same answers."""
    return conflict(
        notebook(code(MASK, PATTERNS)), '"execution_count"', '   "execution_count": 3,\n', '   "execution_count": 9,\n'
    )


@saved("merge that was not finished", *BOTH)
def a_merge_conflict_in_the_metadata():
    """Git's markers around the kernel, at the end of the file."""
    text = notebook(code(MASK, PATTERNS))
    return conflict(text, '"display_name"', '   "display_name": "ada",\n', '   "display_name": "Python 3",\n')


@saved("the best counts", "masks.causal", "attention.memory")
def a_merge_conflict_between_two_answers():
    """Both of a pair changed one line of an answer; one of them was wrong. The better side counts, whole."""
    text = notebook(code(MASK, MEMORY))
    right = next(line for line in text.splitlines(keepends=True) if "S - T" in line)
    return conflict(text, "S - T", right.replace("S - T", "T - S + 1"), right)


@saved("merge that was not finished", *BOTH)
def a_merge_conflict_with_what_both_had():
    """Git told to show what stood there before (diff3), and lines that end as on Windows."""
    text = notebook(code(MASK, PATTERNS))
    found = next(line for line in text.splitlines(keepends=True) if '"execution_count"' in line)
    shown = f"<<<<<<< HEAD\n{found}||||||| 1a2b3c\n{found}=======\n{found}>>>>>>> theirs\n"
    return text.replace(found, shown, 1).replace("\n", "\r\n")


@saved("was read as a notebook, for there is none", *BOTH)
def a_script_in_place_of_a_notebook():
    """The answers as a Python file, as a terminal or another editor saves them."""
    return f"{MASK}\n\n\n{PATTERNS}\n", {}, "03_masks.py"


@saved("was read as a notebook, for there is none", *BOTH)
def a_script_with_cells():
    """The same with the marks of cells, one of which is text."""
    cells = f"# %% [markdown]\n# ## What I think\n# It's a triangle\n# %%\n{MASK}\n# %% the patterns\n{PATTERNS}\n"
    return cells, {}, "03_masks.py"


@saved("was read as a notebook, for all that its name ends in", *BOTH)
def an_ending_too_many():
    """A mail program has put .txt behind the name of the notebook."""
    return notebook(code(MASK, PATTERNS)), {}, "03_masks.ipynb.txt"


@saved("annotates with Tensor", "heads.merge", "masks.causal")
def annotations_that_nothing_imports():
    """Type annotations as an editor proposes them, without the import; one default, one return, one inside."""
    merge = MERGE.replace("(x)", "(x: Tensor) -> Tensor")
    mask = MASK.replace("(T, S=None)", "(T: int, S: Optional[int] = None) -> Bool[Tensor, 'T S']")
    return notebook(code(merge, mask))


@saved("annotates with Tensor", "normalization.rms_norm")
def annotations_in_methods():
    """Type annotations without their import once more, here in the methods of a class that is an answer."""
    forward = FORWARD.replace("(self, x)", "(self, x: Tensor)")
    body = "\n".join("    " + line for line in f"{INIT}\n{forward}".splitlines())
    return notebook(code("import torch\nfrom torch import nn", f"class RMSNorm(nn.Module):\n{body}"))


@saved("the methods of RMSNorm were attached", "normalization.rms_norm")
def methods_attached_below():
    """An empty class, its methods in cells of their own, and attached at the end, so that each can be tried alone."""
    attach = "RMSNorm.__init__ = __init__\nRMSNorm.forward = forward"
    return notebook(code("import torch\nfrom torch import nn", RMS, INIT, FORWARD, attach))


@saved("the methods of RMSNorm were attached", "normalization.rms_norm")
def methods_attached_one_by_one():
    """An empty class whose methods are set with `setattr`, one after the other, each in the cell that holds it."""
    cells = [f"{INIT}\nsetattr(RMSNorm, '__init__', __init__)", f"{FORWARD}\nsetattr(RMSNorm, 'forward', forward)"]
    return notebook(code("import torch\nfrom torch import nn", RMS, *cells))


@saved("torch.compile was left out", "heads.merge", "masks.causal")
def compiled_answers():
    """Answers under `torch.compile`, as a decorator with and without arguments."""
    return notebook(code(f"@torch.compile\n{MERGE}", MASK.replace("def ", "@torch.compile(dynamic=True)\ndef ")))


@saved("torch.compile was left out", "heads.merge", "normalization.rms_norm")
def compiled_by_a_call():
    """`torch.compile` called with a function, and a module that compiles itself."""
    body = "\n".join("    " + line for line in f"{INIT}\n    self.compile()\n{FORWARD}".splitlines())
    cells = [f"{MERGE}\nmerge_heads = torch.compile(merge_heads, mode='max-autotune')"]
    return notebook(code("import torch\nfrom torch import nn", *cells, f"class RMSNorm(nn.Module):\n{body}"))


@saved("", "counting.flops", "attention.memory")
def a_notebook_that_runs_another():
    """%run executes a notebook that was handed in beside it: what it names is there."""
    helpers = notebook(code("FORWARD, BACKWARD = 2 + 2, 4", "import math"))
    answer = FLOPS.replace("8 * n_params * n_tokens", "(FORWARD + BACKWARD) * n_params * n_tokens")
    return notebook(code("%run helpers.ipynb", answer, MEMORY)), {"helpers.ipynb": helpers}


@saved("", *BOTH, earns=("masks.patterns",))
def a_newer_pythons_syntax():
    """Python 3.12's type parameters, on an older one: the cell is lost, and the version that it needs is named."""
    mask = MASK.replace("def causal_mask(", "def causal_mask[Size: int](")
    info = {"name": "python", "version": "3.99.0", "codemirror_mode": {"name": "ipython", "version": 3}}
    # a syntax that no Python has yet stands for that of one which the grader does not know
    return notebook(code(mask.replace("[Size: int]", "[[Size]]"), PATTERNS), language_info=info)


@saved("the best counts: 03_masks (1).ipynb", *BOTH)
def a_second_download_that_is_right():
    """An early state, and the finished one under the name that a browser gives to a second download."""
    return notebook(code(WRONG_MASK)), {"03_masks (1).ipynb": notebook(code(MASK, PATTERNS))}, "03_masks.ipynb"


@saved("the best counts: 03_masks.ipynb", *BOTH)
def a_copy_that_is_wrong():
    """A finished notebook, and a copy in which something was tried out."""
    return notebook(code(MASK, PATTERNS)), {"03_masks-Copy1.ipynb": notebook(code(WRONG_MASK))}, "03_masks.ipynb"


@saved("the best counts: 03_masks-Copy2.ipynb", *BOTH, "heads.merge")
def versions_that_complete_each_other():
    """The best of several versions counts, and what it leaves open is taken from the others."""
    others = {
        "03_masks-Copy1.ipynb": notebook(code(WRONG_MASK)),
        "03_masks-Copy2.ipynb": notebook(code(MASK, PATTERNS)),
    }
    return notebook(code(WRONG_MASK, MERGE)), others, "03_masks.ipynb"


NAMES = [each.name for each in CASES[FIRST:]]
STRICTLY = {  # what is lost without salvage
    "a_merge_conflict_between_two_answers",
    "a_script_in_place_of_a_notebook",
    "an_ending_too_many",
    "annotations_that_nothing_imports",
    "methods_attached_below",
    "a_second_download_that_is_right",
}
