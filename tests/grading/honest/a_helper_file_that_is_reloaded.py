# The notebook imports a helper beside it, reloads it as one does while writing it, and defines an answer with it. The
# file is called test.py, as a package of Python's own is; beside the notebook the learner's comes first.
# expects: counting.memory counting.flops
# earns: counting.memory counting.flops
# %%
import importlib

import test as helper

helper = importlib.reload(helper)
# %%
def training_bytes(n_params, mixed_precision=False):
    return helper.BYTES[bool(mixed_precision)] * n_params
# %%
train_flops = helper.flops
# %% [file test.py]
BYTES = {False: 10, True: 10}


def flops(n_params, n_tokens):
    return 8 * n_params * n_tokens
