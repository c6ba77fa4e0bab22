"""The mistakes of a page: how to write each one, and how it becomes code.

A form of a mistake is a change of the reference, an expression in the signature's names, or a piece of Python. It is
read and checked together with its page. It becomes a function, class or value when an answer is first compared with it.
"""

import ast
import io
import itertools
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from course_lib.grading import slips


class FormError(ValueError):
    """The error for an invalid form; the message has the remedy."""


@dataclass(frozen=True)
class Reference:
    """The material from which the mistakes of a page are made.

    Fields:
        source: of the page's module.
        namespace: returns the module's namespace, which is created on first use.
        name, parameters: of the answer, as written in the signature.
        is_class: whether the answer is a class.
        also: names of definitions that belong to the answer, although it does not use them.
    """

    source: str
    namespace: Callable[[], Mapping[str, Any]]
    name: str
    parameters: str
    is_class: bool
    also: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """Return the source of the answer and of all helpers that it uses, with comments and docstrings blanked."""
        tree, lines = ast.parse(self.source), bare(self.source).splitlines()
        definitions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        used, waiting = set(), [self.name, *self.also]
        while waiting:
            name = waiting.pop()
            if name in definitions and name not in used:
                used.add(name)
                waiting += [node.id for node in ast.walk(definitions[name]) if isinstance(node, ast.Name)]
        kept = []
        for name, node in definitions.items():
            if name in used:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                kept += [line.rstrip() for line in lines[first - 1 : node.end_lineno]]
        return "\n".join(line for line in kept if line) + "\n"


def bare(source: str) -> str:
    """Return Python source with comments and docstrings blanked, so that no change finds its words there."""
    lines = [list(line) for line in source.splitlines()]

    def blank(start: tuple[int, int], end: tuple[int, int]) -> None:
        for row in range(start[0], end[0] + 1):
            line = lines[row - 1]
            first = start[1] if row == start[0] else 0
            last = end[1] if row == end[0] else len(line)
            line[first:last] = " " * (last - first)

    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            blank(token.start, token.end)
    text = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or ast.get_docstring(node) is None:
            continue
        if len(node.body) > 1:
            first, last = ((row, len(text[row - 1].encode()[:column].decode())) for row, column in _ends(node.body[0]))
            blank(first, last)
    return "\n".join("".join(line) for line in lines)


def _ends(node: ast.stmt) -> list[tuple[int, int]]:
    assert node.end_lineno is not None  # parsed nodes always have both
    assert node.end_col_offset is not None
    return [(node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)]


# --- forms ------------------------------------------------------------------------------------------------------------


class Changed:
    """The reference with a change: `applied_to` makes the change in a text."""

    def applied_to(self, text: str, name: str) -> str:
        """Return the changed text, which errors call `name`. Errors: FormError if the change does not fit."""
        raise NotImplementedError

    def text(self, reference: Reference) -> str:
        """Return the changed source."""
        return self.applied_to(reference.text, reference.name)

    def require_sound(self, reference: Reference) -> None:
        """Raise a FormError unless the change fits and the result is valid Python."""
        _require_python(self.text(reference))

    def changes(self, reference: Reference) -> set[str]:
        """Return the names of the definitions in which the changed source differs."""
        before, after = (
            {node.name: ast.dump(node) for node in ast.parse(text).body if hasattr(node, "name")}
            for text in (reference.text, self.text(reference))
        )
        return {name for name in before if before[name] != after.get(name)}

    def made(self, reference: Reference) -> Any:
        """Return the changed function or class."""
        return _defined(self.text(reference), reference, reference.name)


@dataclass(frozen=True)
class Change(Changed):
    """The reference with words replaced: (old, new, everywhere), one replacement after another. Each must be found."""

    replaced: tuple[tuple[str, str, bool], ...]

    def applied_to(self, text: str, name: str) -> str:
        for old, new, everywhere in self.replaced:
            count = text.count(old)
            if count == 0:
                raise FormError(f"`{old}` does not occur in `{name}` or what it uses: copy it from there")
            if count > 1 and not everywhere:
                raise FormError(
                    f"`{old}` occurs {count} times in `{name}` and what it uses: "
                    "include more of the line, or write everywhere after the change"
                )
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Lines(Changed):
    """The reference with whole lines replaced, written as a diff: "-" removes, "+" adds, " " keeps a line.

    The kept and removed lines must occur exactly once.
    """

    diff: str

    def applied_to(self, text: str, name: str) -> str:
        lines = text.splitlines()
        hunks: list[list[tuple[str, str]]] = []
        hunk: list[tuple[str, str]] = []
        for line in self.diff.splitlines():
            gap = line.strip() in ("", "...")
            if not gap and line[0] not in "-+ ":
                raise FormError(f"a line of a diff must begin with -, + or a space: {line!r} does not")
            if not gap:
                hunk.append((line[0], line[1:].rstrip()))
            elif hunk:
                hunks, hunk = [*hunks, hunk], []
        for each in [*hunks, hunk] if hunk else hunks:
            lines = _with_hunk(lines, each, name)
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Along(Changed):
    """A mistake that is a change of the reference, with a second change applied to it."""

    mistake: Change | Lines
    slip: Change | Lines

    def applied_to(self, text: str, name: str) -> str:
        return self.slip.applied_to(self.mistake.applied_to(text, name), name)


