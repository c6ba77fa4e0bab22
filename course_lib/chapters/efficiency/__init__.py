"""Efficiency: what teaches this chapter."""
