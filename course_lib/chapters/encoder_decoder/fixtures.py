"""How the tests of chapter 11 build an argument that is not plain data: see `grading/fixtures.py`."""

from torch import nn

from course_lib.blocks import TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.grading.fixtures import Pieces, with_drawn_weights


def decoder_block_parts(sizes: dict, seed: int, dtype: str = "float32") -> nn.Module:
    """Return the parts of a decoder block with random weights: three norms, two attentions, a feed-forward network."""
    config = TransformerConfig(vocab_size=1, n_layers=1, max_seq_len=1, family="encoder-decoder", **sizes)
    block, parts = TransformerBlock(config, cross_attention=True), Pieces()
    for name in ("norm1", "attention", "cross_norm", "cross_attention", "norm2", "feed_forward"):
        setattr(parts, name, getattr(block, name))
    return with_drawn_weights(parts, seed, dtype)
