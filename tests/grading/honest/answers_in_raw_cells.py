# Two answers stand in raw cells, one of them with its check below.
# expects: counting.flops counting.changes
# earns: counting.flops counting.changes
# %% [raw]
def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens

check("counting.flops", train_flops)
# %% [raw]
counting_changes = {"b", "d", "f"}
