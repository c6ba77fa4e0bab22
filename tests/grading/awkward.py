"""Awkward honest submissions that percent format cannot say: other versions, odd metadata, encodings, names, sizes.

`CASES` holds them all, as `corpus.cases` holds those of a folder. The docstring of a builder says what it is about.
"""

import ast
import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.page.run_notebooks import exercise_text
from grading.corpus import Case, notebook

ROOT = Path(__file__).parent.parent.parent
CASES: list[Case] = []

MASK = """import torch

def causal_mask(T, S=None):
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)"""
MERGE = """def merge_heads(x):
    return x.transpose(1, 2).flatten(2)"""
MEMORY = "attention_memory = 2048 * 2048 * 4"
PATTERNS = 'masks_patterns = {"b", "d", "i"}'
WRONG_MASK = MASK.replace("S - T", "T - S + 1")
FLOPS = """def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens"""
BOTH = ("masks.causal", "masks.patterns")


def case(*expects: str, earns: tuple[str, ...] | None = None) -> Callable:
    """A builder of a notebook's text, or of (text, files), or of (text, files, name), becomes one of CASES."""

    def keep(build: Callable) -> Callable:
        made = build()
        text, files, name = (
            (*made, *({}, "answers.ipynb")[len(made) - 1 :]) if isinstance(made, tuple) else (made, {}, "")
        )
        about = " ".join(inspect.getdoc(build).split())
        named = {"notebook": name} if name else {}
        CASES.append(Case(build.__name__, about, expects, expects if earns is None else earns, text, files, **named))
        return build

    return keep


def code(*sources: str) -> list[tuple[str, str]]:
    return [("code", source) for source in sources]


def imports(source: str) -> str:
    """The import statements of a cell."""
    with suppress(SyntaxError):  # a magic
        body = [line for line in ast.parse(source).body if isinstance(line, (ast.Import, ast.ImportFrom))]
        return ast.unparse(ast.Module(body, []))
    return ""


def altered(text: str, **fields) -> dict:
    """The JSON of a notebook, with fields of every code cell set."""
    whole = json.loads(text)
    for cell in whole["cells"]:
        if cell["cell_type"] == "code":
            cell.update(fields)
    return whole


@case(*BOTH)
def nbformat_3():
    """A notebook of version 3, as IPython wrote it: worksheets, `input` for the source, headings as cells."""
    cells = [
        {"cell_type": "heading", "level": 2, "metadata": {}, "source": ["Masks"]},
        *(
            {"cell_type": "code", "collapsed": False, "input": source, "language": "python", "metadata": {}}
            | {"outputs": [], "prompt_number": 7}
            for source in (MASK.splitlines(keepends=True), PATTERNS)
        ),
    ]
    sheets = [{"cells": cells[:2], "metadata": {}}, {"cells": cells[2:]}]
    return json.dumps({"metadata": {"name": "masks"}, "nbformat": 3, "nbformat_minor": 0, "worksheets": sheets})


@case(*BOTH)
def bare_cells():
    """Saved by some other program: no metadata, no ids, no counts, no outputs, the source as one text."""
    cells = [{"cell_type": "code", "source": source} for source in (MASK, PATTERNS)]
    return json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 0})


@case(*BOTH)
def a_kernel_of_another_language():
    """The notebook names the kernel of another language, by mistake. Its cells are Python all the same."""
    kernel = {"display_name": "Julia 1.11", "language": "julia", "name": "julia-1.11"}
    return notebook(code(MASK, PATTERNS), kernelspec=kernel, language_info={"name": "julia"})


@case(*BOTH)
def a_kernel_of_ones_own():
    """The kernel is an environment that only the learner has, of another Python; Colab left its own metadata."""
    kernel = {"display_name": "Python (ada-gpu)", "language": "python", "name": "ada-gpu"}
    info = {"name": "python", "version": "3.9.0", "codemirror_mode": {"name": "ipython", "version": 3}}
    colab = {"provenance": [], "gpuType": "T4", "toc_visible": True}
    return notebook(
        code(MASK, PATTERNS), kernelspec=kernel, language_info=info, colab=colab, accelerator="GPU", odd=[None]
    )


