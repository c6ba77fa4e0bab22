"""Scaled dot-product attention: the code of this chapter."""
