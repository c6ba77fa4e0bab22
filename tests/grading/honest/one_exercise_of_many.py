# The learner did one exercise of the chapter and left the others as they came. That one counts; the others are zeros that
# say so, none is missing.
# expects: cross.attention cross.shape_trace cross.decoder_block cross.families
# earns: cross.families
# %%
import math

import torch

from course_lib.grading import check
from course_lib.viz import explore
# %%
def cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    """Queries from the decoder, keys and values from the encoder."""
    # Your answer goes here, in place of the next line.
    raise NotImplementedError
# %%
check("cross.attention", cross_attention)
# %%
cross_shape_trace = ...  # your answer
check("cross.shape_trace", cross_shape_trace)
# %%
def decoder_block(x, encoded, parts, source_mask=None):
    # Your answer goes here, in place of the next line.
    raise NotImplementedError
# %%
cross_families = {"a", "c", "e", "g"}
check("cross.families", cross_families)
