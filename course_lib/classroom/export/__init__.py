"""Results for other programs, a module for each product.

Every `write_...` takes the submissions' results and a folder, writes each file whole or not at all, and returns its
files. Equal results give equal bytes: no times, a fixed order. Names and feedback may hold anything that a learner
wrote; what the program that reads the file could take for a command, a formula, a tag or a path is made harmless.
"""
