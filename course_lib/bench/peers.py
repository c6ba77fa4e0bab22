"""Peers: alternative models with the same shape and weights as ours.

Each computes the same function, so that only the time differs. The call is the same as for our model: peer(ids,
targets) -> (logits, loss).
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import from_hf_state_dict


class FusedBlock(nn.Module):
    """A block like nanoGPT's: one matrix for queries, keys and values, and one kernel for attention."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        d = config.d_model
        self.n_heads = config.n_heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        d_ff = config.d_ff or 4 * d
        self.up, self.down = nn.Linear(d, d_ff), nn.Linear(d_ff, d)

    def forward(self, x: Tensor) -> Tensor:
        B, T, d = x.shape
        q, k, v = (
            part.view(B, T, self.n_heads, d // self.n_heads).transpose(1, 2)  # (B, H, T, D)
            for part in self.qkv(self.norm1(x)).split(d, dim=2)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(B, T, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class FusedGPT(nn.Module):
    """A GPT like nanoGPT, with as few kernels as plain PyTorch allows."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_seq_len, config.d_model)
        self.blocks = nn.ModuleList(FusedBlock(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.output.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class BuiltInGPT(nn.Module):
    """A GPT built from PyTorch's `nn.TransformerEncoder`, with its causal mask."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_seq_len, config.d_model)
        layer = nn.TransformerEncoderLayer(
            config.d_model,
            config.n_heads,
            config.d_ff or 4 * config.d_model,
            dropout=0.0,
            activation=lambda x: F.gelu(x, approximate="tanh"),
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(config.d_model)
        self.stack = nn.TransformerEncoder(layer, config.n_layers, norm, enable_nested_tensor=False)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.output.weight = self.tokens.weight

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        T = ids.shape[1]
        x = self.tokens(ids) + self.positions(torch.arange(T, device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(T, device=ids.device, dtype=x.dtype)
        logits = self.output(self.stack(x, mask=mask, is_causal=True))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class HuggingFaceGPT(nn.Module):
    """GPT-2 from `transformers`, with its default settings except dropout, which is off for all models here."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        settings = GPT2Config(
            vocab_size=config.vocab_size,
            n_embd=config.d_model,
            n_head=config.n_heads,
            n_layer=config.n_layers,
            n_positions=config.max_seq_len,
            n_inner=config.d_ff,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
        self.model = GPT2LMHeadModel(settings)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.model(input_ids=ids, use_cache=False).logits
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# The names of our parts in two of the peers above. "qkv" stacks three of our matrices.
_TOP = {"token_embedding": "tokens", "positions": "positions", "final_norm": "norm", "output": "output"}
_FUSED = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attention.out_proj": "out",
    "feed_forward.up_proj": "up",
    "feed_forward.down_proj": "down",
}
_BUILT_IN = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attention.out_proj": "self_attn.out_proj",
    "feed_forward.up_proj": "linear1",
    "feed_forward.down_proj": "linear2",
}


def same_weights(config: TransformerConfig, seed: int = 0) -> dict[str, Any]:
    """Return our model and its peers by name, all with the same weights.

    config: as in GPT-2, with learned positions, gelu_tanh, LayerNorm before each branch, biases and tied embeddings.
    """
    torch.manual_seed(seed)
    theirs = HuggingFaceGPT(config)
    ours = cast(DecoderOnly, from_hf_state_dict("gpt2", theirs.model.state_dict(), theirs.model.config))
    peers = {"ours": ours, "nanoGPT-shaped": FusedGPT(config), "nn.TransformerEncoder": BuiltInGPT(config)}
    _copy(ours, peers["nanoGPT-shaped"], "blocks.{}", _FUSED, "qkv.{}", _TOP)
    renamed = _TOP | {"final_norm": "stack.norm"}
    _copy(ours, peers["nn.TransformerEncoder"], "stack.layers.{}", _BUILT_IN, "self_attn.in_proj_{}", renamed)
    return {**peers, "transformers": theirs}


def _copy(
    ours: DecoderOnly, peer: nn.Module, block: str, parts: Mapping[str, str], qkv: str, top: Mapping[str, str]
) -> None:
    weights = ours.state_dict()
    named = {f"{theirs}.{kind}": weights.get(f"{name}.{kind}") for name, theirs in top.items() for kind in KINDS}
    for i in range(ours.config.n_layers):
        here = block.format(i)
        for kind in KINDS:
            named |= {
                f"{here}.{theirs}.{kind}": weights.get(f"blocks.{i}.{name}.{kind}") for name, theirs in parts.items()
            }
            joined = [weights[f"blocks.{i}.attention.{part}_proj.{kind}"] for part in "qkv"]
            named[f"{here}.{qkv.format(kind)}"] = torch.cat(joined)
    peer.load_state_dict({name: tensor for name, tensor in named.items() if tensor is not None})


KINDS = ("weight", "bias")


class PlainLoop:
    """Greedy generation without a cache: the model reads the full text again for every token."""

    def __init__(self, model: DecoderOnly):
        self.model = model

    @torch.no_grad()
    def __call__(self, ids: Tensor, max_new_tokens: int) -> Tensor:
        for _ in range(max_new_tokens):
            ids = torch.cat([ids, self.model(ids)[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
        return ids
