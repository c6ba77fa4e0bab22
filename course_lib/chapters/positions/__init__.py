"""Positional encoding: the code of this chapter."""
