"""Hold right answers in the manner of well-known codebases and courses, a module for each chapter."""
