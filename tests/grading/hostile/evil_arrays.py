# Objects that are arrays when asked: `__array__`, `__array_interface__`, `__dlpack__`, `__torch_function__`, and lengths,
# iterators and indices that lie or never end.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge heads.grouped
# %%
import itertools

import numpy as np
import torch


class Array:
    def __array__(self, *args, **kwargs):
        return np.ones(3)

    __array_interface__ = {"shape": (10**9,), "typestr": "<f8", "data": (0, False), "version": 3}

    def __dlpack__(self, *args, **kwargs):
        raise KeyboardInterrupt

    def __array_ufunc__(self, *args, **kwargs):
        return True


class Torch:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True

    shape, dtype, device, layout = (3,), torch.float32, torch.device("cpu"), torch.strided


class Lies(list):
    def __len__(self):
        return -1

    def __iter__(self):
        return itertools.count()

    def __getitem__(self, index):
        return 1

    __index__ = __len__


class Keys(dict):
    def items(self):
        return itertools.repeat((1, 1))

    keys = values = __iter__ = items


class Nothing(np.ndarray):
    def __array_finalize__(self, other):
        raise SystemExit(0)


def softmax(x, dim):
    return Array()


def causal_mask(T, S=None):
    return Torch()


def padding_mask(lengths, S):
    return Lies([1, 2])


def split_heads(x, n_heads):
    return Keys(x=1)


def merge_heads(x):
    return x.numpy().view(Nothing)


def repeat_kv(k, n_heads):
    return itertools.count()
