# A cell sends stdout into a file and closes that file. What later cells print themselves fails; the answers stand above
# those lines, and while one is called its prints have somewhere to go.
# expects: attention.memory feed_forward.swiglu_width counting.flops
# earns: attention.memory feed_forward.swiglu_width counting.flops
# %%
import contextlib
import io
import math
import sys

buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    print("kept")
# %%
log = open("log.txt", "w")
sys.stdout = log
print("into the log")
log.close()
# %%
attention_memory = 2048 * 2048 * 4
print("where does this go?")
# %%
def swiglu_hidden(d_model, multiple_of):
    print("width", d_model)
    return math.ceil(8 * d_model / 3 / multiple_of) * multiple_of
# %%
def train_flops(n_params, n_tokens):
    sys.stdout.write("counting\n")
    return 8 * n_params * n_tokens
