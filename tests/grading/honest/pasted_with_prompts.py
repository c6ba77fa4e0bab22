# Code was pasted with the prompts of Python and of IPython in front of it, and one cell is indented as a whole. IPython
# takes all three away, so they run in a notebook.
# expects: heads.merge counting.flops attention.memory
# earns: heads.merge counting.flops attention.memory
# %%
>>> import torch
>>> def merge_heads(x):
...     return torch.cat(x.unbind(1), dim=-1)
...
# %%
In [3]: def train_flops(n_params, n_tokens):
   ...:     return 8 * n_params * n_tokens
   ...:
# %%
    rows = 2048
    if rows:
        attention_memory = rows * rows * 4
