import math

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.fixtures import also_in_training as probe


class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            project(x).view(B, T, self.n_heads, -1).transpose(1, 2)  # (B, H, T, D)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        mixed = scores.softmax(-1) @ v  # (B, H, T, D)
        return self.out_proj(mixed.transpose(1, 2).reshape(B, T, d_model))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff)
        self.down_proj = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.down_proj(F.gelu(self.up_proj(x)))


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = SelfAttention(d_model, n_heads)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed_forward(x))


def texts(rng, B, T, d_model, dtype=torch.float32):
    return torch.randn(B, T, d_model, generator=rng, dtype=dtype)


@stage
def one_token(seed):
    "One token, no mask: it can only attend to itself, so all attention weights are 1."
    return [Case(texts(generator(seed), 1, 1, 4), init=(4, 2, 8))]


@stage
def every_token_sees_all(seed):
    "Texts without a mask: every token attends to every token, including later ones."
    rng = generator(seed)
    return [
        Case(texts(rng, 1, 3, 4), init=(4, 1, 6)),
        Case(texts(rng, 2, 3, 4), init=(4, 2, 16)),
        Case(texts(rng, 4, 4, 4), init=(4, 4, 4)),
        Case(texts(rng, 3, 5, 6), init=(6, 3, 7)),
        Case(texts(rng, 5, 3, 8).transpose(0, 1), init=(8, 2, 8)),
        Case(100 * texts(rng, 2, 4, 6), init=(6, 2, 5)),
    ]


@stage
def padded(seed):
    "Padding: the mask (B, 1, 1, T) is False there, and no token may attend to it."
    rng = generator(seed)
    lengths = torch.tensor([3, 1, 5])
    mask = (torch.arange(5) < lengths[:, None])[:, None, None]  # (B, 1, 1, T)
    return [
        Case(texts(rng, 1, 3, 4), mask[:1, ..., 1:4], init=(4, 2, 6)),
        Case(texts(rng, 3, 5, 6), mask, init=(6, 3, 10)),
        Case(texts(rng, 3, 5, 6), mask.flip(0), init=(6, 3, 10)),
    ]


@stage
def any_mask(seed):
    "A separate mask for every head and token, True = may attend; and large inputs, with one key for each token."
    rng = generator(seed)
    mask = (torch.rand(2, 3, 4, 4, generator=rng) < 0.5) | torch.eye(4, dtype=torch.bool)
    one = torch.eye(6, dtype=torch.bool).roll(1, 1)
    return [Case(texts(rng, 2, 4, 6), mask, init=(6, 3, 9)), Case(1000 * texts(rng, 2, 6, 6), one, init=(6, 3, 9))]


@stage
def double_texts(seed):
    "float64 in, float64 out."
    return [Case(texts(generator(seed), 2, 3, 4, torch.float64), init=(4, 2, 6))]


@stage
def in_training_mode(seed):
    "In training mode, where dropout would act, there is none. A gradient gets back to x (second result)."
    rng = generator(seed)
    return [Case(texts(rng, 3, 6, 8, torch.float64).requires_grad_(), init=(8, 2, 16))]
