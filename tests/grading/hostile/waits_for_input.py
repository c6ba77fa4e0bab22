# input(), the standard input, a password: nobody is there. What was answered beside it counts.
# expects: attention.softmax masks.causal masks.padding heads.split attention.memory
# earns: attention.memory
# %%
import getpass
import os
import sys

attention_memory = 4 * 2048 * 2048
name = input("Your name: ")
# %%
def softmax(x, dim):
    return input("Which shares? ")


def causal_mask(T, S=None):
    return sys.stdin.read()


def padding_mask(lengths, S):
    return os.read(0, 100)


def split_heads(x, n_heads):
    return getpass.getpass()
