"""Pretrained models: what teaches this chapter."""
