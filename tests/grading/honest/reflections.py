# Two reflections are written, one in a list of lines that were joined; one is too short to be one. They carry no points,
# but a text is kept as written.
# expects: attention.why_scale feed_forward.why_expand blocks.no_residual attention.memory
# earns: attention.why_scale feed_forward.why_expand attention.memory
# %%
attention_why_scale = """
The products of d_k pairs are added up, so their variance grows with d_k. Softmax of large numbers is almost one-hot, its
gradient fades, and so the root of d_k is divided out — <b>whatever</b> the width; "quotes", umlauts ä ö ü and 🙂 included.
"""
# %%
feed_forward_why_expand = "\n".join([
    "A wide middle has room for many patterns, each of which may fire or not,",
    "and the activation between the two matrices keeps them from being one matrix.",
    "Four is a habit rather than a law, as the measurements of the chapter show.",
])
# %%
blocks_no_residual = "no idea yet"
# %%
attention_memory = 2048 * 2048 * 4
