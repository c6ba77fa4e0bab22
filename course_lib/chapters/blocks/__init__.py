"""Residuals and blocks: the code of this chapter."""
