# Sliders, interact, Output, HTML and display() of all kinds stand between the answers, which have nothing to do with them.
# expects: heads.split heads.merge
# earns: heads.split heads.merge
# %%
import torch
import ipywidgets as widgets
from IPython.display import HTML, Markdown, clear_output, display
# %%
display(HTML("<h3>My heads</h3>"), Markdown("**bold**"))
clear_output(wait=True)
# %%
def split_heads(x, n_heads):
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, n_heads, -1).permute(0, 2, 1, 3)

slider = widgets.IntSlider(min=1, max=8, value=2)
display(slider)
# %%
@widgets.interact(n=(1, 4))
def look(n=2):
    print(split_heads(torch.zeros(1, 2, 12), n).shape)
# %%
panel = widgets.Output()
with panel:
    print("captured")
display(panel)
# %%
def merge_heads(x):
    batch, heads, tokens, width = x.shape
    return x.permute(0, 2, 1, 3).reshape(batch, tokens, heads * width)

display(merge_heads(torch.zeros(1, 2, 3, 4)), display_id="mine")
