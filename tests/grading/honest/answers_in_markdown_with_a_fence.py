# Two cells were retyped to markdown, the code in a fence with text around it, as if it were a forum post. No code cell
# holds these names, so that they count, and it is said.
# expects: masks.causal masks.patterns
# earns: masks.causal masks.patterns
# %%
import torch
# %% [markdown]
My mask. It took me a while: the `S - T` matters when there is a cache.

```python
def causal_mask(T, S=None):
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)
```

I think that it *cannot* be shorter.
# %% [markdown]
~~~
masks_patterns = {"b", "d", "i"}
~~~
