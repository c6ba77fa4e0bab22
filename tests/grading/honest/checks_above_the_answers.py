# Each check stands in a cell above its answer, as it does after a cell was inserted in the wrong place.
# expects: positions.learned_parameters positions.shift_matrix
# earns: positions.learned_parameters positions.shift_matrix
# %%
import torch
from course_lib.grading import check
# %%
check("positions.learned_parameters", positions_learned_parameters)
# %%
check("positions.shift_matrix", shift_matrix)
# %%
positions_learned_parameters = 512 * 512
# %%
def shift_matrix(k, d_model):
    speeds = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    blocks = [torch.stack([torch.stack([a.cos(), a.sin()]), torch.stack([-a.sin(), a.cos()])]) for a in k * speeds]
    return torch.block_diag(*blocks).float()
