# The notebook begins with %reset -f and clears the screen; later cells switch a debugger on, look after an error with it,
# list names, start a log, time things. Each answer stands in the cell of such a line.
# expects: masks.patterns heads.parameters heads.grouped
# earns: masks.patterns heads.parameters heads.grouped
# %%
%reset -f
%colors nocolor
%xmode Minimal
import torch
# %%
%pdb on
%who
%whos
masks_patterns = {"b", "d", "i"}
1 / 0
# %%
%debug
# %%
%pdb off
%lsmagic
%unalias nothing_of_this_name
heads_parameters = 0
# %%
%alias_magic t time
%t heads_parameters = 4 * 513 * 512
%macro -q again 1
# %%
%psource torch.cat
%pdoc torch.cat
%precision 3
def repeat_kv(k, n_heads):
    return k.repeat_interleave(n_heads // k.shape[1], 1)
%pinfo repeat_kv
