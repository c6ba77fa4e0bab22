<<<<<<< HEAD
"""Careless answers with two mistakes of a page at once, written as a learner would, before any of them was graded."""
=======
"""Answers with two mistakes of the page at once: `DOUBLES = {exercise id: [(answer, (mistake, mistake)), …]}`.

Written from scratch, as a learner writes, before anybody looked at what the grader says of them: a sample, not a test
that was made to pass.
"""
>>>>>>> stylesB
