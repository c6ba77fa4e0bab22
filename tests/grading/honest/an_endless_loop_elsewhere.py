# A cell trains until somebody presses stop. It is stopped here too, and the answers above and below it are graded.
# expects: counting.flops counting.memory
# earns: counting.flops counting.memory
# %%
def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens
# %%
step = 0
while True:
    step = step + 1
# %%
def training_bytes(n_params, mixed_precision=False):
    return n_params * sum([2, 2, 1, 1, 4] if mixed_precision else [4, 4, 1, 1])
