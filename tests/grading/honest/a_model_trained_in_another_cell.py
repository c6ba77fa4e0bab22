# One cell trains a small network for a second, a class, a Dataset and a DataLoader in the cells above it. One answer counts
# its parameters, another one asks the course's own library. Cells take their time, within the limit.
# expects: heads.parameters training.limit
# earns: heads.parameters training.limit
# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from course_lib.tinytown import Tinytown
# %%
class Lines(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        x = torch.tensor([i / 256.0])
        return x, 3 * x - 1
# %%
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
losses = []
for epoch in range(5):
    for x, y in DataLoader(Lines(), batch_size=32, shuffle=True):
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
assert losses[-1] < losses[0]
# %%
projections = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))
heads_parameters = sum(p.numel() for p in projections.parameters())
# %%
training_limit = Tinytown().entropy() * Tinytown().story_length() / torch.tensor(2.0).log().item()
