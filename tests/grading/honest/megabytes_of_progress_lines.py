# A loop in a cell reports every step, 120,000 lines, and the answer reports every call with a long line. Output is
# dropped, not judged, and does not hang anything.
# expects: attention.worked_example attention.memory
# earns: attention.worked_example attention.memory
# %%
import math
import sys

import torch
# %%
for step in range(120_000):
    print(f"step {step:6d}  loss {1 / (step + 1):.6f}", end="\r" if step % 2 else "\n")
# %%
def attention_weights(Q, K):
    print("calling with " + "very " * 50_000 + "interesting numbers")
    sys.stderr.write("." * 200_000)
    return torch.softmax(Q @ K.mT / math.sqrt(K.shape[1]), dim=1)
# %%
attention_memory = 4 * 2048 * 2048
print(f"{attention_memory:,} bytes")
