"""Careless answers with two mistakes of a page at once, written as a learner would, before any of them was graded."""
