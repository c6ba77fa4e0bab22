"""Finds what is not plain English in the prose of the course, as far as patterns can. The rules: `.github/ENGLISH.md`.

    python -m tests.english [FILE …]        notebooks, Markdown, Python; default: all that CI checks

Grammar and spelling are checked by Harper, which runs offline. `english.toml` has the turns of phrase that the course
avoids, with what to write instead, the rules of Harper that do not fit, and the field's words that it does not know.
"""

import argparse
import json
import re
import sys
import tokenize
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

from harper import Dialect, Linter

ROOT = Path(__file__).parent.parent
LISTS = tomllib.loads((Path(__file__).parent / "english.toml").read_text(encoding="utf-8"))
CHECKED = [
    path
    for pattern in (
        "notebooks/*.ipynb",
        "course_lib/chapters/*/guesses.md",
        "course_lib/chapters/*/glossary.md",
        "course_lib/chapters/*/exercises/*.md",
        "README.md",
        ".github/*.md",
        "course_lib/*.py",
    )
    for path in sorted(ROOT.glob(pattern))
]

# Not prose: fences, code, mathematics, addresses, tags, and what stands in quotation marks, which are others' words.
NOT_PROSE = re.compile(
    r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$|https?://[^\s)]+|<[^>\n]*>|“[^”]*”", re.DOTALL
)  # fmt: skip
# Other names of a term, and in an exercise's page the name and the code of a mistake.
CODE_LINE = re.compile(r"also:? |### |`[^`]+` (→|within)")


@dataclass(frozen=True)
class Place:
    """A place to read again: where, what, and what to do."""

    path: Path
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        name = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{name}:{self.line}: {self.found!r}: {self.instead}"


def lines_of(path: Path) -> list[tuple[int, str]]:
    """Return the lines of prose: (number in the file, line). Of Markdown all, of a notebook those of its text cells,
    of Python comments, docstrings and what strings say."""
    raw = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".py":
        return [line for token in tokenize.generate_tokens(iter([f"{line}\n" for line in raw]).__next__)
                for line in _said(token)]  # fmt: skip
    if path.suffix != ".ipynb":
        return [(number, "" if CODE_LINE.match(line) else line) for number, line in enumerate(raw, 1)]
    found, at = [], 0
    for cell in json.loads("\n".join(raw))["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        for line in "".join(cell["source"]).splitlines(keepends=True):
            stored = json.dumps(line, ensure_ascii=False)
            at = next((i for i in range(at, len(raw)) if raw[i].strip().rstrip(",") == stored), at)
            found.append((at + 1, line.rstrip("\n")))
        found.append((at + 1, ""))
    return found


def _said(token: tokenize.TokenInfo) -> Iterator[tuple[int, str]]:
    """Yield what a token of Python says to a reader, line by line; a string of one or two words is a name."""
    if token.type == tokenize.COMMENT:
        yield token.start[0], token.string.lstrip("#! ")
        yield token.start[0], ""
    elif token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)):
        text = re.sub(r"\{[^{}]*\}", "X", re.sub(r"^[A-Za-z]*[\"']+|[\"']+$", "", token.string))
        if len(text.split()) > 2:
            yield from enumerate(map(str.strip, text.splitlines()), token.start[0])


def words(path: Path) -> int:
    """Count the words of prose."""
    return len(NOT_PROSE.sub(" ", "\n".join(line for _, line in lines_of(path))).split())


def turns(path: Path, kind: str) -> Iterator[Place]:
    """Yield the turns of phrase of one kind, "banned" or "rare", of english.toml."""
    numbers, text = _joined(path)
    prose = NOT_PROSE.sub(lambda found: re.sub(r"[^\n]", "¤", found.group()), text)
    for pattern, instead in LISTS[kind].items():
        for found in re.finditer(pattern, prose, re.IGNORECASE):
            yield Place(path, numbers(found.start()), found.group().strip(), instead)


def grammar(path: Path) -> Iterator[Place]:
    """Yield what Harper finds by the rules that are on: grammar, doubled words, spelling."""
    numbers, text = _joined(path)
    text = re.sub(r"<[^>\n]*>", lambda found: " " * len(found.group()), text)
    for name, lints in _linter().organized_lints(text, regex_mask=r"\$[^$\n]+\$|“[^”]*”").items():
        for lint in lints:
            found = lint.problem_text
            # Two lines, or two cells of a table, are two things: an option and its reason, a term and its definition.
            if (name == "SpellCheck" and _known(found)) or (name != "LongSentences" and "\n" in found) or "|" in found:
                continue
            yield Place(path, numbers(lint.span.start), lint.problem_text, f"{lint.message} ({name})")


def _known(word: str) -> bool:
    """Whether a word that Harper does not know is a symbol, a code name or one of the field's words."""
    plain = re.sub(r"[’']s$|\.$", "", word)
    return len(plain) < 3 or bool(re.search(r"\d|_", plain)) or plain.lower() in LISTS["spelling"]["words"]


@cache
def _linter() -> Linter:
    linter = Linter(Dialect.BRITISH)
    rules = dict.fromkeys(linter.get_default_lint_config(), True)
    unknown = set(LISTS["harper"]["off"]) - rules.keys()
    if unknown:
        raise ValueError(f"english.toml switches off rules that Harper does not have: {sorted(unknown)}")
    linter.set_lint_config(linter.get_default_lint_config() | dict.fromkeys(LISTS["harper"]["off"], False))
    return linter


def _joined(path: Path):
    """Return (offset -> line in the file, the prose as one text)."""
    lines = lines_of(path)
    starts = list(accumulate((len(line) + 1 for _, line in lines), initial=0))
    return (lambda offset: lines[bisect_right(starts, offset) - 1][0]), "\n".join(line for _, line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print every place of the files that are named, and how many there are per 1,000 words."""
    parser = argparse.ArgumentParser(prog="python -m tests.english", description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: all that CI checks")
    parser.add_argument("--fast", action="store_true", help="turns of phrase only, without Harper")
    arguments = parser.parse_args(argv)
    paths = [path.resolve() for path in arguments.files] or CHECKED
    places = {
        path: [*turns(path, "banned"), *turns(path, "rare"), *(() if arguments.fast else grammar(path))]
        for path in paths
    }
    for found in places.values():
        print(*found, sep="\n", end="\n" if found else "")
    total, length = sum(map(len, places.values())), sum(map(words, paths))
    print(f"{total} places in {len(paths)} files, {1000 * total / max(1, length):.1f} per 1,000 words")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
