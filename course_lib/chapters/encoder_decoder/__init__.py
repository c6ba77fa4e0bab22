"""Encoder–decoder: the code of this chapter."""
