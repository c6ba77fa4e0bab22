"""What a fresh run of a learner's notebook will lack: names that an answer uses and that no cell sets any more.

A kernel keeps the names set by a deleted cell. An answer can therefore pass here and fail when the class's run executes
the file. This module reads the file as it was last saved. It reports nothing unless three conditions hold:

- the file contains the running cell;
- the file was saved after the cell that set the name had run;
- the whole file can be read.

It never reports a name that may be set in an undetected way (a star import, `exec`, `%run`).
"""

import ast
import contextlib
import dis
import functools
import json
import os
import re
import symtable
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from course_lib.grading.answers import NotAlone, definition_of, names_from_outside

UNSEEN = {"exec", "globals", "locals"}  # these can set names without an assignment
HARMLESS = {"autoreload", "config", "load_ext", "matplotlib", "pip", "time", "timeit"}  # line magics that set no names
WORD = re.compile(r"[^\W\d]\w*")
_began = time.time()
_ran: dict[int, float] = {}  # the number of a cell -> when it began to run


def note_when_cells_run() -> None:
    """Have the kernel, if there is one, record from now on when each cell runs."""
    shell = _shell()
    if shell is not None:
        shell.events.register("pre_run_cell", lambda _: _ran.update({shell.execution_count: time.time()}))


def will_lack(answer: Any, own_name: str = "") -> str:
    """Return a sentence about the names that a fresh run of the notebook will lack; "" if none is known.

    Args:
        answer: a function or a class, whose names are looked up. For any other answer, only its own name is checked.
        own_name: the name under which a class's run looks for the answer.
    """
    shell = _shell()
    path = _notebook(shell)
    if shell is None or path is None:
        return ""
    space = shell.user_ns
    names = {name for name in {own_name, *_used(answer, space)} if name in space and name not in shell.user_ns_hidden}
    saved = path.stat().st_mtime
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]
    here = shell.history_manager.input_hist_raw[-1].strip()
    if not names or here not in map(str.strip, cells):
        return ""
    made: set[str] = set()
    for cell in cells:
        found = _set_by(shell.transform_cell(cell))
        if found is None:
            return ""
        made |= found
    lacking = [f"`{name}`" for name in sorted(names - made) if _last_set(name, shell) < saved]
    if not lacking:
        return ""
    which = "that name" if len(lacking) == 1 else "these names"
    return (
        f"A fresh run of your notebook will lack {', '.join(lacking)}: no cell of the saved file sets {which}. "
        "Write a cell that does, because your answer needs it when your class is graded."
    )


def _shell() -> Any:
    """Return the IPython shell of the notebook in which this runs, if there is one."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


def _notebook(shell: Any) -> Path | None:
    """Return the path of the notebook. Jupyter's server and VS Code pass it to their kernel; elsewhere it is
    unknown."""
    named = shell and (shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME"))
    return Path(named) if isinstance(named, str) and Path(named).is_file() else None


# --- what an answer uses ----------------------------------------------------------------------------------------------


def _used(answer: Any, space: Mapping[str, Any]) -> set[str]:
    """Return the names of the notebook that an answer uses, directly or through other objects."""
    found: set[str] = set()
    waiting, seen = [answer], set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, functools.partial):
            waiting.append(thing.func)
        if isinstance(thing, (staticmethod, classmethod)):
            waiting.append(thing.__func__)
        if isinstance(thing, property):
            waiting += [thing.fget, thing.fset]
        if isinstance(thing, (FunctionType, type)) and thing.__module__ == "__main__":
            names = {*_read_by(thing), *_written(thing)}
            found |= names
            waiting += [space[name] for name in names if name in space]
            waiting += vars(thing).values() if isinstance(thing, type) else _held_by(thing)
            waiting += thing.__bases__ if isinstance(thing, type) else []
    return found


def _held_by(function: FunctionType) -> Iterator[Any]:
    """Yield the objects inside a decorated function or a closure."""
    yield getattr(function, "__wrapped__", None)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            yield cell.cell_contents


def _read_by(thing: Any) -> Iterator[str]:
    """Yield the global names that the code of a function reads, or the names of a class's bases."""
    if isinstance(thing, type):
        yield from (base.__name__ for base in thing.__bases__ if base.__module__ == "__main__")
        return
    codes = [thing.__code__]
    while codes:
        code = codes.pop()
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
        yield from (
            str(step.argval) for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        )


def _written(thing: Any) -> set[str]:
    """Return the names that the source of a definition reads, including decorators and defaults, which are not in its
    code."""
    try:
        return names_from_outside(definition_of(thing, thing.__name__)[0])
    except (NotAlone, SyntaxError):  # a lambda, a function within another
        return set()


# --- what cells set ---------------------------------------------------------------------------------------------------


def _set_by(cell: str) -> set[str] | None:
    """Return the names that a cell sets or may set through its magics and strings, or None if it may set any name."""
    try:
        tree, table = ast.parse(cell), symtable.symtable(cell, "cell", "exec")
    except SyntaxError:  # unfinished code, or an `await`
        return None if "import *" in cell else set(WORD.findall(cell))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
        if isinstance(node, ast.Name) and node.id in UNSEEN:
            return None
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "").startswith("run_"):  # a magic
            if ast.unparse(node.func).endswith("run_line_magic") and ast.literal_eval(node.args[0]) not in HARMLESS:
                return None
            found.update(WORD.findall(ast.unparse(node)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found.add(node.value)  # as in setattr
    return found | _assigned(table)


def _assigned(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    own = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if (symbol.is_assigned() or symbol.is_imported()) and (top or symbol.is_declared_global())
    }
    return own.union(*map(_assigned, table.get_children()))


def _last_set(name: str, shell: Any) -> float:
    """Return when the last cell that sets a name began to run, or infinity if no known cell set it."""
    cells = list(enumerate(shell.history_manager.input_hist_parsed))
    for number, cell in reversed(cells):
        try:
            if name in _assigned(symtable.symtable(cell, "cell", "exec")):
                return _ran.get(number, _began)
        except SyntaxError:
            continue
    return float("inf")
