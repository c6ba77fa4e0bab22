"""Report to people: pages for teacher and learners, the terminal, and every file that a run writes."""
