# Classes that pass every isinstance: a metaclass, a false `__class__`, the name "Tensor", a patched torch.Tensor.
# expects: attention.softmax masks.causal normalization.rms_norm heads.module masks.padding
# %%
import torch
from torch import nn


class Meta(type):
    def __instancecheck__(cls, value):
        return True

    def __subclasscheck__(cls, kind):
        return True

    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__


class Tensor(metaclass=Meta):
    __class__ = torch.Tensor
    __module__ = "torch"
    shape, dtype, ndim, device = torch.Size([3]), torch.float32, 1, torch.device("cpu")

    def __getattr__(self, name):
        return lambda *args, **kwargs: self


def softmax(x, dim):
    return Tensor()


def causal_mask(T, S=None):
    torch.Tensor = torch._tensor.Tensor = Tensor
    return Tensor()


def padding_mask(lengths, S):
    return type("Tensor", (), {"__class__": torch.Tensor})()


class RMSNorm(metaclass=Meta):
    __class__ = nn.Module

    def __init__(self, *args):
        self.weight = torch.ones(args[0])


class MultiHeadAttention(nn.Module):
    def state_dict(self, *args, **kwargs):
        return AnyKey()

    def named_parameters(self, *args, **kwargs):
        return []

    def load_state_dict(self, *args, **kwargs):
        return self

    def forward(self, x, mask=None):
        return x


class AnyKey(dict):
    __contains__ = lambda self, name: True
    __getitem__ = lambda self, name: Tensor()
