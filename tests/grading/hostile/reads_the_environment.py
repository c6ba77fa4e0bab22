# Hands in its environment, its command line and what is mounted: no word of the teacher's may stand there.
# expects: attention.softmax masks.causal masks.padding
# touches: canary
# %%
import os
import sys


def softmax(x, dim):
    raise RuntimeError(" ".join(f"{key}={value}" for key, value in os.environ.items()))


def causal_mask(T, S=None):
    with open("/proc/self/environ") as environ, open("/proc/self/cmdline") as command:
        raise RuntimeError(environ.read() + command.read() + repr(sys.orig_argv))


def padding_mask(lengths, S):
    with open("/proc/self/mountinfo") as file:
        raise RuntimeError(file.read().replace("\n", " ")[-400:])
