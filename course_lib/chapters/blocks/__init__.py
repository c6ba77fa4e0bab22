"""Residuals and blocks: what teaches this chapter."""
