# SystemExit, exit(), quit() and os._exit(0) in answers. What was answered beside them counts.
# expects: attention.softmax masks.causal masks.padding heads.split attention.memory
# earns: attention.memory
# %%
import os
import sys


def softmax(x, dim):
    sys.exit(0)


def causal_mask(T, S=None):
    os._exit(0)


def padding_mask(lengths, S):
    exit()


def split_heads(x, n_heads):
    raise SystemExit("Right in 15 cases.")


attention_memory = 4 * 2048 * 2048
