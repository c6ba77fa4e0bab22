# Every cell gives another guess, and at the end the answer is left open again: only the last guess may count.
# expects: attention.memory masks.patterns sampling.which_are_true
# %%
attention_memory = 4 * 2048 * 2048
masks_patterns = ["b", "d", "i"]
# %%
attention_memory = 1
masks_patterns = ["a"]
# %%
for attention_memory in range(16_777_000, 16_777_400):
    masks_patterns = ["b", "d"]
# %%
attention_memory = ...
masks_patterns = ...
sampling_which_are_true = list("abcdefghijk")
