"""Causal masking: what teaches this chapter."""
