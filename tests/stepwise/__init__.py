"""Right answers whose steps can be replaced one by one: what test_grading_cases.py makes wrong answers of."""
