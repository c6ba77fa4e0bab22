# Cells that begin %%bash, %%html, %%javascript, %%latex and %%sh are no Python at all. They cost nothing.
# expects: masks.causal masks.patterns
# earns: masks.causal masks.patterns
# %%
%%bash
for i in 1 2 3; do
  echo "line $i" | wc -c
done
# %%
import torch
# %%
%%html
<style>.jp-Cell { border: 1px solid; }</style>
# %%
def causal_mask(T, S=None):
    S = S or T
    return torch.tensor([[key - (S - T) <= query for key in range(S)] for query in range(T)])
# %%
%%javascript
Jupyter.notebook.execute_all_cells();
# %%
%%latex
$$\mathrm{softmax}(QK^\top / \sqrt{d})$$
# %%
%%sh
nvidia-smi || true
# %%
masks_patterns = ("i", "d", "b")
