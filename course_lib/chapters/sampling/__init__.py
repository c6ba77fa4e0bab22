"""Sampling: what teaches this chapter."""
