"""CS336's assignment 1, editions 2025 and 2024, in our parts: the names and arguments of the functions are theirs."""

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.attention import scaled_dot_product_attention
from course_lib.blocks import TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.embeddings import TokenEmbedding
from course_lib.feed_forward import FeedForward, SwiGLU
from course_lib.gpt import DecoderOnly, next_token_loss
from course_lib.heads import MultiHeadAttention
from course_lib.normalization import RMSNorm
from course_lib.positions import apply_rotary, rotary_angles
from course_lib.sampling import next_token_distribution
from course_lib.tinytown import Batches, BytePairTokenizer
from course_lib.training import learning_rate, make_optimizer, train
from course_lib.training_options.checkpoints import load_checkpoint, save_checkpoint


def renamed(name, names):
    for theirs, ours in names.items():
        name = name.replace(theirs, ours)
    return name


def filled(module, weights, names=()):
    """The module with these weights; names: parts of their names and what they are called here, in this order."""
    module.load_state_dict({renamed(name, dict(names)): tensor for name, tensor in weights.items()})
    return module.eval()


# -------------------------------------------------------------------------------------------- CS336, 2025: the adapters
NAMES = {
    "token_embeddings": "token_embedding", "position_embeddings": "positions", "layers.": "blocks.",
    "attn.output_proj": "attention.out_proj", "attn.": "attention.", "ln1": "norm1", "ln2": "norm2",
    "ln_final": "final_norm", "lm_head": "output",
}  # fmt: skip
SWIGLU = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
GELU = {"w1": "up_proj", "w2": "down_proj"}  # 2024
NAMES_2025, NAMES_2024 = ({**NAMES, "ffn": "feed_forward", **inner} for inner in (SWIGLU, GELU))


def cs336_config(d_model, num_heads, d_ff, **others):
    """What all of CS336's models have in common."""
    common = {"norm": "rms", "norm_position": "pre", "norm_eps": 1e-5, "bias": False, "tie_weights": False}
    sizes = {"d_model": d_model, "n_heads": num_heads, "d_ff": d_ff}
    return TransformerConfig(**{"vocab_size": 1, "n_layers": 1, **sizes, **common, **others})


def cs336_rope(theta):
    return {"activation": "swiglu", "positions": "rope", "rope_theta": theta, "rope_interleaved": True}


def run_linear(d_in, d_out, weights, in_features):
    return filled(nn.Linear(d_in, d_out, bias=False), {"weight": weights})(in_features)  # ours are PyTorch's


def run_embedding(vocab_size, d_model, weights, token_ids):
    return filled(TokenEmbedding(vocab_size, d_model), {"weight": weights})(token_ids)


def run_rmsnorm(d_model, eps, weights, in_features):
    return filled(RMSNorm(d_model, eps), {"weight": weights})(in_features)


def run_silu(in_features):
    return F.silu(in_features)  # what SwiGLU calls


def run_swiglu(d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features):
    weights = {"w1.weight": w1_weight, "w2.weight": w2_weight, "w3.weight": w3_weight}
    return filled(SwiGLU(d_model, d_ff), weights, SWIGLU)(in_features)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    angles = rotary_angles(token_positions, d_k, theta, in_query_or_key.dtype)  # computed, not looked up: no longest
    return apply_rotary(in_query_or_key, angles, interleaved=True)


def run_softmax(in_features, dim):
    return next_token_distribution(in_features.movedim(dim, -1)).movedim(-1, dim)


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    return scaled_dot_product_attention(Q, K, V, mask)[0]


def run_multihead_self_attention(
    d_model, num_heads, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, rotary=None
):
    weights = {"q_proj": q_proj_weight, "k_proj": k_proj_weight, "v_proj": v_proj_weight, "out_proj": o_proj_weight}
    attention = MultiHeadAttention(d_model, num_heads, bias=False, rope_interleaved=True)
    attention = filled(attention, {f"{name}.weight": weight for name, weight in weights.items()})
    return attention(in_features, is_causal=True, rotary=rotary)


