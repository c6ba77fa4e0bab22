# Every answer prints what it does, to stdout and to stderr, by print, by sys.stdout, by pprint and straight to the file
# descriptor. What is printed is not what is returned: all three are right.
# expects: masks.causal masks.padding masks.patterns
# earns: masks.causal masks.padding masks.patterns
# %%
import os
import sys
from pprint import pprint

import torch
# %%
def causal_mask(T, S=None):
    print("T", T, "S", S)
    if S is None:
        print("no S given, taking T", flush=True)
        S = T
    table = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    pprint(table)
    os.write(1, b"straight to descriptor 1\n")
    os.write(2, b"straight to descriptor 2\n")
    return table
# %%
def padding_mask(lengths, S):
    sys.stdout.write(f"{lengths}\n")
    sys.stderr.write("and an error that is none\n")
    sys.stdout.flush()
    places = torch.arange(S).expand(len(lengths), S)
    return (places < lengths.unsqueeze(1))[:, None, None]
# %%
masks_patterns = {"b", "d", "i"}
print(masks_patterns)
