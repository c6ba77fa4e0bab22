"""Positional encoding: what teaches this chapter."""
