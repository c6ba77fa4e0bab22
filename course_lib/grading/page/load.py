"""Turn a page and its module into the exercise that they declare, or report what is wrong and where."""

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
from markdown_it.token import Token

from course_lib.grading.exercise import Option
from course_lib.grading.kinds import KINDS, Exercise
from course_lib.grading.mistakes import (
    Along,
    Change,
    Definition,
    Expression,
    FormError,
    Lines,
    Reference,
    Value,
    WrittenMistake,
    parameters_of,
)
from course_lib.grading.page.format import (
    FEWEST_HINTS,
    FEWEST_MISTAKES,
    MAY,
    OPTIONAL,
    PARTS,
    Block,
    Page,
    PageError,
    Section,
    listed,
    nearest,
    one_line,
    read_page,
    require_known_head,
)

FROM_THE_HEAD = ("title", "points", "difficulty", "minutes", "rtol", "atol", "time_limit", "min_words", "file")
CALLED = dict.fromkeys(("code", "experiment"), ("probe", "summary", "judge")) | {"file": ("probe", "judge", "same")}
LISTS = ("forbidden", "may_change", "returns", "library", "functions")


def exercise_of(
    text: str, path: str, exercise_id: str, chapter: int, source: str | None, load: Callable[[], ModuleType]
) -> Exercise:
    """Return the exercise that a page declares.

    Args:
        text, path: of the page; error messages quote the path.
        source: of its module, or None if there is none.
        load: imports the module.
    Errors: PageError, with file, line and remedy.
    """
    page = read_page(text, path)
    require_known_head(page.head, text, path)
    kind = page.head["kind"]
    require_parts(page, kind)
    fields: dict[str, Any] = {name: page.head[name] for name in FROM_THE_HEAD if name in page.head}
    fields |= {name: tuple(page.head[name]) for name in LISTS if name in page.head}
    fields |= {"id": exercise_id, "chapter": chapter, "why": page.prose("Why"), "hints": page.items("Hints")}
    if kind in ("code", "experiment", "file"):
        fields |= _called(page, source, load)
    elif kind in ("number", "shapes"):
        fields |= _valued(page, exercise_id.replace(".", "_"))
    elif kind == "choice":
        fields |= _chosen(page, load)
    else:
        fields |= {"model_answer": page.prose("Model answer"), "rubric": page.items("Rubric")}
    try:
        return KINDS[kind](**fields)
    except ValueError as error:
        raise page.error(1, str(error)) from None


def require_parts(page: Page, kind: str) -> None:
    """Raise a PageError for a part that is missing, unknown, or too short."""
    known = PARTS[kind] | OPTIONAL | ({"Second slips"} if "signature" in MAY[kind] else set())
    for part in page.parts.values():
        if part.title not in known:
            problem = f"a page of kind {kind} has no part {part.title!r}{nearest(part.title, known)}"
            raise page.error(part.line, f"{problem}. It may have {listed(known)}")
        if part.sections and part.title != "Mistakes":
            raise page.error(part.sections[0].line, f"only ## Mistakes has subsections: make {part.title!r} one text")
    if missing := sorted(PARTS[kind] - set(page.parts)):
        raise page.error(1, f"a page of kind {kind} lacks ## {missing[0]}")
    if not page.statement:
        raise page.error(1, "the statement is missing: write it below the front matter")
    hints = page.items("Hints")
    if len(hints) < FEWEST_HINTS:
        found = f"a page needs at least {FEWEST_HINTS} hints, and this has {len(hints)}: write a list `1. …`"
        raise page.error(page.parts["Hints"].line, found)
    if len(set(hints)) < len(hints):
        raise page.error(page.parts["Hints"].line, "two hints are the same")
    fewest = FEWEST_MISTAKES.get(kind, 0)
    if fewest and len(page.parts["Mistakes"].sections) < fewest:
        found = f"a page needs at least {fewest} mistakes, and this has {len(page.parts['Mistakes'].sections)}"
        raise page.error(page.parts["Mistakes"].line, f"{found}: ### name, its forms, its sentence")


# --- code and experiment ----------------------------------------------------------------------------------------------


def _called(page: Page, source: str | None, load: Callable[[], ModuleType]) -> dict[str, Any]:
    signature = page.head["signature"]
    name = signature.partition("(")[0].strip()
    beside = page.path.removesuffix(".md") + ".py"
    if source is None:
        raise page.error(1, f"{beside} is missing: it holds the reference and the stages")
    try:
        parameters = parameters_of(signature)
    except FormError as error:
        raise page.error(1, str(error)) from None
    module = load()
    answer = getattr(module, name, None)
    if not callable(answer):
        raise PageError(beside, 1, f"the reference is missing: define `{name}`, as the page's signature says")
    stages = [each for each in vars(module).values() if getattr(each, "is_stage", False)]
    if not stages:
        raise PageError(beside, 1, "no function is marked with @stage: the stages make the cases")
    for stage in stages:
        if not (stage.__doc__ or "").strip():
            line = stage.__code__.co_firstlineno
            raise PageError(beside, line, f"the stage `{stage.__name__}` needs a docstring: the learner reads it")
    functions = tuple(page.head.get("functions", ()))
    reference = Reference(source, lambda: vars(module), name, parameters, isinstance(answer, type), functions)
    return {
        "signature": signature,
        "reference": answer,
        "module": isinstance(answer, type) and page.head["kind"] != "file",
        "stages": stages,
        "misconceptions": _mistakes(page, reference, None),
        **{each: getattr(module, each) for each in CALLED[page.head["kind"]] if hasattr(module, each)},
    }


