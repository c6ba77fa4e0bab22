"""Controls take turns, with one another and with the cells of their notebook.

JupyterLab 4.6 moves controls in a thread of their own where the kernel offers one. A control and a running cell, or two
controls, would then draw random numbers from the same generator, and no seed would hold. `start` switches that off;
in a JupyterLab that it did not begin, a control waits here.
"""

import sys
import threading

TURN = threading.RLock()


def take_turns() -> None:
    """From the next cell on, whatever a control tells the kernel waits until the cell that runs has ended."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    handlers = getattr(getattr(shell, "kernel", None), "shell_handlers", {})  # ipykernel's, by kind of message
    handle = handlers.get("comm_msg")  # what moves a control
    if shell is None or not handle or getattr(handle, "in_turn", False):
        return

    def in_turn(*message):
        with TURN:
            return handle(*message)

    in_turn.in_turn = True  # type: ignore[attr-defined]
    handlers["comm_msg"] = in_turn
    begun = []
    cells = threading.current_thread()  # who asks for a thread of its own, for a cell, does not mean to wait

    def begin(_info) -> None:
        if threading.current_thread() is cells:
            TURN.acquire()
            begun.append(True)

    def end(_result) -> None:
        while begun and threading.current_thread() is cells:  # of an empty cell there is no beginning
            begun.pop()
            TURN.release()

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)
