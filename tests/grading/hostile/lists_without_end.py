# Short lists that are endless when written out: the same list inside itself ten thousand times, five levels deep.
# expects: attention.softmax masks.causal attention.memory heads.split
# %%
import signal

signal.alarm(60)
laughs = [0] * 9_000
for _ in range(4):
    laughs = [laughs] * 9_000
attention_memory = laughs


def softmax(x, dim):
    return laughs


def causal_mask(T, S=None):
    return range(10**12)


def split_heads(x, n_heads):
    return (x for _ in iter(int, 1))
