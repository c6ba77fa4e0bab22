"""Careless answers with two mistakes of a page at once: `DOUBLES = {exercise id: [(answer, (mistake, mistake)), …]}`.

Each was written from the exercise's statement as a learner would write it, with the two mistakes in different lines,
before any of them was graded: what is said of them is what a class would be told.
"""
