"""Embeddings: the code of this chapter."""
