# A DataLoader reads with a process of its own, as the documentation of torch advises, and the answer is computed from what
# it read. It needs a little shared memory, and a child that may end.
# expects: embeddings.parameters
# earns: embeddings.parameters
# %%
import torch
from torch.utils.data import DataLoader, TensorDataset
# %%
rows = TensorDataset(torch.full((30_000,), 512))
batches = [batch for (batch,) in DataLoader(rows, batch_size=3000, num_workers=1)]
embeddings_parameters = torch.cat(batches).sum()
