"""my_gpt.py: your GPT, from ids to stories. Chapter 18.

It has GPT-2's shape: learned positions, LayerNorm before each branch, one table for reading and for the output.
P holds the parts that you handed in; one that is missing is lent by the library, and `print(P)` says which.
In place of each `return lent(...)` write your own lines, from top to bottom; run `parity` after each.
Keep the names of classes and weights: under these names the weights go to the library's model and back.
"""

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.chapters.your_gpt.workshop import parts

P = parts()


class Embedding(nn.Module):
    """Look up the vector of every token: ids (B, T) -> (B, T, d_model), by P.lookup(weight, ids)."""

    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(config.vocab_size, config.d_model))  # (V, d_model)

    def forward(self, ids):
        return P.lookup(self.weight, ids)


class Positions(nn.Module):
    """Add the vector of position t to the token at t: x (B, T, d_model) -> the same shape."""

    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(config.max_seq_len, config.d_model))  # (max_seq_len, d_model)

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


class Norm(nn.Module):
    """Bring every token to a steady size, by P.norm(x, gamma, beta, eps): x (B, T, d_model) -> the same shape."""

    def __init__(self, config):
        super().__init__()
        self.eps = config.norm_eps
        self.weight, self.bias = nn.Parameter(torch.ones(config.d_model)), nn.Parameter(torch.zeros(config.d_model))

    def forward(self, x):
        return P.norm(x, self.weight, self.bias, self.eps)


class Attention(nn.Module):
    """Let every token gather from itself and those before: x (B, T, d_model) -> the same shape.

    Project to q, k, v; P.split(q, n_heads) makes heads, P.mask(T) says who may attend to whom,
    P.attention(q, k, v, mask) gives (heads, weights), P.merge(heads) joins them; out_proj comes last.
    """

    def __init__(self, config):
        super().__init__()
        self.n_heads = config.n_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(self, x):
        q = P.split(self.q_proj(x), self.n_heads)  # (B, H, T, D)
        k = P.split(self.k_proj(x), self.n_heads)
        v = P.split(self.v_proj(x), self.n_heads)
        heads, _ = P.attention(q, k, v, P.mask(x.shape[1]).to(x.device))  # (B, H, T, D)
        return self.out_proj(P.merge(heads))


class FeedForward(nn.Module):
    """Let every token think by itself, by P.feed_forward(x, W1, b1, W2, b2, "gelu"), whose W1 is (d_model, d_ff).

    nn.Linear keeps its weight as (out, in). GPT-2's own weights come with activation "gelu_tanh", which P.feed_forward
    does not know: there F.gelu(…, approximate="tanh") stands between the two layers. Leave it for the end.
    """

    def __init__(self, config):
        super().__init__()
        self.activation = config.activation
        self.up_proj = nn.Linear(config.d_model, config.d_ff)
        self.down_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x):
        up, down = self.up_proj, self.down_proj
        if self.activation == "gelu_tanh":
            return down(F.gelu(up(x), approximate="tanh"))
        return P.feed_forward(x, up.weight.T, up.bias, down.weight.T, down.bias, "gelu")


class Block(nn.Module):
    """Add to the residual stream what two branches read from it, by P.block(x, attention, ffn, norm1, norm2)."""

    def __init__(self, config):
        super().__init__()
        self.norm1, self.attention = Norm(config), Attention(config)
        self.norm2, self.feed_forward = Norm(config), FeedForward(config)

    def forward(self, x):
        return P.block(x, self.attention, self.feed_forward, self.norm1, self.norm2)


class MyGPT(nn.Module):
    """From ids (B, T) to logits (B, T, V); with targets (B, T) to (logits, mean loss in nats per token)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embedding, self.positions = Embedding(config), Positions(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = Norm(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("proj.bias"):
                nn.init.zeros_(weight)
        self.output.weight = self.token_embedding.weight  # one table, two uses

    def forward(self, ids, targets=None):
        x = self.positions(self.token_embedding(ids))  # (B, T, d_model)
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.final_norm(x))  # (B, T, V)
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(model, ids, targets, optimizer):
    """Do one update, by P.step(model, ids, targets, optimizer, max_norm) with max_norm 1; return the loss before it."""
    return P.step(model, ids, targets, optimizer, 1.0)


def write(model, ids, n_tokens, generator):
    """Append n_tokens drawn tokens to ids (B, T), one by one, by P.draw(logits, generator): logits (B, V) -> (B,).

    The model reads the last config.max_seq_len tokens; its logits at the last position say what may come next.
    """
    for _ in range(n_tokens):
        with torch.no_grad():
            logits = model(ids[:, -model.config.max_seq_len :])[:, -1]  # (B, V)
        ids = torch.cat([ids, P.draw(logits, generator)[:, None]], dim=1)
    return ids
