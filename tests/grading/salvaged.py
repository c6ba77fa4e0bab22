"""Honest hand-ins that are not as they should be, and whose meaning is plain all the same: read with a note.

They join `awkward.CASES`. `SAID` holds what the note of each says. With `--salvage no` they earn `STRICTLY` less.
"""

from html import escape

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


def page_cell(source: str) -> str:
    """A cell of code as Jupyter writes it on a web page, its first word in colour."""
    word, gap, rest = source.partition(" ")
    shown = f'<span class="k">{escape(word, quote=False)}</span>{gap}{escape(rest)}'
    area = f'<div class="highlight hl-ipython3"><pre><span></span>{shown}\n</pre></div>'
    prompt = '<div class="jp-InputPrompt">In [1]:</div>'
    return f'<div class="jp-Cell jp-CodeCell"><div class="jp-InputArea">{prompt}<div>{area}</div></div></div>'


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


@saved("of equal ones the newest", "masks.causal", "attention.memory")
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


@saved("was read as a notebook, whatever its ending", *BOTH)
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


@saved("it runs helpers.ipynb, which was also handed in", "counting.flops", "attention.memory")
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


@saved("of equal ones the newest: 03_masks (1).ipynb", *BOTH)
def a_second_download_that_is_right():
    """An early state, and the finished one under the name that a browser gives to a second download."""
    return notebook(code(WRONG_MASK)), {"03_masks (1).ipynb": notebook(code(MASK, PATTERNS))}, "03_masks.ipynb"


@saved("of equal ones the newest: 03_masks.ipynb", *BOTH)
def a_copy_that_is_wrong():
    """A finished notebook, and a copy in which something was tried out."""
    return notebook(code(MASK, PATTERNS)), {"03_masks-Copy1.ipynb": notebook(code(WRONG_MASK))}, "03_masks.ipynb"


@saved("of equal ones the newest: 03_masks-Copy2.ipynb", *BOTH, "heads.merge")
def versions_that_complete_each_other():
    """The best of several versions counts, and what it leaves open is taken from the others."""
    others = {
        "03_masks-Copy1.ipynb": notebook(code(WRONG_MASK)),
        "03_masks-Copy2.ipynb": notebook(code(MASK, PATTERNS)),
    }
    return notebook(code(WRONG_MASK, MERGE)), others, "03_masks.ipynb"


@saved("merge that was not finished", "masks.causal", "masks.patterns", "heads.merge")
def a_merge_conflict_around_whole_cells():
    """Git's markers around whole cells: one of a pair has solved two of them, the other has one of words."""
    text = notebook(code(MASK, PATTERNS, MERGE))
    begin, end = (text.index(f'  {{\n   "cell_type": "code",\n   "id": "cell-{i}"') for i in (1, 3))
    words = '  {\n   "cell_type": "markdown", "metadata": {},\n   "source": ["To do."]\n  },\n'
    return text[:begin] + BROKEN.format(ours=words, theirs=text[begin:end]) + text[end:]


@saved("was read as a notebook, for there is none", *BOTH, "attention.memory")
def a_script_as_jupyter_saves_it():
    """A notebook that was saved as a Python file: numbered cells, magics spelt out, a cell in the middle that fails."""
    lines = ["#!/usr/bin/env python", "# coding: utf-8", "# # Masks", "# In[1]:", MASK]
    lines += ["# In[ ]:", "get_ipython().run_line_magic('matplotlib', 'inline')\n1 / 0\n" + MEMORY.replace("4", "2")]
    lines += ["# In[12]:", PATTERNS, "# In[13]:", "get_ipython().system('ls')\n" + MEMORY]
    return "\n\n\n".join(lines) + "\n", {}, "03_masks.py"


@saved("was read as a notebook, for there is none", *BOTH)
def a_script_in_the_light_format():
    """A notebook that Jupytext keeps as a script in its light format: marks only where a cell holds blank lines."""
    head = "# ---\n# jupyter:\n#   jupytext:\n#     text_representation:\n#       format_name: light\n# ---\n\n"
    return f"{head}# # Masks\n\n1 / 0\n\n# +\n{MASK}\n\n# -\n\n{PATTERNS}\n", {}, "03_masks.py"


@saved("was read as a notebook, for there is none", *BOTH)
def a_script_with_a_main_part():
    """A program with a helper file beside it and a main part, which asks for arguments and ends the program."""
    main = """if __name__ == "__main__":
    import argparse, sys
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    print(causal_mask(parser.parse_args().size))
    sys.exit(0)"""
    mask = MASK.replace(".tril(S - T)", ".tril(offset(T, S))")
    files = {"helpers.py": "def offset(T, S):\n    return S - T\n"}
    return f"from helpers import *\n\n{mask}\n\n\n{PATTERNS}\n\n{main}\n", files, "03_masks.py"


@saved("was read as a notebook, for there is none", *BOTH)
def a_page_in_place_of_a_notebook():
    """The notebook as a web page, made by Jupyter. What an output shows as code is no cell."""
    shown = page_cell("masks_patterns = {'a'}").replace("jp-CodeCell", "jp-OutputArea")
    cells = [page_cell(MASK), page_cell("%matplotlib inline\nprint('<b>&amp;</b>')"), page_cell(PATTERNS) + shown]
    page = f"<!DOCTYPE html><html><body class='jp-Notebook'><main>{''.join(cells)}</main></body></html>"
    return page, {}, "03_masks.ipynb.html"


