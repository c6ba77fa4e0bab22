"""Run untrusted answers: the worker inside the sandbox, the grader outside, and the isolation between them."""