def run_multihead_self_attention_with_rope(
    d_model, num_heads, max_seq_len, theta,
    q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, token_positions=None,
):  # fmt: skip
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])[None]  # (1, T)
    angles = rotary_angles(token_positions, d_model // num_heads, theta, in_features.dtype)  # (1 or B, T, D / 2)
    weights = q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight
    return run_multihead_self_attention(d_model, num_heads, *weights, in_features, angles[:, None])


def run_transformer_block(d_model, num_heads, d_ff, max_seq_len, theta, weights, in_features):
    config = cs336_config(d_model, num_heads, d_ff, max_seq_len=max_seq_len, **cs336_rope(theta))
    angles = rotary_angles(torch.arange(in_features.shape[-2]), config.d_head, theta, in_features.dtype)
    return filled(TransformerBlock(config), weights, NAMES_2025)(in_features, rotary=angles)


def run_transformer_lm(
    vocab_size, context_length, d_model, num_layers, num_heads, d_ff, rope_theta, weights, in_indices
):
    sizes = {"vocab_size": vocab_size, "max_seq_len": context_length, "n_layers": num_layers}
    config = cs336_config(d_model, num_heads, d_ff, **sizes, **cs336_rope(rope_theta))
    return filled(DecoderOnly(config), weights, NAMES_2025)(in_indices)


def run_cross_entropy(inputs, targets):
    return next_token_loss(inputs[None], targets[None])


def run_gradient_clipping(parameters, max_l2_norm):
    """One step of `train` at rate 0, on a loss that has these gradients: it clips, and moves nothing."""
    parameters = list(parameters)
    given = [(p, p.grad.clone()) for p in parameters if p.grad is not None]
    model = nn.Module()
    model.parts = nn.ParameterList(parameters)
    model.forward = lambda: (None, sum((p * gradient).sum() for p, gradient in given))
    train(model, iter([()]), steps=1, peak=0.0, max_norm=max_l2_norm, progress=False)


def get_adamw_cls():
    def adamw(params, lr, weight_decay, betas, eps):
        optimizer = make_optimizer(nn.ParameterList(params), weight_decay, betas)
        for group in optimizer.param_groups:
            group.update(lr=lr, eps=eps)
        return optimizer

    return adamw


def run_get_lr_cosine_schedule(it, max_learning_rate, min_learning_rate, warmup_iters, cosine_cycle_iters):
    return learning_rate(it, max_learning_rate, warmup_iters, cosine_cycle_iters, min_learning_rate)


def run_get_batch(dataset, batch_size, context_length, device):
    return next(Batches(torch.as_tensor(dataset, device=device), batch_size, context_length))


def run_save_checkpoint(model, optimizer, iteration, out):
    save_checkpoint(out, model, optimizer, history={"iteration": iteration})


def run_load_checkpoint(src, model, optimizer):
    return load_checkpoint(src, model, optimizer)["iteration"]


def run_train_bpe(input_path, vocab_size, special_tokens):
    """Theirs are id -> bytes, and merges as pairs of bytes; ours stand in the alphabet that GPT-2 gave to bytes."""
    tokenizer = BytePairTokenizer.train(
        Path(input_path).read_text(encoding="utf-8"), vocab_size, special_tokens
    ).tokenizer
    shown = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
    hidden = [b for b in range(256) if b not in shown]
    letters = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}

    def as_bytes(token):
        return token.encode() if token in special_tokens else bytes(letters[letter] for letter in token)

    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    vocab = {i: as_bytes(token) for token, i in tokenizer.get_vocab().items()}
    return vocab, [(as_bytes(left), as_bytes(right)) for left, right in merges]


# ------------------------------------------------------------------------------------------------- CS336, 2024 edition
def run_scaled_dot_product_attention_2024(K, Q, V, mask=None, pdrop=None):
    return scaled_dot_product_attention(Q, K, V, None if mask is None else ~mask, pdrop or 0.0)[0]


def run_positionwise_feedforward(d_model, d_ff, weights, in_features):
    return filled(FeedForward(d_model, d_ff, "gelu", bias=False), weights, GELU)(in_features)


def run_multihead_self_attention_2024(d_model, num_heads, attn_pdrop, weights, in_features):
    whole = {"out_proj.weight": weights["output_proj.weight"]}
    for part in ("q", "k", "v"):
        whole[f"{part}_proj.weight"] = torch.cat([weights[f"{part}_heads.{i}.weight"] for i in range(num_heads)])
    return filled(MultiHeadAttention(d_model, num_heads, dropout=attn_pdrop, bias=False), whole)(
        in_features, is_causal=True
    )


def run_transformer_lm_2024(
    vocab_size, context_length, d_model, num_layers, num_heads, d_ff, attn_pdrop, residual_pdrop, weights, in_indices
):
    sizes = {"vocab_size": vocab_size, "max_seq_len": context_length, "n_layers": num_layers}
    config = cs336_config(d_model, num_heads, d_ff, **sizes, activation="gelu", positions="learned")
    return filled(DecoderOnly(config), weights, NAMES_2024)(in_indices)
