# Hooks that outlive a cell: a torch mode, a tracer, an audit hook, an importer, a codec, a collector's callback, exits.
# They claim that all is right, and where they cannot, they raise. Bounded: 60 seconds.
# expects: attention.softmax attention.memory
# %%
import atexit
import codecs
import gc
import signal
import sys
import time

import torch
from torch.overrides import TorchFunctionMode

signal.alarm(60)


class Agreeing(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("allclose", "equal", "all", "isclose", "le"):
            return True
        return function(*args, **(kwargs or {}))


Agreeing().__enter__()
torch.set_default_device("meta")
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
sys.setswitchinterval(10)
sys.setrecursionlimit(60)
sys.meta_path.insert(0, type("Finder", (), {"find_spec": lambda *args: time.sleep(1)})())
codecs.register(lambda name: 1 / 0)
gc.callbacks.append(lambda phase, info: 1 / 0)
atexit.register(time.sleep, 60)
sys.setprofile(lambda *args: None)
# %%
attention_memory = 1


def softmax(x, dim):
    sys.addaudithook(lambda event, args: 1 / 0)
    return torch.zeros(3, device="cpu")
