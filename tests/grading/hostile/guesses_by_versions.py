# Three versions of a notebook, each with another guess at what nothing is computed for, and all with the same code: the
# newest counts, as the last of several guesses in one notebook does.
# expects: masks.patterns attention.memory heads.merge
# earns: heads.merge
# %%
def merge_heads(x):
    return x.transpose(1, 2).flatten(2)

masks_patterns = ["b", "d", "i"]
attention_memory = 1
# %% [file answers (1).ipynb]
{"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": "def merge_heads(x):\n    return x.transpose(1, 2).flatten(2)\nmasks_patterns = ['b', 'd']\nattention_memory = 2048 * 2048 * 4"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
# %% [file answers (2).ipynb]
{"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": "def merge_heads(x):\n    return x.transpose(1, 2).flatten(2)\nmasks_patterns = ['a']\nattention_memory = 2"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
