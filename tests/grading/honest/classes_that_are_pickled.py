# The notebook's own classes are pickled, saved, copied and looked up by name in __main__, where Jupyter keeps a notebook's
# names; a dataclass, an Enum, a NamedTuple and inspect.getsource come along. Both answers are computed with what was read
# back.
# expects: heads.parameters counting.flops
# earns: heads.parameters counting.flops
# %%
import copy
import dataclasses
import enum
import inspect
import io
import pickle
import typing

import torch
from torch import nn
# %%
class Projections(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

@dataclasses.dataclass
class Rule:
    factor: int = 8

class Pass(enum.Enum):
    FORWARD = 2
    BACKWARD = 6  # with the forward pass once more

class Pair(typing.NamedTuple):
    first: int
    second: int
# %%
assert "nn.Linear" in inspect.getsource(Projections.__init__)
memory = io.BytesIO()
torch.save(Projections(512), memory)
memory.seek(0)
read_back = torch.load(memory, weights_only=False)
heads_parameters = sum(p.numel() for p in copy.deepcopy(read_back).parameters())
# %%
rule, passes, pair = pickle.loads(pickle.dumps((Rule(), list(Pass), Pair(1, 2))))
typing.get_type_hints(Rule)

def train_flops(n_params, n_tokens):
    if rule.factor != sum(each.value for each in passes):
        raise ValueError("these do not agree")
    return rule.factor * n_params * n_tokens
