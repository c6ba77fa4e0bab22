"""The hint below a `NameError` in a notebook: a cell above that has not run yet may define the name."""

import sys

WHERE = "If `{}` is defined or imported in a cell above, run that cell first: Run > Run All Above Selected Cell."


def explain_names() -> None:
    """Have the notebook's kernel print the hint below Python's traceback from now on. Keep any other custom handler."""
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    if shell and hasattr(shell, "kernel") and not shell.custom_exceptions:
        shell.set_custom_exc((NameError,), _explained)


def _explained(shell, kind, error, traceback, tb_offset=None) -> None:
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    if kind is NameError and error.name:  # an `UnboundLocalError` comes from inside a function, so no cell can fix it
        print(WHERE.format(error.name))
