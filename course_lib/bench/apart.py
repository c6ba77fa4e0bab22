"""Contestants in processes of their own: each with its own memory and settings, as its users run it."""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

Make = tuple[Callable[..., Callable[[], object]], *tuple[Any, ...]]  # a function, and its arguments


class Apart:
    """A contestant in a process of its own: calling it runs it there once, and waits until it is done.

    Args: make: a function of a module, called once in the other process with `given`; it returns the contestant.
    Errors: RuntimeError with the other process's error.
    """

    def __init__(self, make: Callable[..., Callable[[], object]], *given: Any):
        context = multiprocessing.get_context("spawn")  # a fork would share this process's memory and settings
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, torch.get_num_threads(), make, given), daemon=True)
        self._process.start()
        there.close()
        self._wait()  # until it is made

    def __call__(self) -> None:
        self._here.send("run")
        self._wait()

    def close(self) -> None:
        """End the process."""
        self._here.close()
        self._process.join()

    def _wait(self) -> None:
        try:
            trouble = self._here.recv()
        except EOFError:
            trouble = f"it ended with exit code {self._process.exitcode}"
        if trouble:
            raise RuntimeError(f"a contestant in a process of its own failed: {trouble}")


@contextmanager
def apart(contestants: Mapping[str, Make]) -> Iterator[dict[str, Apart]]:
    """Start a process for each contestant, given as (make, *arguments), and end all of them after the `with` block."""
    started: dict[str, Apart] = {}
    try:
        for name, (make, *given) in contestants.items():
            started[name] = Apart(make, *given)
        yield started
    finally:
        for each in started.values():
            each.close()


def _serve(there: Connection, threads: int, make: Callable[..., Callable[[], object]], given: tuple) -> None:
    """Make the contestant, say so, and run it each time that the other side asks, until that side closes the pipe."""
    torch.set_num_threads(threads)
    try:
        contestant = make(*given)
        there.send("")
        while True:
            there.recv()
            contestant()
            there.send("")
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the bench has ended, or the user interrupted it
        return
    except Exception as error:
        there.send(f"{type(error).__name__}: {error}")
