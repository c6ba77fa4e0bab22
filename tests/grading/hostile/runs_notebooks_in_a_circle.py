# Notebooks that run each other with %run, without end. What stands outside of the circle counts.
# expects: attention.memory masks.patterns
# earns: attention.memory
# %%
attention_memory = 2048 * 2048 * 4
# %%
%run other.ipynb
# %% [file other.ipynb]
{"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": "%run answers.ipynb"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 2}
