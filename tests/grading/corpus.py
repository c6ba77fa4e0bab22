"""Submissions written as text: a case is one file in percent format, which becomes a notebook and what lies beside it.

# What a learner did, or tried, in a sentence or two.
# expects: attention.softmax attention.memory      the exercises that are graded
# earns: attention.memory                          those that it honestly earns; none if left out
# touches: canary                                  what a test looks at afterwards, if anything
# %%                                               a code cell; its text is taken as it stands
# %% [markdown]                                    a markdown cell, or [raw], as it stands
# %% [file helper.py]                              a file beside the notebook
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NOTEBOOK = "answers.ipynb"
FIELDS = ("expects", "earns", "touches")
_MARK = re.compile(r"^# %%(?: \[(?:(?P<kind>markdown|raw)|file (?P<file>[^\]]+))\])?$", flags=re.MULTILINE)
_STATED = re.compile(rf"({'|'.join(FIELDS)}):(.*)")


@dataclass(frozen=True)
class Case:
    """One submission and what becomes of it. files: path beside the notebook -> text."""

    name: str
    about: str
    expects: tuple[str, ...]
    earns: tuple[str, ...]
    notebook_json: str
    files: Mapping[str, str] = field(default_factory=dict)
    touches: tuple[str, ...] = ()
    notebook: str = NOTEBOOK  # its name

    def __post_init__(self):
        if not (self.about and self.expects and set(self.earns) <= set(self.expects)):
            raise ValueError(f"{self.name}: say what it is about, what it expects, and let it earn some of that")

    def write(self, folder: Path) -> Path:
        """Its files in a new folder below `folder`, byte for byte; returns the new folder."""
        place = folder / self.name
        for name, text in {self.notebook: self.notebook_json, **self.files}.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        return place


def cases(folder: Path) -> list[Case]:
    """Every case of a folder, by name."""
    return [read(path) for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]


def read(path: Path) -> Case:
    """The case that a file holds. Errors: ValueError for a header that states nothing, or states a thing twice."""
    header, *parts = _MARK.split(path.read_text(encoding="utf-8"))
    about, stated = [], {}
    for line in header.splitlines():
        text = line.removeprefix("#").strip()
        if found := _STATED.fullmatch(text):
            if found[1] in stated:
                raise ValueError(f"{path.name} states {found[1]} twice")
            stated[found[1]] = tuple(found[2].split())
        elif text:
            about.append(text)
    cells, files = [], {}
    for kind, file, text in zip(parts[0::3], parts[1::3], parts[2::3]):
        if file:
            files[file] = text.removeprefix("\n")
        else:
            cells.append((kind or "code", text.strip("\n")))
    stated = {name: stated.get(name, ()) for name in FIELDS}
    return Case(path.stem, " ".join(about), **stated, notebook_json=notebook(cells), files=files)


def notebook(cells: list[tuple[str, str]], **metadata) -> str:
    """A notebook of nbformat 4 as JupyterLab saves one that was not run; `cells` are kinds and sources."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = []
    for number, (kind, source) in enumerate(cells, start=1):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source.splitlines(keepends=True)}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    whole = {"cells": made, "metadata": {"kernelspec": kernel, **metadata}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
