"""Hold wrong answers with two mistakes of the page at once, a module for each chapter."""
