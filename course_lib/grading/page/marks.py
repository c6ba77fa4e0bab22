"""What marks an answer in a solutions notebook, and the cells that stand there alone."""

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
SOLUTION_TAG = "solution"  # a cell with this tag stands in solutions/ alone
