"""Bench: the speed of the library, compared with the alternatives and with the limits of the machine.

`python -m course_lib bench` runs it. Every figure is a ratio of two times that one run measures in turns. `rounds`
takes the times, `machine` measures the machine's limits and checks that it is quiet enough, and `peers` has the models
for comparison. `report` writes the table, the picture and the file. Each of the other modules measures one part.
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
)  # in the order in which they run and are shown
