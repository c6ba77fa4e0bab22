"""Export results to other programs, with a module for each product.

Every `write_...` takes the submissions' results and a folder, writes each file completely or not at all, and returns
its files. Equal results give equal bytes: there are no times, and the order is fixed. Text from learners is made
harmless where the other program could read it as a command, formula, tag or path.
"""
