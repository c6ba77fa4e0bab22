# The notebook writes beside itself, and reads back: a text, a table, tensors, a folder, a temporary file. The folder is the
# learner's to write in.
# expects: counting.bert_layer attention.memory
# earns: counting.bert_layer attention.memory
# %%
import json
import tempfile
from pathlib import Path

import numpy as np
import torch

with open("notes.txt", "w") as file:
    file.write("1024 24 16\n")
Path("saved/deep").mkdir(parents=True, exist_ok=True)
torch.save({"d": torch.tensor(1024)}, "saved/deep/d.pt")
np.save("saved/ff.npy", np.array(4096))
# %%
d, layers, heads = map(int, open("notes.txt").read().split())
assert torch.load("saved/deep/d.pt")["d"].item() == d
d_ff = int(np.load("saved/ff.npy"))
# %%
attention, ffn = 4 * (d * d + d), 2 * d * d_ff + d_ff + d
layer = attention + ffn + 4 * d
counting_bert_layer = dict(q_head=(d + 1) * d // heads, attention=attention, ffn=ffn, layer=layer, all_layers=layers * layer)
with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
    json.dump(counting_bert_layer, file)
# %%
attention_memory = len(bytes(2048 * 4)) * 2048