# --- number and shapes ------------------------------------------------------------------------------------------------


def _valued(page: Page, name: str) -> dict[str, Any]:
    names: dict[str, Any] = {"math": math, "torch": torch}
    told = page.head.get("reference")
    if told is None:
        fence = answer_block(page)
        try:
            exec(compile(fence.text, page.path, "exec"), names)
        except Exception as error:
            raise page.error(fence.line, f"the answer cannot be computed: {type(error).__name__}: {error}") from None
        if name not in names:
            raise page.error(fence.line, f"the block should assign the answer: `{name} = …`")
        reference = names[name]
    else:
        try:
            reference = eval(told, names) if isinstance(told, str) else told
        except Exception as error:
            raise page.error(1, f"reference: {told} has no value: {type(error).__name__}: {error}") from None
        names[name] = reference
    mistakes = _mistakes(page, None, names)
    keys = reference.keys() if isinstance(reference, Mapping) else None
    for mistake, section in zip(mistakes, page.parts["Mistakes"].sections):
        for wrong in mistake.variants:
            if keys is not None and not (isinstance(wrong, Mapping) and wrong.keys() <= keys):
                raise page.error(
                    section.line, f"{mistake.name!r} must be a dictionary of wrong parts, with keys from {listed(keys)}"
                )
    return {"reference": reference, "misconceptions": mistakes}


def answer_block(page: Page) -> Block:
    """Return the python block of ## Answer. Errors: PageError if it is missing."""
    fences = [block for block in page.blocks("Answer") if block.fence == "python"]
    if len(fences) != 1:
        line = page.parts["Answer"].line if "Answer" in page.parts else 1
        raise page.error(line, f"## Answer must have one python block, and this has {len(fences)}")
    return fences[0]


# --- mistakes ---------------------------------------------------------------------------------------------------------


def _mistakes(page: Page, reference: Reference | None, names: Mapping[str, Any] | None) -> list[WrittenMistake]:
    mistakes, seen, slips = [], set(), _second_slips(page, reference)
    for section in page.parts["Mistakes"].sections:
        section, hint = _hint_of(page, section)
        if section.title in seen:
            raise page.error(section.line, f"a second mistake named {section.title!r}: names must differ")
        seen.add(section.title)
        mistakes.append(replace(_mistake(page, section, reference, names, slips), hint=hint))
    return mistakes


def _hint_of(page: Page, section: Section) -> tuple[Section, int]:
    """Return a mistake's section with only its name as a title, and the number of the hint for it, or 0."""
    found = re.fullmatch(r"(.+) \(hint (\d+)\)", section.title)
    if not found:
        return section, 0
    hints = len(page.items("Hints"))
    if not 1 <= int(found[2]) <= hints:
        raise page.error(section.line, f"{found[1]!r} names hint {found[2]}: the page has hints 1 to {hints}")
    return replace(section, title=found[1]), int(found[2])


def _second_slips(page: Page, reference: Reference | None) -> list[Change]:
    """Return the changes that a page applies to each of its mistakes."""
    slips: list[Change] = []
    if reference is None:
        return slips
    for block in page.blocks("Second slips"):
        try:
            for form in _forms(block, None)[0]:
                if not isinstance(form, Change):
                    raise FormError("a second slip must be a change of the reference, `old` → `new`")
                form.require_sound(reference)
                slips.append(form)
        except FormError as error:
            raise page.error(block.line, f"Second slips: {error}") from None
    return slips


def _with_second_slips(forms: list, slips: list[Change], reference: Reference | None) -> list:
    """Return the forms and, for each change of the reference, that form with every slip that still fits."""
    found = list(forms)
    if reference is None:
        return found
    for form in forms:
        for slip in slips if isinstance(form, (Change, Lines)) else ():
            twice = Along(form, slip)
            with contextlib.suppress(FormError):
                twice.require_sound(reference)
                found.append(twice)
    return found


