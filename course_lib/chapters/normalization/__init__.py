"""Normalization: the code of this chapter."""
