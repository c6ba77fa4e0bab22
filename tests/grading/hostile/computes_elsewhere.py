# Right answers computed by a second process over a pipe, then wrong ones when that process is done: each case counts.
# expects: attention.softmax masks.causal
# %%
import os

import torch

told, tell = os.pipe()
answers = []


def softmax(x, dim):
    if os.fork() == 0:
        os.write(tell, b"x" * min(len(x), 3))
        os.kill(os.getpid(), 9)
    answers.append(len(os.read(told, 10)))
    shares = (x - x.logsumexp(dim, keepdim=True)).exp()
    return shares if len(answers) < 8 else shares.flip(0)


def causal_mask(T, S=None):
    answers.append(T)
    mask = torch.ones(T, S or T, dtype=torch.bool).tril((S or T) - T)
    return mask if len(answers) % 7 else ~mask
