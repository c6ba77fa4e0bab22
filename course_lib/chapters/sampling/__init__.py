"""Sampling: the code of this chapter."""
