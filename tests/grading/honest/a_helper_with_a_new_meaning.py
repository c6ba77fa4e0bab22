# Two answers call a helper `scale`, which a later cell defines anew with another meaning. A function looks its helpers up
# when it is called: after "Restart and run all" every call of the first answer, the learner's too, meets the new helper. So
# the one that fits the new helper is earned, and the one that needed the old one is not, though its check above passed.
# expects: attention.worked_example feed_forward.gelu_tanh
# earns: feed_forward.gelu_tanh
# %%
import math

import torch
# %%
def scale(x):
    return x / math.sqrt(x.shape[-1])

def attention_weights(Q, K):
    return (scale(Q) @ K.T).softmax(-1)
# %%
def scale(x):
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)

def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(scale(x)))
