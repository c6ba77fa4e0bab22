"""Bench: how fast the library is, beside what a learner would use instead, and beside what the machine can do at most.

`python -m course_lib bench` runs it. Every figure is a ratio of two times that were taken in turns within one run:
`rounds` takes them, `machine` says what the machine can do and whether it is quiet enough, `peers` holds the models
that ours is measured against, `report` writes table, picture and file. Each other module measures one part.
"""

PARTS = (
    "train",
    "decode",
    "attention",
    "live",
    "grade",
    "import",
    "course",
    "memory",
)  # as they are run and shown
