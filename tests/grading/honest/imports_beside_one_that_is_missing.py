# One cell holds all imports, as style guides have it, and one of them is no part of the course: here that line fails, and
# the lines below it are imports that the answers need. On the learner's machine both answers passed; nothing in them
# needs the missing package.
# expects: feed_forward.gelu_tanh feed_forward.swiglu_width
# earns: feed_forward.gelu_tanh feed_forward.swiglu_width
# %%
import seaborn as sns
from google.colab import drive
import math
import torch
# %%
def gelu_tanh(x):
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))
# %%
def swiglu_hidden(d_model, multiple_of):
    return multiple_of * math.ceil(8 * d_model / 3 / multiple_of)
