# The empty cells were left alone, and the answers written into cells below, which are markdown by mistake. What is unsolved
# is no answer, so no code cell answers these, and the text cells count.
# expects: counting.flops counting.gpt2
# earns: counting.flops counting.gpt2
# %%
def train_flops(n_params, n_tokens):
    """Floating-point operations of a whole training run, by the usual rule."""
    # Your answer goes here, in place of the next line.
    raise NotImplementedError
# %% [markdown]
def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens
# %%
counting_gpt2 = ...  # your answer
# %% [markdown]
```
counting_gpt2 = 111_050_496
```
