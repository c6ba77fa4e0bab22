"""Pretrained models: the code of this chapter."""
