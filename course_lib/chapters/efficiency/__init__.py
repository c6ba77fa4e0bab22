"""Efficiency: the code of this chapter."""
