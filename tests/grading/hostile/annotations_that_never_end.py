# An annotation that computes for ever, beside one that nothing imports: the cell is run a second time, and loses again.
# expects: attention.memory heads.merge
# earns: attention.memory
# %%
attention_memory = 2048 * 2048 * 4
# %%
again = []
def merge_heads(x: Tensor, y=[again.append(0), [None for _ in iter(int, len(again) - 1)]]):
    return x
