"""Encoder–decoder: what teaches this chapter."""
