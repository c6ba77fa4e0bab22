# The value is there at once, but reading it never ends: an endless iterator, keys that wait. A minute at most.
# expects: attention.softmax masks.patterns attention.memory
# %%
import signal
import time

import torch

signal.alarm(60)


class Waits(str):
    def __hash__(self):
        time.sleep(60)
        return 0


class Detached(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        time.sleep(60)


masks_patterns = (torch.zeros(3).as_subclass(Detached),)
attention_memory = [["x"] * 9_999] * 9_999


def softmax(x, dim):
    value = {}
    value.update(dict.fromkeys(range(3)))
    return {1: torch.zeros(3).as_subclass(Detached), 2: value}