@case(*BOTH)
def a_million_lines_of_output():
    """One cell printed a million lines, and they were saved with the notebook."""
    whole = altered(notebook(code(MASK, "for i in range(2):\n    print(i)", PATTERNS)))
    whole["cells"][1]["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["0.123\n"] * 1_000_000}]
    return json.dumps(whole)


@case("heads.merge", "attention.memory")
def outputs_of_every_kind():
    """Outputs of errors with colours, pictures, HTML with scripts, widgets, kinds that nobody knows; none is asked."""
    whole = altered(notebook(code(MERGE, MEMORY)), execution_count=41)
    whole["cells"][0]["outputs"] = [
        {"output_type": "error", "ename": "E", "evalue": "\x1b[31m", "traceback": ["\x1b[0;31mE\x1b[0m"]},
        {"output_type": "display_data", "data": {"image/png": "iVBOR" * 100_000}, "metadata": {}},
        {
            "output_type": "execute_result",
            "data": {"text/html": ["<script>", "alert(1)</script>"]},
            "execution_count": 3,
        },
        {"output_type": "hologram", "depth": {"a": [[[[[]]]]]}},
    ]
    whole["cells"][1] |= {"execution_count": 3, "outputs": None}
    state = {f"{i:032x}": {"model_name": "IntSliderModel", "state": {"value": i}} for i in range(200)}
    whole["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": state}}
    return json.dumps(whole)


@case(*BOTH, "heads.merge")
def lines_as_windows_ends_them():
    """A byte order mark at the beginning, CRLF in the file and inside of the cells, one cell with CR alone."""
    cells = code(MASK, PATTERNS, MERGE)
    whole = json.loads(notebook(cells))
    for cell, end in zip(whole["cells"], ("\r\n", "\r\n", "\r")):
        cell["source"] = end.join("".join(cell["source"]).splitlines()) + end
    return "\ufeff" + json.dumps(whole, indent=1).replace("\n", "\r\n")