def _mistake(
    page: Page, section: Section, reference: Reference | None, names: Mapping[str, Any] | None, slips: list[Change]
) -> WrittenMistake:
    forms: list[Change | Lines | Along | Expression | Definition | Value] = []
    sentences: list[str] = []
    room = None
    for block in section.blocks:
        rest = block.prose if block.fence is None else block.text
        if not sentences:
            try:
                new, within, rest = _forms(block, names)
                for form in new:
                    form.require_sound(reference)
            except FormError as error:
                raise page.error(block.line, f"{section.title!r}: {error}") from None
            forms += new
            room = within or room
        sentences += [rest] if rest else []
    if not forms:
        raise page.error(
            section.line, f"{section.title!r} has no form: write `old` → `new`, `an expression`, or a block"
        )
    if not sentences:
        raise page.error(
            section.line, f"{section.title!r} has no sentence: say what the answer does, and why that is wrong"
        )
    forms = _with_second_slips(forms, slips, reference)
    return WrittenMistake(section.title, "\n\n".join(sentences), tuple(forms), reference, room or 1e-9)


def _forms(block: Block, names: Mapping[str, Any] | None) -> tuple[list, float | None, str]:
    """Return the forms at the beginning of a block, their tolerance, and the prose after them."""
    if block.fence in ("python", "diff"):
        if names is not None:
            return [Value(block.text, names)], None, ""
        return [Lines(block.text) if block.fence == "diff" else _python(block.text)], None, ""
    if block.inline is None:
        return [], None, block.prose
    forms: list[Change | Expression | Value] = []
    room, taken = None, 0
    for pieces in _lines(block.inline):
        if pieces is None:
            break
        taken += 1
        texts = [text for _, text in pieces]
        if "→" in texts:
            forms.append(_change(pieces))
            continue
        for number, (kind, text) in enumerate(pieces):
            if kind == "code" and texts[number - 1 : number] == ["within"]:
                room = float(text)
            elif kind == "code":
                forms.append(Expression(text) if names is None else Value(text, names))
    return forms, room, one_line("\n".join(block.text.splitlines()[taken:]))


def _python(text: str) -> Expression | Definition:
    try:
        compile(text, "<form>", "eval")
    except SyntaxError:
        return Definition(text)
    return Expression(text)


WORDS = re.compile(r"→|,|nothing|everywhere|within")


def _lines(paragraph: Token) -> list[list[tuple[str, str]] | None]:
    """Return for each line of a paragraph the code spans and words of its form, without "also"; None for prose."""
    lines: list[list[tuple[str, str]] | None] = [[]]
    for child in paragraph.children or ():
        if child.type == "softbreak":
            lines.append([])
        elif lines[-1] is None:
            continue
        elif child.type == "code_inline":
            lines[-1].append(("code", child.content))
        elif child.type == "text":
            text = child.content if lines[-1] else child.content.removeprefix("also")
            lines[-1] = (
                None if WORDS.sub("", text).strip() else [*lines[-1], *(("word", w) for w in WORDS.findall(text))]
            )
        else:
            lines[-1] = None
    return lines


def _change(line: list[tuple[str, str]]) -> Change:
    replaced, group = [], []
    for piece in [*line, ("word", ",")]:
        if piece != ("word", ","):
            group.append(piece)
            continue
        everywhere = group[-1:] == [("word", "everywhere")]
        kinds = [text if kind == "word" else kind for kind, text in (group[:-1] if everywhere else group)]
        if kinds not in (["code", "→", "code"], ["code", "→", "nothing"]):
            raise FormError("a change is written `old` → `new`, or → nothing, with commas between several")
        new = "" if kinds[2] == "nothing" else group[2][1]
        replaced.append((group[0][1], new, everywhere))
        group = []
    return Change(tuple(replaced))


# --- choice -----------------------------------------------------------------------------------------------------------


def _chosen(page: Page, load: Callable[[], ModuleType]) -> dict[str, Any]:
    """Return the options of a choice; of a numbered one, those for number 1 and the function for any number."""
    written = tuple(_options(page))
    if not page.head.get("numbered"):
        return {"options": written}
    module = load()
    if not callable(getattr(module, "numbered", None)):
        beside = page.path.removesuffix(".md") + ".py"
        raise PageError(beside, 1, "a numbered choice needs a function `numbered(number, written)` in this module")
    numbered = partial(module.numbered, written=written)
    return {"options": tuple(numbered(1)), "numbered": numbered}


OPTION = re.compile(r"\[(?P<mark>[ xX])\] `(?P<key>[^`]+)`: (?P<text>.+)", re.DOTALL)


def _options(page: Page) -> list[Option]:
    options: list[Option] = []
    for block in page.blocks("Options"):
        for first, *rest in block.items:
            if not rest:  # the first line is the text, the others are the reason
                first, _, reason = first.partition("\n")
                rest = [reason]
            found = OPTION.fullmatch(first)
            if not found or not rest[0]:
                raise page.error(
                    block.line, f"an option is written - [x] `key`: text, then its reason; not {first[:60]!r}"
                )
            key = found["key"]
            if key in {option.key for option in options}:
                raise page.error(block.line, f"a second option {key!r}: keys must differ")
            options.append(Option(key, one_line(found["text"]), found["mark"] != " ", one_line("\n".join(rest))))
    return options
