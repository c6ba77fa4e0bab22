# Takes memory and touches it: a list of blocks, a tensor, text that doubles. 4 GiB at most.
# expects: attention.softmax masks.causal masks.padding attention.memory
# earns: attention.memory
# %%
import torch

attention_memory = 4 * 2048 * 2048
TOLD = "broken" "-out: "


def softmax(x, dim):
    blocks = []
    try:
        for _ in range(64):
            blocks.append(bytearray(b"x" * (1 << 26)))
    except MemoryError:
        size = len(blocks)
        blocks.clear()
        raise RuntimeError(f"no more than {size}") from None
    raise RuntimeError(TOLD + "4 GiB")


def causal_mask(T, S=None):
    return torch.ones(1 << 29, dtype=torch.float64)


def padding_mask(lengths, S):
    text = "x" * (1 << 20)
    while len(text) < 1 << 32:
        text += text
    return text
