# A number may be a product, a float, a NumPy scalar, a tensor with one element, the count of a real model; a shape may be a
# list, a tuple, a torch.Size, and the parts of a table a tuple in their order.
# expects: attention.memory heads.parameters normalization.parameters embeddings.parameters feed_forward.parameters gpt.initial_loss encoder_decoder.shape_trace
# earns: attention.memory heads.parameters normalization.parameters embeddings.parameters feed_forward.parameters gpt.initial_loss encoder_decoder.shape_trace
# %%
import math

import numpy as np
import torch
from torch import nn
# %%
attention_memory = 2.0**24
heads_parameters = np.int32(4) * np.array([512 * 512 + 512])
normalization_parameters = torch.tensor(3072.0)
embeddings_parameters = torch.Size([30_000, 512]).numel()
# %%
up, down = nn.Linear(512, 2048), nn.Linear(2048, 512)
count = sum(parameter.numel() for layer in (up, down) for parameter in layer.parameters())
feed_forward_parameters = (np.float32(count), 3 * 4096 * 11008 / (2 * 4096 * 16384 + 4096 + 16384))
# %%
gpt_initial_loss = torch.tensor(128256.0).log()
# %%
x, y = torch.empty(3, 9, 40), torch.empty(3, 6, 40)
H, V = 5, 90
encoder_decoder_shape_trace = {
    "encoded": x.shape, "self_scores": [3, H, 6, 6], "query": y.view(3, 6, H, 8).transpose(1, 2).shape,
    "key": x.view(3, 9, H, 8).transpose(1, 2).size(), "cross_scores": (3, H, 6, 9), "source_mask": (3, 1, 1, 9),
    "head_outputs": torch.Size([3, H, 6, 8]), "cross_output": y.shape, "logits": [*y.shape[:2], V],
}
