"""Controls take turns with one another and with the cells of their notebook.

JupyterLab 4.6 moves controls in their own thread if the kernel offers one. A control and a running cell, or two
controls, would then draw random numbers from the same generator, and a seed would not fix the results. `start` switches
this off. In a JupyterLab that another command started, a control waits here.
"""

import sys
import threading

TURN = threading.RLock()


def take_turns() -> None:
    """From the next cell on, make every message from a control wait until the running cell has ended."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    handlers = getattr(getattr(shell, "kernel", None), "shell_handlers", {})  # ipykernel's handlers by message type
    handle = handlers.get("comm_msg")  # the message of a moved control
    if shell is None or not handle or getattr(handle, "in_turn", False):
        return

    def in_turn(*message):
        with TURN:
            return handle(*message)

    in_turn.in_turn = True  # type: ignore[attr-defined]
    handlers["comm_msg"] = in_turn
    begun = []
    cells = threading.current_thread()  # a cell that runs in its own thread should not wait

    def begin(_info) -> None:
        if threading.current_thread() is cells:
            TURN.acquire()
            begun.append(True)

    def end(_result) -> None:
        while begun and threading.current_thread() is cells:  # an empty cell has no begin event
            begun.pop()
            TURN.release()

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)
