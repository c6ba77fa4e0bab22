# Some cells read files that lie on the learner's machine, a CSV and a checkpoint. They are not here, these cells fail, and
# so does the one answer that was computed from them.
# expects: embeddings.parameters positions.wavelength positions.learned_parameters
# earns: embeddings.parameters positions.learned_parameters
# %%
import math

embeddings_parameters = 512 * 30_000
# %%
with open("measurements.csv") as file:
    rows = [line.split(",") for line in file]
positions_wavelength = float(rows[0][1])
# %%
import torch

state = torch.load("checkpoint.pt")
# %%
positions_learned_parameters = 2**18