def _with_hunk(lines: list[str], hunk: list[tuple[str, str]], name: str) -> list[str]:
    old = [text for sign, text in hunk if sign != "+"]
    if not old:
        raise FormError("a diff that adds lines also needs a line that stays, written with a space before it")
    margin = min(len(text) - len(text.lstrip()) for _, text in hunk)
    old = [_bare_line(text[margin:]) for text in old]
    places = []
    for start in range(len(lines) - len(old) + 1):
        there = lines[start : start + len(old)]
        indent = min(len(line) - len(line.lstrip()) for line in there)
        least = min(len(line) - len(line.lstrip()) for line in old)
        if [line[indent:] for line in there] == [line[least:] for line in old]:
            places.append((start, indent - least))
    if len(places) != 1:
        found = "do not occur" if not places else f"occur {len(places)} times"
        raise FormError(
            f"the lines {old} {found} in `{name}` and what it uses: copy them from there, with neighbouring lines"
        )
    start, shift = places[0]
    new = [" " * shift + text[margin:] if shift >= 0 else text[margin - shift :] for sign, text in hunk if sign != "-"]
    return [*lines[:start], *new, *lines[start + len(old) :]]


def _bare_line(line: str) -> str:
    """Return a line without its comment, as the reference's own lines are."""
    with_end = itertools.takewhile(lambda token: token.type != tokenize.COMMENT, _tokens(line))
    ends = [token.end[1] for token in with_end if token.string.strip()]
    return line[: max(ends)] if ends else line


def _tokens(line: str) -> list[tokenize.TokenInfo]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.strip()).readline):
            found.append(token._replace(end=(1, token.end[1] + len(line) - len(line.lstrip()))))
    except (tokenize.TokenError, IndentationError, SyntaxError):  # a bracket that closes on a later line
        pass
    return found


@dataclass(frozen=True)
class Expression:
    """The return value of a learner with this mistake, in the signature's names; for a class exercise, the class."""

    text: str

    def require_sound(self, reference: Reference) -> None:
        """Raise a FormError unless this is an expression."""
        _require_python(self._source(reference), "eval")

    def _source(self, reference: Reference) -> str:
        return f"({self.text}\n)" if reference.is_class else f"lambda {reference.parameters}: ({self.text}\n)"

    def made(self, reference: Reference, **replaced: Any) -> Any:
        """Return a function with the exercise's signature, or the class; `replaced` replaces names of the module."""
        code = compile(self._source(reference), f"<a mistake in {reference.name}>", "eval")
        return eval(code, {**slips.NAMES, **reference.namespace(), **replaced})


@dataclass(frozen=True)
class Definition:
    """Python that ends by defining a function or a class."""

    text: str

    def require_sound(self, reference: Reference) -> None:
        """Raise a FormError unless the last statement is a definition."""
        last = _require_python(self.text).body[-1:]
        if not last or not isinstance(last[0], (ast.FunctionDef, ast.ClassDef)):
            raise FormError("a python block of a mistake must end with the definition of a function or a class")

    def made(self, reference: Reference, **replaced: Any) -> Any:
        """Return the function or class that is defined last; `replaced` replaces names of the module."""
        last = ast.parse(self.text).body[-1]
        assert isinstance(last, (ast.FunctionDef, ast.ClassDef))  # `require_sound` has checked this
        return _defined(self.text, reference, last.name, **replaced)


@dataclass(frozen=True)
class Value:
    """A wrong number or shape, or a dictionary of wrong parts: an expression in the names of the answer's block."""

    text: str
    names: Mapping[str, Any]

    def require_sound(self, reference: None) -> None:
        """Raise a FormError unless the expression has a value."""
        _require_python(f"({self.text}\n)", "eval")
        try:
            self.made(reference)
        except Exception as error:
            raise FormError(f"`{self.text}` has no value: {type(error).__name__}: {error}") from None

    def made(self, reference: None) -> Any:
        """Return the value."""
        return eval(f"({self.text}\n)", dict(self.names))


def _require_python(source: str, mode: str = "exec") -> Any:
    try:
        return compile(source, "<a mistake>", mode, ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise FormError(f"this is not valid Python: {error.msg}{f' in `{line}`' if line else ''}") from None


def _defined(source: str, reference: Reference, name: str, **replaced: Any) -> Any:
    namespace = {**slips.NAMES, **reference.namespace(), **replaced}
    exec(compile(source, f"<a mistake in {reference.name}>", "exec"), namespace)
    return namespace[name]


@dataclass(frozen=True, eq=False)
class WrittenMistake:
    """A mistake as written on a page, with the fields of a Misconception. Its forms become code on first use."""

    name: str
    sentence: str
    forms: Sequence[Change | Lines | Along | Expression | Definition | Value]
    reference: Reference | None = None
    rtol: float = 1e-9
    hint: int = 0

    @cached_property
    def variants(self) -> list:
        return [self._made(form) for form in self.forms]

    @cached_property
    def changes(self) -> set[str]:
        """Return the names of the definitions of the reference that this mistake changes, if it changes any."""
        changed = (form.changes(self.reference) for form in self.forms if isinstance(form, Changed) and self.reference)
        return set().union(*changed)

    def _made(self, form: Change | Lines | Along | Expression | Definition | Value) -> Any:
        if isinstance(form, Value):
            return form.made(None)
        assert self.reference is not None  # the other forms belong to code, whose pages have a reference
        return form.made(self.reference)

    @property
    def wrong(self) -> Any:
        return self.variants[0]

    @property
    def also(self) -> list:
        return self.variants[1:]


def parameters_of(signature: str) -> str:
    """Return the parameters in a signature, as written there. Errors: FormError if it is not a signature."""
    try:
        node = ast.parse(f"def {signature.partition('->')[0].strip()}: ...").body[0]
    except SyntaxError:
        raise FormError(f"{signature!r} is not a signature such as softmax(x, dim)") from None
    assert isinstance(node, ast.FunctionDef)  # it begins with "def"
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(node.args)
