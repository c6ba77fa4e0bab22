"""The untrusted side: it runs one notebook and answers calls. A learner's code may change anything here.

So no message from this process is trusted: answers are judged on the other side.
"""

import os
import sys
from pathlib import Path

from course_lib.classroom.sandbox import isolation
from course_lib.classroom.sandbox.notebook_run import NotebookRun, Shell, warm_up
from course_lib.classroom.sandbox.protocol import Broken, Channel, frame, pack_outcome, unpack_call
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.grading.judge.call import read, run, settle
from course_lib.grading.judge.limits import exits_closed


def main(allowed: dict) -> None:
    """Serve one notebook in its own sandbox, with the grader at its standard input and output."""
    shell = warm_up()
    reader, writer, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    quotas = Quotas(**allowed)
    isolation.limit_memory(quotas.memory)  # of one process; docker limits the sum
    isolation.deny_system_calls()  # in addition to docker's own restrictions
    serve(reader, writer, shell, quotas)


def serve(reader: int, writer: int, shell: Shell, quotas: Quotas) -> None:
    """Answer the grader until it disconnects."""
    channel = Channel(reader, writer, from_worker=False)
    notebook: NotebookRun | None = None
    with exits_closed():
        while True:
            try:
                message, arrays = channel.receive()
            except Broken:
                return
            if message["do"] == "load":
                notebook = _load(message, arrays, shell, quotas, channel)
            else:
                assert notebook is not None, "the grader asks for answers of a notebook that it has sent"
                _answer(message, arrays, notebook, channel)


def _load(message: dict, contents: memoryview, shell: Shell, quotas: Quotas, channel: Channel) -> NotebookRun:
    channel.announce({"cell": 0})  # an error before this is not the learner's
    place = 0
    for name, size in message["files"]:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[place : place + size])  # writable, because notebooks may overwrite their own files
        place += size
    sys.path.insert(0, str(Path.cwd()))  # as in JupyterLab
    settle(0)  # unseeded random numbers are the same in every worker; the fork has reseeded `random`
    tell = lambda number: channel.announce({"cell": number})  # noqa: E731
    notebook = NotebookRun(shell, message["wanted"], quotas, tell, message["salvage"], message["unfinished"])
    notebook.load(message["cells"], message["skip"])
    found = {name: len(answers) for name, answers in notebook.answers.items()}
    troubles, salvaged = (
        [text.encode("utf-8", "replace").decode() for text in texts] for texts in (notebook.troubles, notebook.salvaged)
    )
    still_open = sorted(notebook.open - found.keys())
    channel.send(frame({"found": found, "open": still_open, "troubles": troubles, "salvaged": salvaged}))
    return notebook


def _answer(message: dict, arrays: memoryview, notebook: NotebookRun, channel: Channel) -> None:
    asked = {"question": message["question"]}
    answer = notebook.answers[message["name"]][message["which"]]
    if message["do"] == "read":
        outcomes = [read(answer, message["seconds"])]
    else:
        calls, place = _Announced(channel, {**asked, "call": True}), 0
        for told, size in message["calls"]:
            calls.append(unpack_call(told, arrays[place : place + size]))
            place += size
        outcomes = run(answer, calls, message["seconds"])
    for outcome in outcomes:
        told, parts = pack_outcome(outcome)
        channel.send(frame({**asked, "outcome": told}, parts))
    channel.send(frame({**asked, "end": True}))


class _Announced(list):
    """A list of calls that announces each call, so that the grader knows which one ended the process."""

    def __init__(self, channel: Channel, notice: dict):
        super().__init__()
        self.channel, self.notice = channel, notice

    def __iter__(self):
        for call in super().__iter__():
            self.channel.announce(self.notice)
            yield call
