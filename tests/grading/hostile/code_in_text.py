# Text cells that hold code: what is no answer must not run, and what runs is watched as any other cell.
# expects: attention.softmax attention.memory masks.causal
# touches: mark
# %% [markdown]
# ```python
import ctypes
open("{OUTSIDE}/{MARK}-markdown", "w").close()
ctypes.CDLL(None)._exit(0)
# ```
# %% [raw]
softmax = __import__("ctypes").CDLL(None)._exit(0)
# %% [markdown]
```python
attention_memory = open("{OUTSIDE}/{MARK}-fenced", "w").close() or 5
```
