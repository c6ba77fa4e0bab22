"""Submissions to be graded: hostile ones, awkward honest ones, odd archives."""
