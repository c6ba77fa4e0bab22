"""Run a notebook in a worker: IPython runs its cells as JupyterLab would, but without a screen or a user.

`check` and functions that show pictures are replaced by stand-ins that do nothing. So are magics and shell lines that
would wait, install or run another program. `input()` and `getpass()` return "" in a cell.
"""

import __future__

import ast
import builtins
import getpass
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from course_lib.classroom.sandbox.protocol import ABOVE
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.grading.judge.call import is_the_librarys
from course_lib.grading.judge.limits import Exit, Stop, limited

BEGINNING = "import math\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
MOST_TROUBLES = 50  # reported for one notebook
FENCE = re.compile(r"^(```|~~~)(?:python|py)?[ \t]*\n(.*?)^\1", flags=re.MULTILINE | re.DOTALL)
BEGINS = re.compile(r"(?!(?:else|elif|except|finally)\b)[^\s#)\]}]")  # the first line of a statement
MOST_NAMES = 10  # per sentence
MOST_CUTS = 20  # tried above a syntax error
SILENT_MAGICS = (
    *("timeit", "prun", "matplotlib", "load_ext", "reload_ext", "unload_ext"),
    *("pip", "conda", "mamba", "uv", "bash", "sh", "script", "system", "sx"),
)


class Quiet:
    """A stand-in for objects that show output: it can be called, read and iterated over, and does nothing."""

    passed, earned, points, feedback, misconception = True, 0, 0, "", None

    def __call__(self, *args: Any, **kwargs: Any) -> "Quiet":
        return self

    def __getattr__(self, name: str) -> "Quiet":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> "Quiet":
        return self

    def __repr__(self) -> str:
        return ""


_QUIET: Any = Quiet()


class Shell(InteractiveShell):
    """IPython without history, shell commands or error reports."""

    def system(self, cmd: str) -> None: ...

    system_raw = system_piped = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        return [] if split else ""

    def run_line_magic(self, magic_name: str, line: str, _stack_depth: int = 1) -> Any:
        if self.find_line_magic(magic_name) is not None:  # otherwise it belongs to a package that is not installed here
            return super().run_line_magic(magic_name, line, _stack_depth=_stack_depth + 1)

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        if self.find_cell_magic(magic_name) is not None:
            return super().run_cell_magic(magic_name, line, cell)

    def showtraceback(self, *args: Any, **kwargs: Any) -> None: ...

    showsyntaxerror = showindentationerror = showtraceback


def warm_up() -> Shell:
    """Import the packages that notebooks use, install the stand-ins, and make the shell, all before the first fork."""
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.ones(2, 2))
    (weight @ weight).softmax(-1).sum().backward()
    torch.optim.AdamW([weight]).step()  # the first one imports eight hundred modules
    grading, viz = importlib.import_module("course_lib.grading"), importlib.import_module("course_lib.live")
    for name in ("check", "hint", "progress", "grade", "mine"):
        setattr(grading, name, _QUIET)
    for name in ("explore", "show", "guess", "reveal"):
        setattr(viz, name, _QUIET)
    ladder = importlib.import_module("course_lib.ladder")
    for name in ("climb", "ladder"):
        setattr(ladder, name, _QUIET)
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    shell = Shell.instance(config=config)
    for name in SILENT_MAGICS:
        shell.register_magic_function(_QUIET, "line_cell", name)
    shell.run_cell(BEGINNING, silent=True)  # the first cell makes IPython import its other modules
    return shell


class NothingRan(Exception):
    """A cell has a syntax error. The message lists the complete answers above it."""


