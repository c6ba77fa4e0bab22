"""Right answers in the manner of well-known codebases and courses: every exercise of code, several of each."""
