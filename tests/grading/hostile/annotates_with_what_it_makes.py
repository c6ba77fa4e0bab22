# Annotations that nothing imports, so that the cell is run again: each run makes another answer, counts itself, and gives
# the missing name a meaning. It is one answer, and the last one.
# expects: masks.causal attention.memory
# earns: attention.memory
# %%
import builtins
runs = globals().get("runs", 0) + 1
attention_memory = 2048 * 2048 * 4

def causal_mask(T: Tensors, S: "x" * 10_000_000 = builtins.setattr(builtins, "Tensors", int)) -> (lambda: Tensors)():
    import torch
    return torch.ones(T, T, dtype=torch.bool)
