"""What is said below a NameError in a notebook: the name may be made in a cell above that has not run yet."""

import sys

WHERE = "If `{}` is defined or imported in a cell above, run that cell first: Run > Run All Above Selected Cell."


def explain_names() -> None:
    """Let a notebook's kernel say so from now on, below Python's own traceback. What another has set up there stays."""
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    if shell and hasattr(shell, "kernel") and not shell.custom_exceptions:
        shell.set_custom_exc((NameError,), _explained)


def _explained(shell, kind, error, traceback, tb_offset=None) -> None:
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    if kind is NameError and error.name:  # an UnboundLocalError is made within a function: no cell helps
        print(WHERE.format(error.name))
