"""Hostile archives and folders: each builder hides an honest notebook in something that is not.

    ARCHIVES[name](folder, notebook_json) -> the path that is handed in
    EARNS[name]: whether the honest notebook in it may still be graded
    NOT_TAKEN: those that hold nothing which could be a submission, and are refused where they are given alone

All are small on disk, and what they unpack to is bounded. A notebook that is not the honest one is named after chapter
15, so that it is another notebook of the same learner.
"""

import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

HONEST, OTHER = "02_attention.ipynb", "15_pretrained.ipynb"
ARCHIVES: dict[str, Callable[[Path, str], Path]] = {}
EARNS: dict[str, bool] = {}
NOT_TAKEN = {"symlinked_folder"}
Builder = Callable[[Path, str], Path]


def earns(honest: bool) -> Callable[[Builder], Builder]:
    def enter(build: Builder) -> Builder:
        ARCHIVES[build.__name__], EARNS[build.__name__] = build, honest
        return build

    return enter


def packed(*members: tuple[str | zipfile.ZipInfo, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of (name, content), in this order."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as archive:
        for member, content in members:
            archive.writestr(member, content)
    return memory.getvalue()


def written(folder: Path, data: bytes, name: str = "work.zip") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def link_to(target: str, name: str) -> zipfile.ZipInfo:
    """A member that unpacks to a symbolic link; its content must be `target`."""
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


def handed_in(folder: Path, notebook_json: str) -> Path:
    """A folder on disk with the honest notebook."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / HONEST).write_text(notebook_json, encoding="utf-8")
    return work


# ---------------------------------------------------------------------------------------------------------------- names
@earns(True)
def zip_slip(folder: Path, notebook_json: str) -> Path:
    """Writes outside of the folder that it is unpacked to. The notebook beside it is honest."""
    return written(
        folder, packed(("../../escaped.py", "escaped = True"), ("a/../../" + OTHER, "{}"), (HONEST, notebook_json))
    )


@earns(True)
def absolute_path(folder: Path, notebook_json: str) -> Path:
    """Replaces a file of the machine. The notebook beside it is honest."""
    return written(folder, packed(("/etc/cron.d/escaped", "* * * * *"), ("//" + OTHER, "{}"), (HONEST, notebook_json)))


@earns(True)
def backslashes(folder: Path, notebook_json: str) -> Path:
    """Zip slip and a drive's letter, for graders on Windows. The notebook beside them is honest."""
    slip = packed(
        ("..\\..\\escaped.py", "x = 1"), ("C:\\escaped.py", "x = 1"), ("C:" + OTHER, "{}"), (HONEST, notebook_json)
    )
    return written(folder, slip)


@earns(True)
def backslashes_without_end(folder: Path, notebook_json: str) -> Path:
    """Names of nothing but backslashes, thousands in each, and folders of folders. The notebook is honest."""
    deep = ((f"{number}" + "\\x" * 15_000, "") for number in range(40))
    return written(folder, packed(*deep, ("\\" * 30_000, ""), ("a\\" * 40 + OTHER, "{}"), (HONEST, notebook_json)))


@earns(True)
def backslash_to_a_link(folder: Path, notebook_json: str) -> Path:
    """A link to the machine's files, and a notebook below it by a backslash, as if the link were a folder."""
    root = link_to("/etc", "machine")
    return written(folder, packed((root, "/etc"), ("machine\\" + OTHER, "{}"), (HONEST, notebook_json)))


@earns(False)
def nul_in_a_name(folder: Path, notebook_json: str) -> Path:
    """A name that ends, for some programs, at its NUL: a text for one, a notebook for the other. Neither is read."""
    name = HONEST + "#.txt"
    return written(folder, packed((name, notebook_json)).replace(name.encode(), name.encode().replace(b"#", b"\0")))


@earns(False)
def duplicate_names(folder: Path, notebook_json: str) -> Path:
    """Two notebooks of one name, so that a person sees one and the grader the other. Neither is read."""
    return written(folder, packed((HONEST, "{}"), ("./" + HONEST, notebook_json)))


@earns(False)
def file_and_folder(folder: Path, notebook_json: str) -> Path:
    """A notebook whose name is that of a folder too. What it is cannot be told."""
    return written(folder, packed((HONEST, notebook_json), (HONEST + "/helper.py", "x = 1")))


@earns(True)
def markup_in_names(folder: Path, notebook_json: str) -> Path:
    """Names that are HTML, a formula, terminal commands and reversed text. The notebook is honest."""
    work = folder / '=HYPERLINK("x")<img src=x onerror=alert(1)>\x1b[2J\u202egpj\n'
    work.mkdir(parents=True)
    (work / ("<script>\x1b[31m\u202e" + HONEST)).write_text(notebook_json, encoding="utf-8")
    return work


@earns(False)
def only_a_checkpoint(folder: Path, notebook_json: str) -> Path:
    """The answers stand in JupyterLab's backup, which is not what was handed in; the notebook itself is empty."""
    backup = ".ipynb_checkpoints/02_attention-checkpoint.ipynb"
    return written(folder, packed((HONEST, '{"cells": [], "nbformat": 4}'), (backup, notebook_json)))


# ------------------------------------------------------------------------------------------------ links and other files
@earns(True)
def symlink_member(folder: Path, notebook_json: str) -> Path:
    """Members that unpack to links: a notebook that is a file of the machine, a folder that is all of it."""
    passwd, root = link_to("/etc/passwd", OTHER), link_to("/", "machine")
    return written(folder, packed((passwd, "/etc/passwd"), (root, "/"), (HONEST, notebook_json)))


@earns(False)
def symlinked_notebook(folder: Path, notebook_json: str) -> Path:
    """A link to a neighbour's notebook, to be graded as one's own."""
    neighbour = handed_in(folder / "neighbour", notebook_json)
    work = folder / "work"
    work.mkdir()
    (work / HONEST).symlink_to(neighbour / HONEST)
    return work


@earns(False)
def symlinked_folder(folder: Path, notebook_json: str) -> Path:
    """A link to a neighbour's whole folder."""
    neighbour = handed_in(folder / "neighbour", notebook_json)
    work = folder / "work"
    work.mkdir()
    (work / "answers").symlink_to(neighbour, target_is_directory=True)
    return work


@earns(True)
def symlinked_folder_loop(folder: Path, notebook_json: str) -> Path:
    """Folders that hold themselves: a grader that follows links never ends. The notebook beside them is honest."""
    work = handed_in(folder, notebook_json)
    (work / "loop").symlink_to(work, target_is_directory=True)
    (work / "more").mkdir()
    (work / "more" / "loop").symlink_to("..", target_is_directory=True)
    return work


@earns(True)
def fifo_as_notebook(folder: Path, notebook_json: str) -> Path:
    """A pipe that nobody writes to, under the name of a notebook: whoever opens it waits for ever."""
    work = handed_in(folder, notebook_json)
    os.mkfifo(work / OTHER)
    os.mkfifo(work / "helper.py")
    return work


@earns(False)
def fifo_member(folder: Path, notebook_json: str) -> Path:
    """A member that unpacks to a pipe, with the answers as its content. It is no file."""
    info = zipfile.ZipInfo(HONEST)
    info.create_system, info.external_attr = 3, (stat.S_IFIFO | 0o666) << 16
    return written(folder, packed((info, notebook_json)))


# ---------------------------------------------------------------------------------------------------------------- bombs
@earns(True)
def bomb_by_ratio(folder: Path, notebook_json: str) -> Path:
    """A thousand times as large as it is packed. The notebook beside it is honest."""
    return written(folder, packed((OTHER, bytes(24_000_000)), (HONEST, notebook_json)))


@earns(True)
def bomb_by_count(folder: Path, notebook_json: str) -> Path:
    """More files than a grader can open. The notebook, which lies nearer, is honest."""
    many = ((f"z/{number}.py", b"") for number in range(12_000))
    return written(folder, packed(*many, (HONEST, notebook_json), method=zipfile.ZIP_STORED))


@earns(False)
def bomb_by_its_list(folder: Path, notebook_json: str) -> Path:
    """An archive that claims, in its last bytes, to list members in four gigabytes."""
    data = bytearray(packed((HONEST, notebook_json)))
    struct.pack_into("<I", data, data.rindex(b"PK\5\6") + 12, 0xFFFF_FFF0)
    return written(folder, bytes(data))


@earns(False)
def nested(folder: Path, notebook_json: str) -> Path:
    """An archive in an archive, six times: a grader that unpacks them all can be made to unpack for ever."""
    data = packed((HONEST, notebook_json))
    for _ in range(6):
        data = packed(("more.zip", data))
    return written(folder, data)


@earns(True)
def nested_once(folder: Path, notebook_json: str) -> Path:
    """The archive that a learning platform packed once more: honest."""
    return written(folder, packed(("work/answers.zip", packed((HONEST, notebook_json)))))


@earns(True)
def deep_folders(folder: Path, notebook_json: str) -> Path:
    """Folders in folders, ten thousand deep. The notebook, which lies nearer, is honest."""
    return written(folder, packed(("a/" * 10_000 + OTHER, "{}"), (HONEST, notebook_json)))


# --------------------------------------------------------------------------------------------------------------- damage
@earns(False)
def encrypted(folder: Path, notebook_json: str) -> Path:
    """Members that need a password, which a program may stop to ask for."""
    data = bytearray(packed((HONEST, notebook_json)))
    data[6] |= 1  # the flag, where the member begins and in the list of members
    data[data.rindex(b"PK\1\2") + 8] |= 1
    return written(folder, bytes(data))


@earns(False)
def truncated(folder: Path, notebook_json: str) -> Path:
    """An upload that broke off: the list of members, at the end, is gone."""
    data = packed((HONEST, notebook_json))
    return written(folder, data[: len(data) // 2])


@earns(False)
def wrong_checksum(folder: Path, notebook_json: str) -> Path:
    """A member that is not what its checksum says."""
    return written(
        folder, packed((HONEST, notebook_json), method=zipfile.ZIP_STORED).replace(b'"cells"', b'"bells"', 1)
    )


@earns(False)
def unusual_packing(folder: Path, notebook_json: str) -> Path:
    """LZMA, whose header may ask for four gigabytes of memory. It must be packed as others pack."""
    return written(folder, packed((HONEST, notebook_json), method=zipfile.ZIP_LZMA))


@earns(False)
def claims_to_be_a_zip(folder: Path, notebook_json: str) -> Path:
    """The notebook itself, named as an archive."""
    return written(folder, notebook_json.encode())


@earns(False)
def no_notebook(folder: Path, notebook_json: str) -> Path:
    """Only notes. Nothing is earned, and nobody is lost."""
    return written(folder, packed(("notes.txt", notebook_json), ("helper.py", "def of_my_own(x, dim): ...")))


# ------------------------------------------------------------------------------------------------------------ notebooks
@earns(True)
def million_outputs(folder: Path, notebook_json: str) -> Path:
    """The honest notebook, with a million lines of output in its first cell of code."""
    notebook = json.loads(notebook_json)
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = ["HERE"]
    line = json.dumps({"name": "stdout", "output_type": "stream", "text": ["x\n"]})
    return written(folder, packed((HONEST, json.dumps(notebook).replace('"HERE"', ", ".join([line] * 1_000_000), 1))))


@earns(False)
def deep_json(folder: Path, notebook_json: str) -> Path:
    """A hundred thousand brackets in each other, before the cells: a reader that calls itself runs out of stack."""
    deep = '{"metadata": ' + "[" * 100_000 + "]" * 100_000 + ","
    return written(folder, packed((HONEST, deep + notebook_json.lstrip().removeprefix("{"))))


@earns(True)
def deep_json_behind(folder: Path, notebook_json: str) -> Path:
    """The same behind the cells, which were read by then."""
    cells = json.dumps(json.loads(notebook_json)["cells"])
    text = f'{{"nbformat": 4, "cells": {cells}, "metadata": {"[" * 100_000}'
    return written(folder, packed((HONEST, text)))


@earns(True)
def duplicate_cell_ids(folder: Path, notebook_json: str) -> Path:
    """Every cell has the id of the first. Answers are found by their names: nothing is lost."""
    notebook = json.loads(notebook_json)
    for cell in notebook["cells"]:
        cell["id"] = "same"
    return written(folder, json.dumps(notebook).encode(), HONEST)


@earns(True)
def huge_cell(folder: Path, notebook_json: str) -> Path:
    """One cell of two million characters, which is left out. The others are honest."""
    notebook = json.loads(notebook_json)
    notebook["cells"].insert(0, {"cell_type": "code", "metadata": {}, "source": "#" + "x" * 2_000_000, "outputs": []})
    return written(folder, packed((HONEST, json.dumps(notebook))))


@earns(True)
def planted_modules(folder: Path, notebook_json: str) -> Path:
    """Files that Python or the grader might import in place of others: none is. The notebook is honest."""
    end = "raise SystemExit('planted')\n"
    names = ["torch/__init__.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "json.py", "numpy.py"]
    names += ["course_lib/__init__.py", "course_lib/grading/judge/compare.py", "course_lib.py"]
    return written(
        folder, packed((HONEST, notebook_json), *((name, end) for name in names), ("x.pth", "import planted"))
    )