class NotebookRun:
    """The names in a notebook and every answer bound to them, in the order of the cells.

    Args:
        wanted: the names that matter, and whether each must be callable.
        tell: called with the number of a cell before it runs.
        salvage: repair cells that would fail if possible, and report it in `salvaged`.
        unfinished: also run the complete statements above a syntax error in a cell.
    """

    def __init__(
        self,
        shell: Shell,
        wanted: dict[str, bool],
        quotas: Quotas,
        tell: Callable[[int], None],
        salvage: bool = True,
        unfinished: bool = False,
    ):
        self.salvage, self.salvaged, self.unfinished = salvage, list[str](), unfinished
        if salvage:
            self._compile_nothing()
        self.shell, self.quotas, self.tell = shell, quotas, tell
        self.given: dict[str, list] = {name: [] for name in wanted}  # (number of the cell, value)
        self.bound: dict[str, int] = {}  # name -> the last cell, counted from the top, that bound it
        self.wanted = wanted
        self.open: set[str] = set()  # names bound to unusable values only
        self.troubles: list[str] = []
        self.runs_a_cell = False
        self._refuse = builtins.input  # set by `exits_closed`
        builtins.input = getpass.getpass = self._asked  # in this process only, which runs one notebook

    def _asked(self, *prompt: Any, **options: Any) -> str:
        """Replace input() and getpass(). A cell may have kept it under a name that an answer calls."""
        return "" if self.runs_a_cell else self._refuse()

    @property
    def answers(self) -> dict[str, list]:
        """Return the values bound to each name, in the order of the cells."""
        return {
            name: [value for _, value in sorted(values, key=lambda pair: pair[0])]
            for name, values in self.given.items()
            if values
        }

    def load(self, cells: list[dict], skip: list[int]) -> None:
        """Run the cells from top to bottom, and then again those that lacked a name."""
        waiting = {}  # cells that lacked a name -> the error
        for cell in cells:
            if cell["kind"] == "code" and cell["number"] not in skip:
                error = self._run(cell)
                if isinstance(error, SyntaxError):
                    cell, error = self._above(cell, error)
                while isinstance(error, ModuleNotFoundError) and self._do_without(cell, error):
                    error = self._run(cell)
                if isinstance(error, NameError):
                    waiting[cell["number"]] = cell, error
                else:
                    self._complain(cell, error)
        for cell, error in waiting.values():
            if getattr(error, "name", None) in self.shell.user_ns:  # a later cell has defined it
                error = self._run(cell)
            if self.salvage and isinstance(error, NameError):
                error = self._without_annotations(cell, error)
            self._complain(cell, error)
        for cell in cells:
            if cell["kind"] != "code" and cell["number"] not in skip:
                self._rescue(cell)
        if self.salvage:
            self._look_again()

    def _compile_nothing(self) -> None:
        """Make `torch.compile` return its argument: a compiler takes minutes, and needs files outside the sandbox."""

        def eager(model: Any = None, **options: Any) -> Any:
            said = "torch.compile was left out: the function or module ran as it is written"
            if said not in self.salvaged:
                self.salvaged.append(said)
            return (lambda function: function) if model is None else model

        torch.compile = eager
        torch.nn.Module.compile = lambda module, *args, **kwargs: None  # type: ignore[method-assign]

    def _above(self, cell: dict, error: Exception) -> tuple[dict, BaseException | None]:
        """Report the complete answers above a syntax error, and run them if `unfinished` is set.

        Returns: the cell that ran, and the error that ended it.
        """
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            part = complete_above(self.shell.transform_cell(cell["source"]))
            names = [f"`{name}`" for name in dict.fromkeys(_bound(part, stubs=False)) if name in self.wanted]
            if names and self.unfinished:
                self._complain(cell, error)
                what = f"has a syntax error: what is complete above it ran ({', '.join(names)})"
                self.salvaged.append(f"cell {cell['number']} {what}"[:500])
                part_of_it = {**cell, "source": part}
                return part_of_it, self._run(part_of_it)
            for i in range(0, len(names), MOST_NAMES):
                self._complain(cell, error)
                error = NothingRan(", ".join(names[i : i + MOST_NAMES]))
        return cell, error

    def _without_annotations(self, cell: dict, error: NameError) -> BaseException | None:
        """Run a cell again without evaluating its annotations, because they use names that were never imported."""
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            if error.name in _annotated(self.shell.transform_cell(cell["source"])):
                flags = self.shell.compile.flags
                self.shell.compile.flags = flags | __future__.annotations.compiler_flag
                try:
                    again = self._run(cell)
                finally:
                    self.shell.compile.flags = flags
                if not isinstance(again, NameError):
                    said = f"annotates with {error.name}, which nothing imports: the annotations were not read"
                    self.salvaged.append(f"cell {cell['number']} {said}"[:300])
                return again
        return error

    def _look_again(self) -> None:
        """Use a class whose methods were attached by later cells, although it was empty when its own cell ran."""
        for name in sorted(self.open):
            value = self.shell.user_ns.get(name)
            if inspect.isclass(value) and not self._is_open(name, value):
                self.given[name].append((self.bound.get(name, 0), value))
                self.salvaged.append(
                    f"the methods of {name} were attached below it: the class counts as it is at the end"
                )

    def _run(self, cell: dict) -> BaseException | None:
        """Run one cell and return the error that ended it. Names bound by later cells keep their values."""
        names, number = self.shell.user_ns, cell["number"]
        before = dict(names)
        error = self._execute(cell)
        for name in [name for name, value in names.items() if before.get(name, _QUIET) is not value]:
            if name in self.given and self._is_open(name, names[name]):
                self.open.add(name)
            elif name in self.given:
                self.given[name].append((number, names[name]))
            if self.bound.get(name, 0) > number:
                names[name] = before[name]
            else:
                self.bound[name] = number
        return error

    def _is_open(self, name: str, value: Any) -> bool:
        """Return whether the answer is a stub, imported from the library, or not callable although it must be."""
        return value is ... or is_the_librarys(value) or is_stub(value) or (self.wanted[name] and not callable(value))

    def _do_without(self, cell: dict, error: ModuleNotFoundError) -> bool:
        """Install a stand-in, once, for a package that is missing here: the answer below may not need it."""
        if error.name in sys.modules or not error.name:
            return False
        sys.modules[error.name] = _QUIET
        self._complain(cell, error)
        return True

    def _complain(self, cell: dict, error: BaseException | None) -> None:
        if error is not None and len(self.troubles) < MOST_TROUBLES:
            self.troubles.append(f"cell {cell['number']}: {self._said(error)}"[:500])

    def _execute(self, cell: dict) -> BaseException | None:
        self.tell(cell["number"])
        errors: list[BaseException | None] = []

        def work():
            result = self.shell.run_cell(cell["source"], silent=True)  # `forkserver` discards its output
            errors.append(result.error_before_exec or result.error_in_exec)

        self.runs_a_cell = True
        ended = limited(work, self.quotas.cell_timeout)
        self.runs_a_cell = False
        return errors[0] if errors and ended == "done" else Stop()

    def _said(self, error: BaseException) -> str:
        if isinstance(error, NothingRan):
            return ABOVE.format(names=error)
        if isinstance(error, Stop):
            return f"stopped after {self.quotas.cell_timeout:g} seconds"
        if isinstance(error, (SystemExit, Exit)):
            return "it ends the program"
        try:
            return f"{type(error).__name__}: {error}"
        except Exception:  # an error whose message raises an error
            return type(error).__name__

    def _rescue(self, cell: dict) -> None:
        """Run a text cell that defines a wanted name no code cell has defined: the learner meant it as code."""
        for source in [found[1] for found in FENCE.findall(cell["source"])] or [cell["source"]]:
            try:
                names = _bound(self.shell.transform_cell(source))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            found = [name for name in names if name in self.given and not self.given[name]]
            if found:
                self._complain(cell, self._run({**cell, "source": source}))
                what = f"is a text cell that defines {found[0]}: it was read as code"
                self.troubles.append(f"cell {cell['number']} {what}")


