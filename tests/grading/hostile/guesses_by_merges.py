# A merge that was never one: between its marks stand two guesses at a choice. Theirs, the later, counts.
# expects: masks.patterns heads.merge
# earns: heads.merge
# %%
def merge_heads(x):
    return x.transpose(1, 2).flatten(2)
# %% [file 03_masks.ipynb]
{"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source":
<<<<<<< HEAD
"masks_patterns = ['b', 'd', 'i']"
=======
"masks_patterns = ['a']"
>>>>>>> main
}], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
