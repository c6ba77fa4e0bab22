"""A learner's own answers, saved as source once they have passed, so that later chapters can build on them.

A saved answer must run on its own, in a fresh namespace with torch, nn, F, np and math. Functions and classes of the
notebook that the answer calls are saved with it. A variable set in another cell is not, and a message names it.
"""

import ast
import builtins
import importlib
import inspect
import linecache
import symtable
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from course_lib.course import record
from course_lib.course.told import NoId, NothingKept, UnknownId
from course_lib.grading.lookup import LEFT_OUT, asked
from course_lib.grading.result import Result

GIVEN = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "np": "numpy", "math": "math"}
HERE = "mine"  # the module name of saved answers
PLAIN = (bool, int, float, str, type(None))  # types of notebook constants that can be written into the source


class NotAlone(Exception):
    """The error for an answer that does not run without its notebook. The message names the missing part."""


def mine(exercise_id: str = LEFT_OUT) -> Any:
    """Return your own answer to an exercise, the last one that passed: a function or class, or the text of a
    reflection.

    It is restored from its saved source, so you can use it in every notebook, at any later time. Use it for your own
    experiments and the ladder. A notebook that you hand in is graded elsewhere, without your record.

    Errors: KeyError for an unknown id, with the nearest ids; TypeError if the id is not text; ValueError if no answer
        is saved, with the remedy. A notebook shows only the message, without a traceback.
    """
    exercise = asked("mine", exercise_id)
    if isinstance(exercise, Result):
        raise (UnknownId if isinstance(exercise_id, str) else NoId)(exercise.sentences[0])
    if exercise.kind in ("number", "shapes", "choice", "file"):
        raise NothingKept(
            f"{exercise.id} does not ask for a function: mine returns only functions, classes and reflections."
        )
    entry = record.entries("answers").get(exercise.id)
    if not entry or not entry["source"]:
        raise NothingKept(
            f"You have no answer to {exercise.id!r} that passed: write one, and run check({exercise.id!r}, …) until it "
            "passes. Until then, leave this part out, and the library's own part is used."
        )
    if exercise.kind == "reflect":
        return str(entry["source"])
    return run_alone(entry["source"], entry["name"], exercise.id)


def run_alone(source: str, name: str, exercise_id: str) -> Any:
    """Return the object `name` that `source` defines in a fresh namespace. Errors: NotAlone if the source raises."""
    title = f"<your {exercise_id}>"
    linecache.cache[title] = (len(source), None, source.splitlines(keepends=True), title)  # for tracebacks
    space: dict[str, Any] = {name: importlib.import_module(module) for name, module in GIVEN.items()}
    space["__name__"] = HERE
    try:
        exec(compile(source, title, "exec"), space)
        return space[name]
    except Exception as error:
        raise NotAlone(f"on its own, it raises {type(error).__name__}: {error}") from error


def source_alone(answer: Any) -> str:
    """Return a program that defines `answer` and everything that it calls.

    Errors: NotAlone with the name that is missing, or with the reason why the source cannot be found.
    """
    parts: dict[str, str] = {}  # by name, each after the parts that it needs
    _collect(answer, _name(answer), parts, set())
    return "\n\n\n".join(parts.values()) + "\n"


def _name(thing: Any) -> str:
    """Return the name of a function or class, without running its code."""
    if type(thing) not in (type, FunctionType) and not isinstance(thing, type):
        raise NotAlone("it is neither a function nor a class. Write it with `def` or `class`.")
    if type(thing.__name__) is not str:
        raise NotAlone("its name is not plain text.")
    return thing.__name__


def _collect(thing: Any, name: str, parts: dict[str, str], begun: set[str]) -> None:
    """Add the outside names that a function or class uses, then its definition."""
    text, space = definition_of(thing, name)
    begun.add(name)
    for needed in sorted(names_from_outside(text) - begun):
        if needed in space:
            _add(needed, space[needed], parts, begun)
        elif needed not in GIVEN and not hasattr(builtins, needed):
            raise NotAlone(f"it uses `{needed}`, which is not defined anywhere. Define `{needed}` in the same cell.")
    parts[name] = text


def _add(name: str, value: Any, parts: dict[str, str], begun: set[str]) -> None:
    home = getattr(value, "__module__", None)
    if isinstance(value, ModuleType):
        if GIVEN.get(name) != value.__name__:
            parts[name] = f"import {value.__name__} as {name}"
    elif type(value) in PLAIN:
        parts[name] = f"{name} = {value!r}"
    elif isinstance(value, (FunctionType, type)) and home in ("__main__", HERE):
        own = _name(value)
        if own not in begun:
            _collect(value, own, parts, begun)
        if own != name:
            parts[name] = f"{name} = {own}"
    elif isinstance(home, str) and _is_importable(home, value):
        parts[name] = f"from {home} import {value.__name__} as {name}"
    else:
        raise NotAlone(
            f"it uses `{name}`, a {type(value).__name__} of your notebook. Create it inside the function, or pass it "
            "as an argument."
        )


def _is_importable(home: str, value: Any) -> bool:
    return getattr(sys.modules.get(home), getattr(value, "__name__", ""), None) is value


def definition_of(thing: Any, name: str) -> tuple[str, dict[str, Any]]:
    """Return the source of a function or class, and the namespace of its names."""
    function = inspect.unwrap(thing) if isinstance(thing, FunctionType) else thing  # the function inside its decorators
    if isinstance(thing, type):
        methods = [inspect.unwrap(value) for value in vars(thing).values() if isinstance(value, FunctionType)]
        if not methods:
            raise NotAlone("its source cannot be found: a class needs at least one method.")
        function = methods[0]
    code = function.__code__
    lines = linecache.getlines(code.co_filename)
    tree = ast.parse("".join(lines)) if lines else ast.Module([], [])
    kind = ast.ClassDef if isinstance(thing, type) else (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in tree.body if isinstance(node, kind) and node.name == name and _spans(node, code)]
    if not found:
        raise NotAlone("its source cannot be found. Write it with `def` or `class`, at the left edge of a cell.")
    first = min([found[0].lineno, *(decorator.lineno for decorator in found[0].decorator_list)])
    return "".join(lines[first - 1 : found[0].end_lineno]).rstrip(), function.__globals__


def _spans(node: ast.stmt, code: CodeType) -> bool:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return first <= code.co_firstlineno <= (node.end_lineno or node.lineno)


def names_from_outside(text: str) -> set[str]:
    """Return the names that a definition reads but does not set itself."""

    def of(table: symtable.SymbolTable) -> set[str]:
        own = {symbol.get_name() for symbol in table.get_symbols() if _is_global(symbol, table)}
        return own.union(*(of(child) for child in table.get_children()))

    top = symtable.symtable(text, "answer", "exec")
    set_here = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
    return {name for name in of(top) if name not in set_here and not name.startswith("__")}


def _is_global(symbol: symtable.Symbol, table: symtable.SymbolTable) -> bool:
    return symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")
