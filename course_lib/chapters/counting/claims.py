"""Chapter 10's claims: sums over closed forms, each held against a model that is really built."""

from dataclasses import replace

import torch

from course_lib.claims.registry import Finding, experiment
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import count_parameters, forward_flops
from course_lib.gpt import DecoderOnly

# The course notes' model, untied; its positions are learned.
NOTES = TransformerConfig(vocab_size=30_000, d_model=512, n_heads=8, n_layers=6, max_seq_len=512, tie_weights=False)

GPT1_VOCABULARY = 40_478  # tokens; GPT-2's has 50,257


def built(config: TransformerConfig) -> int:
    """Parameters of the decoder that config describes, counted in the model, which has shapes and no numbers."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in DecoderOnly(config).parameters())


@experiment("counting.gpt2_117m", claim="GPT-2 small has 117 million parameters.")
def gpt2_117m() -> Finding:
    """GPT-2 small as it is, and the four sizes of the family as they would be with GPT-1's vocabulary."""
    n = built(PRESETS["gpt2"])
    family = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
    others = [built(replace(PRESETS[name], vocab_size=GPT1_VOCABULARY)) for name in family]
    return Finding(
        measured=f"GPT-2 small {n:,}; with GPT-1's {GPT1_VOCABULARY:,} tokens the four sizes have "
        + ", ".join(f"{other / 1e6:.1f}" for other in others)
        + " million",
        values=(float(n), *map(float, others)),
        verdict="confirmed" if round(n / 1e6) == 117 else "refuted",
        because="It has 124 million. The paper's labels, 117M, 345M, 762M and 1542M, are the counts with GPT-1's "
        "vocabulary; OpenAI called them an error, and that this was the error is our inference.",
    )


@experiment("counting.tables_hold_most", claim="In small transformers the token embeddings hold the most.")
def tables_hold_most() -> Finding:
    """Share of the token table, and whether it is the largest component, in four models with tied tables."""
    models = {"the notes' model": replace(NOTES, tie_weights=True)}
    models |= {name: PRESETS[name] for name in ("tinytown", "gpt2", "gpt2-xl")}
    shares, leads = {}, []
    for name, config in models.items():
        count = count_parameters(config)
        shares[name] = count.by_component["token embedding"] / count.total
        leads.append(max(count.by_component, key=count.by_component.__getitem__) == "token embedding")
    verdict = "confirmed" if min(shares.values()) > 0.5 else "depends" if any(leads) else "refuted"
    return Finding(
        measured="share of the token table: "
        + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()),
        values=tuple(shares.values()),
        verdict=verdict,
        because="The table leads while V > 8 · n_layers · d_model: a large vocabulary on a narrow, shallow model. "
        "Small alone is not enough.",
    )


@experiment("counting.twice_attention", claim="The feed-forward network has twice the parameters of attention.")
def twice_attention() -> Finding:
    models = {"GPT-2 small": "gpt2", "LLaMA-7B": "llama-7b", "Llama-3-8B": "llama-3-8b"}
    ratios = {}
    for label, name in models.items():
        part = count_parameters(PRESETS[name]).by_component
        ratios[label] = part["feed-forward"] / part["attention"]
    near = [abs(ratio - 2) < 0.1 for ratio in ratios.values()]
    return Finding(
        measured="feed-forward / attention: " + ", ".join(f"{label} {ratio:.2f}" for label, ratio in ratios.items()),
        values=tuple(ratios.values()),
        verdict="confirmed" if all(near) else "depends" if any(near) else "refuted",
        because="8 d² against 4 d² follows from d_ff = 4 d and a key-value head for every query head: both customs, "
        "and Llama-3 keeps neither.",
    )


@experiment("counting.notes_table", claim="The six rows of the course notes' table are the whole model.")
def notes_table() -> Finding:
    d, d_ff, V, T, L = 512, 2048, 30_000, 512, 6
    rows = 2 * V * d + T * d + L * (4 * d * d + 4 * d) + L * (2 * d * d_ff + d_ff + d) + 2 * L * 2 * d
    n = built(NOTES)
    return Finding(
        measured=f"sum of the rows {rows:,}; the model {n:,}; missing {n - rows:,}",
        values=(float(rows), float(n)),
        verdict="confirmed" if rows == n else "refuted",
        because="A pre-norm model has one more norm, after its last block: a gain and a bias of d_model each.",
    )


@experiment("counting.tying_saves", claim="Tying the output head to the token table saves V · d_model parameters.")
def tying_saves() -> Finding:
    saved = {config: built(config) - built(replace(config, tie_weights=True)) for config in (NOTES, _untied("gpt2"))}
    exact = all(amount == config.vocab_size * config.d_model for config, amount in saved.items())
    notes, gpt2 = saved.values()
    return Finding(
        measured=f"the notes' model {notes:,}, GPT-2 small {gpt2:,}",
        values=(float(notes), float(gpt2)),
        verdict="confirmed" if exact else "refuted",
        because="One table of V rows serves twice; nothing else changes.",
    )


def _untied(name: str) -> TransformerConfig:
    return replace(PRESETS[name], tie_weights=False)


@experiment("counting.quadratic", claim="Attention is what a transformer's compute goes to: it is quadratic.")
def quadratic() -> Finding:
    """Share of the score and mixing products in the operations of all blocks of GPT-2 small, for three lengths."""
    config = replace(PRESETS["gpt2"], vocab_size=1, max_seq_len=16_384)  # blocks alone: a head of one word is nothing
    shares = {}
    for T in (128, 1024, 16_384):
        pairs = config.n_layers * 4 * T * T * config.d_model  # scores and mixing: 2 T² d each
        shares[T] = pairs / forward_flops(config, T)
    return Finding(
        measured="share of the quadratic part in GPT-2 small's blocks: "
        + ", ".join(f"{100 * share:.0f} % at {T:,} tokens" for T, share in shares.items()),
        values=tuple(shares.values()),
        verdict="confirmed" if min(shares.values()) > 0.5 else "depends" if max(shares.values()) > 0.5 else "refuted",
        because="The share is T / (6 d_model + T): the other products rule until T = 6 d_model, here 4,608 tokens.",
    )