@saved("was read as a notebook, for there is none", *BOTH)
def a_markdown_file_in_place_of_a_notebook():
    """The notebook as Markdown, as Jupyter exports it: code in fences, outputs indented, one fence of a shell."""
    fences = [f"```python\n{source}\n```\n" for source in (MASK, PATTERNS)]
    other = "```bash\nrm -r results\n```\n\n    masks_patterns = {'a'}\n"
    return f"# Masks\n\nA triangle.\n\n{fences[0]}\n{other}\n{fences[1]}", {}, "03_masks.md"


@saved("was read as a notebook, for there is none", *BOTH)
def a_quarto_document_in_place_of_a_notebook():
    """The notebook as Quarto keeps it: a head in YAML, cells that begin with options, one of another language."""
    cells = "".join(f"```{{python}}\n#| label: cell\n#| echo: false\n{each}\n```\n\n" for each in (MASK, PATTERNS))
    other = "```{r}\nmasks_patterns <- 'a'\n```\n"
    return f"---\ntitle: Masks\njupyter: python3\n---\n\nA triangle.\n\n{other}{cells}", {}, "03_masks.qmd"


@saved("annotates with Tensor", "heads.merge", "masks.causal", "attention.memory")
def annotations_above_cells_that_need_them():
    """Annotations without an import in a helper, and on a variable; the cells below call the helper as they run."""
    size = "def size(x: Tensor) -> Size:\n    return x.numel() * x.element_size()"
    memory = "attention_memory: Bytes = size(torch.empty(2048, 2048))"
    merge = "assert size(torch.ones(2)) == 8\n" + MERGE
    return notebook(code("import torch", size, memory, merge, f"limit: int = size(torch.ones(1))\n{MASK}"))


@saved("the methods of RMSNorm were attached", "normalization.rms_norm")
def methods_attached_by_a_decorator():
    """An empty class, and a decorator of the learner's own that adds a function to a class, as textbooks do."""
    add = """def add_to(owner):
    def add(function):
        setattr(owner, function.__name__, function)
        return function
    return add"""
    cells = [RMS, f"@add_to(RMSNorm)\n{INIT}", f"@add_to(RMSNorm)\n{FORWARD}"]
    return notebook(code(f"import torch\nfrom torch import nn\n{add}", *cells))


@saved("", "normalization.rms_norm")
def a_method_attached_to_half_a_class():
    """A class whose constructor stands in it and whose forward is attached in the next cell: it was never empty."""
    body = "\n".join("    " + line for line in INIT.splitlines())
    cells = [f"class RMSNorm(nn.Module):\n{body}", f"{FORWARD}\nRMSNorm.forward = forward"]
    return notebook(code("import torch\nfrom torch import nn", *cells))


@saved("torch.compile was left out", "heads.merge", "masks.causal")
def compiled_with_settings():
    """The compiler under a name of its own, with settings, and code that asks whether it is being compiled."""
    settings = """import torch
from torch import compile as fast
import functools
quick = functools.partial(fast, fullgraph=True)"""
    merge = MERGE.replace("    return", "    assert not torch.compiler.is_compiling()\n    return")
    mask = f"{MASK}\n\ncausal_mask = fast(causal_mask, backend='inductor')"
    return notebook(code(settings, f"@quick\n{merge}", mask))


@saved("it runs lib/my helpers.ipynb, which was also handed in", "counting.flops", "attention.memory")
def a_notebook_that_runs_one_in_a_folder():
    """%run with quotes and an option; what it runs lies in a folder, and imports a Python file from there."""
    helpers = notebook(code("from lib.constants import *", "def both():\n    return FORWARD + BACKWARD"))
    answer = FLOPS.replace("8 * n_params * n_tokens", "both() * n_params * n_tokens")
    files = {"lib/my helpers.ipynb": helpers, "lib/constants.py": "FORWARD, BACKWARD = 4, 4\n"}
    return notebook(code('%run -i "lib/my helpers.ipynb"', answer, MEMORY)), files


@saved("", "attention.memory", "masks.causal", "masks.patterns", "heads.merge", "counting.flops")
def parts_that_are_numbered_like_versions():
    """Five notebooks, numbered from 1 to 5, each with another answer: none is a version that the others replace."""
    parts = [MEMORY, MASK, PATTERNS, MERGE, FLOPS]
    files = {f"03_masks-{i}.ipynb": notebook(code(f"{source}\nn_heads = 4")) for i, source in enumerate(parts, start=1)}
    return files.pop("03_masks-1.ipynb"), files, "03_masks-1.ipynb"


@saved("", *BOTH)
def a_copy_without_a_change():
    """Two copies of one notebook, cell for cell the same: there is nothing to choose."""
    whole = notebook(code(MASK, PATTERNS))
    return whole, {"03_masks-Copy1.ipynb": whole.replace('"id": "cell-1"', '"id": "moved"')}, "03_masks.ipynb"


@saved("", *BOTH)
def answers_beside_the_notebook_as_it_was_handed_out():
    """The notebook as it was handed out, and a second download of it with the answers in it."""
    stub = "def causal_mask(T, S=None):\n    # Your answer goes here.\n    raise NotImplementedError"
    empty = notebook(code(stub, "masks_patterns = ..."))
    return empty, {"03_masks (1).ipynb": notebook(code(MASK, PATTERNS))}, "03_masks.ipynb"


NAMES = [each.name for each in CASES[FIRST:]]
STRICTLY = {  # what is lost without salvage
    "a_merge_conflict_between_two_answers",
    "a_script_in_place_of_a_notebook",
    "an_ending_too_many",
    "annotations_that_nothing_imports",
    "methods_attached_below",
    "a_second_download_that_is_right",
}
