"""Causal masking: the code of this chapter."""
