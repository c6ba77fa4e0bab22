# The learner's notes quote code, some of it wrong on purpose, under the names of the exercises. The code cells hold the
# answers, and what is quoted does not replace them.
# expects: normalization.layer_norm normalization.parameters
# earns: normalization.layer_norm normalization.parameters
# %%
import torch
# %%
def layer_norm(x, gamma, beta, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma + beta
# %%
normalization_parameters = 2 * 2 * 768
# %% [markdown]
What I had first, and why it was wrong:

```python
def layer_norm(x, gamma, beta, eps):
    return (x - x.mean()) / (x.std() + eps)
```

```python
normalization_parameters = 768
```
