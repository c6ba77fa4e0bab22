"""Embeddings: what teaches this chapter."""
