"""Normalization: what teaches this chapter."""
