"""The marks around an answer in a solutions notebook, and the tag of cells that only this notebook has."""

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
SOLUTION_TAG = "solution"  # a cell with this tag exists only in solutions/
