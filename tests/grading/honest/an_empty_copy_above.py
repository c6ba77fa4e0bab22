# The empty cells were left where they were and the answers written into copies below them.
# expects: heads.module heads.shape_trace heads.d_k_tradeoff
# earns: heads.module heads.shape_trace heads.d_k_tradeoff
# %%
import torch
from torch import nn
# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        # Your answer goes here, in place of the next line.
        raise NotImplementedError

    def forward(self, x, mask=None):
        # Your answer goes here, in place of the next line.
        raise NotImplementedError
# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.H = n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def _heads(self, x):
        return x.unflatten(-1, (self.H, -1)).transpose(1, 2)

    def forward(self, x, mask=None):
        q, k, v = self._heads(self.q_proj(x)), self._heads(self.k_proj(x)), self._heads(self.v_proj(x))
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1).nan_to_num(0)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
# %%
heads_shape_trace = ...  # your answer
heads_d_k_tradeoff = ...  # your answer
# %%
B, T, d_model, H = 3, 7, 96, 6
D = d_model // H
heads_shape_trace = {
    "projected": (B, T, d_model), "split": (B, H, T, D), "keys_transposed": (B, H, D, T), "scores": (B, H, T, T),
    "weights": (B, H, T, T), "mixed": (B, H, T, D), "merged": (B, T, d_model), "output": (B, T, d_model),
}
heads_d_k_tradeoff = {"width", "looks", "table"}
