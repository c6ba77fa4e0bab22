"""A model as bytes that a page reads: its weights in half precision, its config and its words."""

import json
from dataclasses import asdict

import torch
from safetensors.torch import save

from course_lib.gpt import DecoderOnly
from course_lib.positions import alibi_bias, rotary_angles
from course_lib.tinytown import WordTokenizer

# Switches that `engine.js` does not know, and the one value with which a model runs there all the same.
UNKNOWN = {"head_dim": None, "rotary_share": 1.0, "rope_scaling": None, "window": None}
UNKNOWN |= dict.fromkeys(("qkv_bias", "qk_norm", "parallel", "output_bias"), False)
MOST_WEIGHTS = 5_000_000  # beyond this a page would take seconds for a word


def pack(model: DecoderOnly, tokenizer: WordTokenizer) -> bytes:
    """Return a model and its words as the bytes of a safetensors file, for `engine.js`.

    Args:
        model: of the decoder family, small, with any norms, positions but "relative", and activation but "silu".
        tokenizer: whose `tokens` are the model's vocabulary.

    Errors: TypeError for another model or tokenizer. ValueError for a model of more than five million weights, with
        weights that half precision cannot hold, or with a switch that the page does not know; for words that do not
        fit the model.
    """
    if not isinstance(model, DecoderOnly):
        raise TypeError(f"model must be a DecoderOnly, got {type(model).__name__}: the page shows a decoder")
    config = asdict(model.config) | {"embedding_factor": model.token_embedding.factor}
    for field, value in UNKNOWN.items():
        if config.pop(field) != value:
            raise ValueError(
                f"model has {field}={getattr(model.config, field)!r}: the page shows {field}={value!r} alone"
            )
    if config["positions"] == "relative" or config["activation"] == "silu":
        given = f"positions={config['positions']!r} and activation={config['activation']!r}"
        raise ValueError(f"model has {given}: the page knows neither 'relative' nor 'silu'")
    if model.config.positions == "rope":  # how far each pair is turned per position
        angles = rotary_angles(torch.arange(2), model.config.d_head, model.config.rope_theta)
        config["rope_frequencies"] = angles[1].tolist()
    elif model.config.positions == "alibi":
        config["alibi_slopes"] = (-alibi_bias(model.config.n_heads, T=2)[:, 1, 0]).tolist()
    if not isinstance(tokenizer, WordTokenizer):
        raise TypeError(f"tokenizer must be a WordTokenizer, got {type(tokenizer).__name__}: the page splits words")
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(f"tokenizer has {len(tokenizer)} tokens, and the model {model.config.vocab_size}")
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    if (count := sum(weight.numel() for weight in weights.values())) > MOST_WEIGHTS:
        raise ValueError(f"model has {count:,} weights: the page shows up to {MOST_WEIGHTS:,}")
    if model.config.tie_weights:
        del weights["output.weight"]  # the token embedding once more
    rows = torch.zeros(model.config.max_seq_len, model.config.d_model, device=model.token_embedding.weight.device)
    with torch.no_grad():
        weights["positions.weight"] = rows if model.positions is None else model.positions(rows)
    about = {"config": json.dumps(config)}
    small = {name: weight.half().cpu().contiguous() for name, weight in weights.items()}
    if wrong := next((name for name, weight in small.items() if not weight.isfinite().all()), None):
        raise ValueError(f"{wrong} of model holds NaN or a number beyond 65,504, the largest of half precision")
    return save(small, about | {"tokens": json.dumps(tokenizer.tokens, ensure_ascii=False)})
