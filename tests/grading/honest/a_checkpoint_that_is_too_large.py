# A cell saves a checkpoint of 48 MB and allocates a table of 200 MB. There may be no room to save it: then that cell fails,
# and not the process. The answers above and below it stay.
# expects: heads.grouped attention.memory
# earns: heads.grouped attention.memory
# %%
import torch

def repeat_kv(k, n_heads):
    return k.repeat_interleave(repeats=n_heads // k.shape[1], dim=1)
# %%
table = torch.ones(50_000, 1_000)
# %%
torch.save(table[:12_000].clone(), "checkpoint.pt")
# %%
with open("log.bin", "wb") as file:
    for _ in range(48):
        file.write(bytes(1_000_000))
# %%
attention_memory = 2048 * 2048 * 4
