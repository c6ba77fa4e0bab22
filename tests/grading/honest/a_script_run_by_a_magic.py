# %run executes a script that lies beside the notebook and keeps its names, one of which is an answer.
# expects: counting.flops counting.memory
# earns: counting.flops counting.memory
# %%
%run common.py
# %%
def train_flops(n_params, n_tokens):
    return FORWARD * n_params * n_tokens + BACKWARD * n_params * n_tokens
# %% [file common.py]
FORWARD, BACKWARD = 2 + 2, 4


def training_bytes(n_params, mixed_precision=False):
    return 10 * n_params  # 4 + 4 + 2, or 2 + 2 + 4 + 2: the same
