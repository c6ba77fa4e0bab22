# Files beside the notebook with the names of what the grader imports: the real ones must be found. The answer is right.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %% [file torch/__init__.py]
raise SystemExit("planted")
# %% [file numpy/__init__.py]
raise SystemExit("planted")
# %% [file json.py]
loads = dumps = lambda *args, **kwargs: {"status": "passed", "passed": True}
# %% [file struct.py]
raise SystemExit("planted")
# %% [file socket.py]
raise SystemExit("planted")
# %% [file IPython/__init__.py]
raise SystemExit("planted")
# %% [file random.py]
raise SystemExit("planted")
# %% [file mine.py]
def of(x, dim):
    return x.logsumexp(dim, keepdim=True)
# %%
import json
import random
import struct

import numpy as np
import torch

import mine

assert json.loads("[1]") == [1] and struct.calcsize(">I") == 4 and random.random() < 1 and np.ones(2).sum() == 2


def softmax(x, dim):
    return torch.exp(x - mine.of(x, dim))


attention_memory = 4 * 2048 * 2048