@case(*BOTH)
def odd_characters():
    """Emoji and half of a surrogate pair in the text cells, form feeds between functions, a NUL in an output."""
    whole = json.loads(notebook([("markdown", "# Masken 🎭 \ud83d"), *code(f"\f\n{MASK}\n\f\n# 🎭", PATTERNS)]))
    whole["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "\x00\ud800"}]
    return json.dumps(whole)


@case(*BOTH)
def cells_with_odd_fields():
    """Tags, attachments, slides, nbgrader's fields, collapsed cells, the same id twice, cells of unknown kinds."""
    whole = json.loads(notebook([("markdown", "![](attachment:me.png)"), *code(MASK, PATTERNS)]))
    for cell in whole["cells"]:
        cell["id"] = "again"
        cell["metadata"] = {
            "tags": ["hide-input", "solution", ""],
            "slideshow": {"slide_type": "skip"},
            "nbgrader": {"grade": True, "grade_id": "again", "locked": False, "points": 100, "schema_version": 3},
            "collapsed": True,
            "editable": False,
        }
    whole["cells"][0]["attachments"] = {"me.png": {"image/png": "iVBORw0KGgo="}}
    whole["cells"][1:1] = [{"cell_type": "sql", "source": "select 1"}, {"cell_type": "code", "source": []}, {}]
    return json.dumps(whole)


@case("counting.flops", "attention.memory")
def comments_without_end():
    """A cell holds 300,000 characters of comments and a text as long, above, inside of and below the answer."""
    pages = "# I tried this first, and then that, and then I drew it.\n" * 2_000
    inside = FLOPS.replace("    return", pages.replace("#", "    #") + "    return")
    return notebook(code(pages + inside + "\n" + pages, f'notes = """{"so " * 100_000}"""\n{MEMORY}'))


@case("counting.flops", "attention.memory")
def hundreds_of_cells():
    """Six hundred cells, most of them small tries, with the answers somewhere among them."""
    tries = [f"try_{i} = {i} * 2\ntry_{i}" for i in range(300)]
    return notebook(
        [*code(*tries), ("code", FLOPS), *[("markdown", "---")] * 100, ("code", MEMORY), *code(*tries[:200])]
    )


@case("masks.causal", "masks.patterns", "masks.padding", earns=BOTH)
def two_notebooks_for_one_chapter():
    """The mask is solved in the notebook and the choice in JupyterLab's copy of it; what one left open, the other
    answers. A Python export of an old state lies beside them and is a helper file at most."""
    padding, empty_mask = (
        f"def {signature}:\n    # Your answer goes here, in place of the next line.\n    raise NotImplementedError"
        for signature in ("padding_mask(lengths, S)", "causal_mask(T, S=None)")
    )
    first = notebook(
        code(MASK, padding, 'masks_patterns = ...  # your answer\ncheck("masks.patterns", masks_patterns)')
    )
    second = notebook(code("import torch", empty_mask, padding, PATTERNS))
    export = f"# ---\n# jupyter:\n#   jupytext:\n# ---\n\n# %%\n{WRONG_MASK}\n"
    return first, {"03_masks-Copy1.ipynb": second, "03_masks.py": export}, "03_masks.ipynb"


@case("heads.merge", "attention.memory")
def a_name_that_was_decorated():
    """The file is called as a download of a copy of a final version, in a folder with blanks and accents."""
    return notebook(code(MERGE, MEMORY)), {}, "Übung 3 (Ada)/Copy of lösung – final (2) (1).ipynb"


@case(*BOTH)
def an_old_state_in_the_checkpoints():
    """JupyterLab's own copy of an earlier, wrong state lies in .ipynb_checkpoints. It was not handed in."""
    old = notebook(code(WRONG_MASK, 'masks_patterns = {"a"}'))
    return notebook(code(MASK, PATTERNS)), {".ipynb_checkpoints/03_masks-checkpoint.ipynb": old}, "03_masks.ipynb"


@case("masks.causal", "masks.padding", "masks.patterns", earns=BOTH)
def as_it_was_handed_out():
    """The exercise notebook of chapter 3 as it is handed out, with two answers in it: checks, hints, figures remain."""
    whole = json.loads(exercise_text(ROOT / "solutions" / "03_masks.ipynb"))
    for cell in whole["cells"]:
        source = "".join(cell["source"])
        if "def causal_mask" in source or "masks_patterns = ..." in source:
            cell["source"] = MASK if "def" in source else PATTERNS + '\ncheck("masks.patterns", masks_patterns)'
    return json.dumps(whole), {}, "03_masks.ipynb"


@case("counting.flops", "counting.memory", "counting.changes")
def the_solutions_themselves():
    """The solution notebook of chapter 10, outputs and all: what an instructor hands in to see whether all is well."""
    return (ROOT / "solutions" / "10_counting.ipynb").read_text(encoding="utf-8"), {}, "10_counting.ipynb"


@case(*EXERCISES, earns=())
def the_whole_course_untouched():
    """The folder of the course as it was handed out: all exercises, open, and of the chapters what they import. Much of
    that bears the name of an answer."""
    files = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        files[f"notebooks/{path.name}"] = notebook(code(*filter(None, map(imports, sources))))
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        files[f"exercises/{path.name}"] = exercise_text(path)
    return notebook([("markdown", "My notes.")]), files


@case("attention.memory", "counting.flops", earns=("attention.memory",))
def a_notebook_for_each_chapter():
    """Three notebooks in folders of their own, one of them empty, one that is no notebook but a web page."""
    others = {"10/10_counting.ipynb": "<!DOCTYPE html><title>Sign in</title>", "01/01_embeddings.ipynb": ""}
    return notebook(code(MEMORY)), others, "03/02_attention.ipynb"


@case("counting.flops", "counting.memory")
def files_that_nobody_imports():
    """Python files lie beside the notebook that it does not name: one that would end the program, one that cannot be
    parsed, tests that fail, a conftest, an export of another notebook. Nobody runs them."""
    memory = "def training_bytes(n_params, mixed_precision=False):\n    return 10 * n_params"
    return notebook(code(memory, FLOPS)), {
        "old.py": "import sys\n\nsys.exit(1)\n",
        "syntax_error.py": "def broken(:\n",
        "tests/test_mine.py": "def test_mine():\n    assert False\n",
        "conftest.py": "raise RuntimeError('this is for pytest')\n",
        "02_attention.py": "# %%\nimport nothing_of_that_name\n",
    }
