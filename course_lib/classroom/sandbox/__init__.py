"""Run answers that nobody trusts: the worker inside, the grader's side outside, and the wall between them."""
