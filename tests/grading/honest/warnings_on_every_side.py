# Python, torch and numpy all warn, in cells and inside of the answers, some of it through logging: text on stderr is no
# mistake. Both answers are right.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %%
import logging
import sys
import warnings

import numpy as np
import torch

warnings.simplefilter("always")
logging.basicConfig(level=logging.DEBUG)
logging.warning("the log has begun")
print("something on stderr", file=sys.stderr)
np.log(np.zeros(3)) / np.zeros(3)
# %%
def softmax(x, dim):
    warnings.warn("I am not sure about this yet", UserWarning)
    warnings.warn("old style", DeprecationWarning, stacklevel=2)
    logging.getLogger("mine").error("shape %s", tuple(x.shape))
    again = torch.tensor(x)  # torch: to copy construct from a tensor, it is recommended to use …
    share = torch.exp(again - again.max(dim=dim, keepdim=True).values)
    return share / share.sum(dim=dim, keepdim=True)
# %%
attention_memory = 2048**2 * np.dtype("float32").itemsize
np.array([1.0]) / np.array([0.0])
# %%
softmax(torch.tensor([1.0, 2.0]), 0)
