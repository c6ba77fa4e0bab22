"""Present results to people: pages for teacher and learners, terminal output, and every file that a run writes."""
