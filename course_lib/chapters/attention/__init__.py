"""Scaled dot-product attention: what teaches this chapter."""
