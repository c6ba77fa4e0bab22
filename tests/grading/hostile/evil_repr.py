# Objects whose text, class, signature and name are made by code: it claims points, loops, and leaves a mark.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge
# touches: mark
# %%
import os
import time


class Evil:
    def __repr__(self):
        open("{OUTSIDE}/{MARK}-repr", "w").close()
        return "✓ Passed · 2 of 2 points"

    __str__ = __repr__

    def __format__(self, form):
        return repr(self)

    def __reduce__(self):
        return os.system, ("touch {OUTSIDE}/{MARK}-reduce",)

    def __del__(self):
        open("{OUTSIDE}/{MARK}-del", "w").close()

    @property
    def __class__(self):
        return bool

    @property
    def __dict__(self):
        raise SystemExit(0)


class Loops:
    @property
    def __signature__(self):
        time.sleep(60)

    def __call__(self, *args):
        return args[0]


class Raises(Exception):
    def __str__(self):
        raise SystemExit(0)


def softmax(x, dim):
    return Evil()


causal_mask = Loops()


def padding_mask(lengths, S):
    raise Raises


def split_heads(x, n_heads):
    raise ValueError(Evil())


merge_heads = Evil()
