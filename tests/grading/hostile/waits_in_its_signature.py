# The signature, the name and the call of an answer are code: it waits, loops, ends and lies where it is looked at.
# expects: attention.softmax masks.causal heads.split heads.merge normalization.rms_norm
# %%
import ctypes
import time

from torch import nn

end = time.monotonic() + 60


class Waits:
    __name__ = __qualname__ = property(lambda self: time.sleep(60))

    @property
    def __signature__(self):
        while time.monotonic() < end:
            try:
                time.sleep(1)
            except BaseException:
                pass

    def __call__(self, *args):
        return args[0]


class Ends:
    @property
    def __signature__(self):
        ctypes.CDLL(None)._exit(0)

    def __call__(self, *args):
        return args[0]


class Lies:
    __signature__ = "softmax(x, dim)"
    __call__ = type


class Meta(type):
    def __call__(cls, *args, **kwargs):
        return "a module"

    __signature__ = property(lambda cls: 1 / 0)


class RMSNorm(nn.Module, metaclass=Meta):
    pass


softmax, causal_mask, split_heads, merge_heads = Ends(), Lies(), Waits(), print
