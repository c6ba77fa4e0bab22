"""Right answers of chapter 9 in other styles."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.trace import trace


def forward_by_one_hot(parts, ids):
    """Every look-up as a matrix product; the mask from places that are compared."""
    V, (B, T) = len(parts.token_table), ids.shape
    if len(parts.position_table) - T < 0:
        raise ValueError(f"{T} tokens")
    place = torch.arange(T)
    x = torch.einsum("btv,vd->btd", F.one_hot(ids.long(), V).to(parts.token_table), parts.token_table)
    x += torch.eye(T, len(parts.position_table), dtype=x.dtype) @ parts.position_table
    for i in range(len(parts.blocks)):
        x = parts.blocks[i].forward(x, mask=(place[:, None] >= place).expand(B, 1, T, T))
    return torch.einsum("btd,vd->btv", parts.final_norm(x), parts.output_table)


def forward_by_torch(p, tokens):
    try:
        x = F.embedding(tokens, p.token_table) + F.embedding(torch.arange(tokens.shape[1]), p.position_table)
    except IndexError as error:
        raise ValueError("more tokens than positions") from error
    later = torch.triu(torch.ones(tokens.shape[1], tokens.shape[1]), diagonal=1).bool()
    for block in p.blocks:
        x = block(x, ~later)
    return F.linear(p.final_norm(x), p.output_table)


def forward_place_by_place(parts, ids):
    """The text grows by one token at a time; only the last place of each pass is kept."""
    if ids.shape[1] > parts.position_table.shape[0]:
        raise ValueError(ids.shape)
    rows = []
    for T in range(1, ids.shape[1] + 1):
        x = np.stack([parts.token_table.numpy()[row[:T]] + parts.position_table.numpy()[:T] for row in ids.numpy()])
        x = torch.from_numpy(x)
        for block in parts.blocks:
            x = block(x, torch.tensor([[s <= t for s in range(T)] for t in range(T)]))
        rows.append(torch.stack([parts.output_table @ h for h in parts.final_norm(x)[:, -1]]))
    return torch.stack(rows, dim=1)


def forward_of_the_library(parts, ids):
    """The library's own decoder, with these parts put in their places."""
    (V, d_model), longest = parts.token_table.shape, len(parts.position_table)
    config = TransformerConfig(V, d_model, 1, 1, longest, tie_weights=False)
    model = DecoderOnly(config).to(parts.token_table.dtype)
    model.token_embedding.weight = nn.Parameter(parts.token_table)
    model.positions.weight = nn.Parameter(parts.position_table)
    model.output.weight = nn.Parameter(parts.output_table)
    model.blocks, model.final_norm = copy.deepcopy(parts.blocks), parts.final_norm
    for block in model.blocks:
        block.is_causal = True
    return model(ids)


def tie_by_setattr(model):
    setattr(model.output, "weight", model.get_parameter("token_embedding.weight"))  # noqa: B010
    return model


def tie_by_registering(gpt):
    del gpt.output.weight
    gpt.output.register_parameter("weight", gpt.token_embedding.weight)


def tie_with_a_new_layer(model):
    V, d_model = model.token_embedding.weight.shape
    layer = nn.Linear(d_model, V, bias=False, device="meta")
    layer.weight = model.token_embedding.weight
    model.output = layer


def tie_from_the_output(model):
    """The values go to the output's tensor, and that becomes the token table."""
    model.output.weight.data = model.token_embedding.weight.data.clone()
    model.token_embedding.weight = model.output.weight


def shapes_by_running():
    """Every tensor as the library's model makes it."""
    config = TransformerConfig(vocab_size=500, d_model=48, n_heads=6, n_layers=4, max_seq_len=64)
    model = DecoderOnly(config)
    ids = torch.zeros(3, 10, dtype=torch.int64)
    with trace(model) as seen:
        logits, loss = model(ids, ids)
    inside = ("attention.query", "attention.weights", "attention.heads", "attention", "feed_forward.hidden")
    names = ["token_embedding", "positions", *(f"blocks.0.{part}" for part in inside)]
    found = [tuple(seen[name].shape) for name in names]
    found.insert(1, tuple(model.positions.weight[:10].shape))
    return [*found, tuple(logits.shape), tuple(logits[:, -1].shape), tuple(loss.shape)]


def loss_by_running():
    """The mean of many evenly spread guesses among V tokens, as cross-entropy has it."""
    return F.cross_entropy(torch.zeros(1, 128_256), torch.tensor([7]))


RIGHT = {
    "gpt.forward": [forward_by_one_hot, forward_by_torch, forward_place_by_place],
    "gpt.tie_weights": [tie_by_setattr, tie_by_registering, tie_with_a_new_layer, tie_from_the_output],
    "gpt.initial_loss": [11.76, 11.9, math.log(128_256), np.log(128_256), loss_by_running()],
    "gpt.shape_trace": [shapes_by_running()],
}
OF_THE_LIBRARY = {"gpt.forward": [forward_of_the_library]}
