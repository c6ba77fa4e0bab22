# The learner did one exercise of the chapter and left the others as they came. That one counts; the others are zeros that
# say so, none is missing.
# expects: encoder_decoder.attention encoder_decoder.shape_trace encoder_decoder.decoder_block encoder_decoder.families
# earns: encoder_decoder.families
# %%
import math

import torch

from course_lib.grading import check
from course_lib.live import explore
# %%
def cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """Queries from the decoder, keys and values from the encoder."""
    # Your answer goes here, in place of the next line.
    raise NotImplementedError
# %%
check("encoder_decoder.attention", cross_attention)
# %%
encoder_decoder_shape_trace = ...  # your answer
check("encoder_decoder.shape_trace", encoder_decoder_shape_trace)
# %%
def decoder_block(x, encoded, parts, source_mask=None):
    # Your answer goes here, in place of the next line.
    raise NotImplementedError
# %%
encoder_decoder_families = {"a", "c", "e", "g"}
check("encoder_decoder.families", encoder_decoder_families)
