"""Right answers of chapter 8 in other styles."""

import numpy as np
import torch
from torch import nn
from torch.func import grad

from course_lib.blocks import TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.feed_forward import FeedForward
from course_lib.heads import MultiHeadAttention


def pre_norm_in_a_loop(x, attention, ffn, norm1, norm2):
    for norm, branch in ((norm1, attention), (norm2, ffn)):
        x = torch.add(x, branch(norm(x)))
    return x


def pre_norm_in_place_on_a_copy(stream, mix, think, first, second):
    stream = stream.clone()
    stream += mix(first(stream))
    stream += think(second(stream))
    return stream


def pre_norm_as_a_sum(x, attention, ffn, norm1, norm2):
    written = attention(norm1(x))
    return torch.stack([x, written, ffn(norm2(x + written))]).sum(0)


def post_norm_in_a_loop(x, attention, ffn, norm1, norm2):
    for norm, branch in ((norm1, attention), (norm2, ffn)):
        x = norm(torch.add(x, branch(x)))
    return x


def post_norm_in_one_line(x, attention, ffn, norm1, norm2):
    return norm2((middle := norm1(attention(x) + x)) + ffn(middle))


def post_norm_in_place_on_a_copy(x, attention, ffn, norm1, norm2):
    x = x.detach().clone()
    x += attention(x)
    x = norm1(x)
    x += ffn(x)
    return norm2(x)


class EncoderFromLibraryParts(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, mask=mask))
        return self.norm2(x + self.feed_forward(x))


class EncoderOfTheLibrary(TransformerBlock):
    def __init__(self, d_model, n_heads, d_ff):
        sizes = {"d_model": d_model, "n_heads": n_heads, "d_ff": d_ff, "vocab_size": 1, "n_layers": 1, "max_seq_len": 8}
        super().__init__(TransformerConfig(**sizes, family="encoder", norm_position="post", norm="layer"))


class EncoderByEinsum(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads = n_heads
        self.attention = nn.ModuleDict(
            {name: nn.Linear(d_model, d_model) for name in ("q_proj", "k_proj", "v_proj", "out_proj")}
        )
        self.feed_forward = nn.ModuleDict({"up_proj": nn.Linear(d_model, d_ff), "down_proj": nn.Linear(d_ff, d_model)})
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        q, k, v = (self.attention[name](x).unflatten(-1, (self.n_heads, -1)) for name in ("q_proj", "k_proj", "v_proj"))
        scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf)
        mixed = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v).flatten(2)
        x = self.norm1(x + self.attention["out_proj"](mixed))
        hidden = self.feed_forward["up_proj"](x)
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        return self.norm2(x + self.feed_forward["down_proj"](hidden))


def gradients_by_functional_grad(weights, biases, x):
    def total(start, skip):
        for weight, bias in zip(weights, biases):
            start = skip * start + torch.nn.functional.linear(start, weight, bias).tanh()
        return start.sum()

    return tuple(grad(total)(x, skip).norm().item() for skip in (0.0, 1.0))


def gradients_by_the_chain_rule(weights, biases, x):
    weights, biases = weights.double().numpy(), biases.double().numpy()
    norms = []
    for skip in (0, 1):
        stream, slopes = x.double().numpy(), []
        for weight, bias in zip(weights, biases):
            branch = np.tanh(stream @ weight.T + bias)
            slopes.append(1 - branch**2)
            stream = skip * stream + branch
        gradient = np.ones_like(stream)
        for weight, slope in zip(weights[::-1], slopes[::-1]):
            gradient = skip * gradient + (gradient * slope) @ weight
        norms.append(np.linalg.norm(gradient))
    return norms


def orders_in_one_loop(pre, post, inputs, targets, learning_rate):
    models = [pre, post]
    optimizers = [torch.optim.AdamW(model.parameters(), learning_rate, foreach=False) for model in models]
    losses = torch.zeros(2, len(inputs))
    for step in range(len(inputs)):
        for row, (model, optimizer) in enumerate(zip(models, optimizers)):
            loss = model(inputs[step], targets[step])[1]
            losses[row, step] = loss.detach()
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter.grad = gradient
            optimizer.step()
    return losses[0], losses[1]


RIGHT = {
    "blocks.pre_norm": [pre_norm_in_a_loop, pre_norm_in_place_on_a_copy, pre_norm_as_a_sum],
    "blocks.post_norm": [post_norm_in_a_loop, post_norm_in_one_line, post_norm_in_place_on_a_copy],
    "blocks.encoder": [EncoderFromLibraryParts, EncoderByEinsum],
    "blocks.gradient_norms": [gradients_by_functional_grad, gradients_by_the_chain_rule],
    "blocks.pre_or_post": [orders_in_one_loop],
}
OF_THE_LIBRARY = {"blocks.encoder": [EncoderOfTheLibrary]}
