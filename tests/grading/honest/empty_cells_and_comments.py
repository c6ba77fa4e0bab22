# Empty cells, cells of comments and of blanks alone, a cell that holds nothing but a docstring, `pass` and `...`.
# expects: attention.memory masks.patterns
# earns: attention.memory masks.patterns
# %%
# %%
# nothing yet
# %%

    
# %%
"""Only a text."""
# %%
...
# %%
pass
# %%
attention_memory = 2048 * 2048 * 4
# %%
# masks_patterns = {"a"}   my first idea
masks_patterns = {"b", "d", "i"}
# masks_patterns = ...