def is_stub(value: Any) -> bool:
    """Return whether a function or class is empty: dots, pass, a docstring, NotImplementedError."""
    if inspect.isclass(value):
        plain = all(base in (object, torch.nn.Module) for base in value.__bases__)  # an inherited answer counts
        return plain and all(is_stub(part) for part in vars(value).values() if inspect.isfunction(part))
    if not inspect.isfunction(value):
        return False
    try:
        body = getattr(ast.parse(textwrap.dedent(inspect.getsource(value))).body[0], "body", None)
    except Exception:  # without source code, or not a function: then it is called
        return False
    return all(map(_empty, body)) if isinstance(body, list) else False


def _empty(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _annotated(source: str) -> set[str]:
    """Return the names used in annotations of a piece of code."""
    nodes: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            nodes.append(node.annotation)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes.append(node.returns)
    parts = [part for node in nodes if node is not None for part in ast.walk(node)]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def _bound(source: str, stubs: bool = True) -> list[str]:
    """Return the names that a piece of code defines at its top level. stubs: whether to include empty functions."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names += [node.name] if stubs or not all(map(_is_blank, node.body)) else []
        elif isinstance(node, ast.Assign):
            is_open = isinstance(node.value, ast.Constant) and node.value.value is ...
            names += [each.id for each in node.targets if isinstance(each, ast.Name)] if stubs or not is_open else []
    return names


def _is_blank(node: ast.stmt) -> bool:
    return all(map(_empty, node.body)) if isinstance(node, ast.FunctionDef) else _empty(node)


def complete_above(source: str) -> str:
    """Return the lines of the statements that end before the one with the syntax error; "" if there is no such error.

    Python's own parser decides: a statement may end where an unindented line begins.
    """
    try:
        ast.parse(source)
    except SyntaxError as error:
        lines = source.split("\n")
        begins = [i for i in range(1, min(error.lineno or 1, len(lines))) if BEGINS.match(lines[i])]
        for i in begins[: -MOST_CUTS - 1 : -1]:
            with suppress(SyntaxError):
                ast.parse(part := "\n".join(lines[:i]))
                return part
    return ""
