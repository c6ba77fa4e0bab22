"""Chapter 10's claims: sums over closed forms, each held against a model that is really built."""

from dataclasses import replace

import torch

from course_lib.claims.registry import Finding, Source, experiment
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import count_parameters, forward_flops
from course_lib.gpt import DecoderOnly

# A model as examples like to have it, untied; its positions are learned.
EXAMPLE = TransformerConfig(vocab_size=30_000, d_model=512, n_heads=8, n_layers=6, max_seq_len=512, tie_weights=False)

GPT1_VOCABULARY = 40_478  # tokens; GPT-2's has 50,257


def built(config: TransformerConfig) -> int:
    """Count the parameters of the decoder that config describes, in a model that has shapes and no numbers."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in DecoderOnly(config).parameters())


@experiment(
    "counting.gpt2_117m",
    claim="GPT-2 small has 117 million parameters.",
    source=Source(
        "Radford et al. 2019",
        "Language Models are Unsupervised Multitask Learners (GPT-2), table 2",
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
    ),
    control="the built model counted tensor by tensor, and all four sizes with the vocabulary of GPT-1",
    threshold="confirmed if the built model's count rounds to 117 million, else refuted",
    seeds=(),
)
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


@experiment(
    "counting.tables_hold_most",
    claim="In sub-billion models the embedding layers are a significant portion of the parameters, in larger ones a "
    "considerably lower one.",
    source=Source(
        "Liu et al. 2024",
        "MobileLLM: Optimizing Sub-billion Parameter Language Models, § 2.2.3",
        "https://arxiv.org/abs/2402.14905",
    ),
    control="three models under a billion parameters and three above, input and output tables counted together",
    threshold="significant: over 20 %, the paper's example; confirmed if so in every small model and in no large one, "
    "depends if as said in some, refuted if in none",
    seeds=(),
)
def tables_hold_most() -> Finding:
    """Share of the token tables in six models, by their size."""
    models = {"the example": replace(EXAMPLE, tie_weights=True)}
    models |= {name: PRESETS[name] for name in ("tinytown", "gpt2", "gpt2-xl", "llama-7b", "llama-3-8b")}
    shares, as_said = {}, []
    for name, config in models.items():
        count = count_parameters(config)
        part = count.by_component
        shares[name] = (part["token embedding"] + part["output head"]) / count.total
        as_said.append((shares[name] > 0.2) == (count.total < 1e9))
    verdict = "confirmed" if all(as_said) else "depends" if any(as_said) else "refuted"
    return Finding(
        measured="share of the token tables: "
        + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()),
        values=tuple(shares.values()),
        verdict=verdict,
        because="Tinytown is the smallest and its table is small: its vocabulary is. A tied table outweighs the "
        "feed-forward layers while V > 8 · n_layers · d_model: a large vocabulary on a narrow, shallow model.",
    )


@experiment(
    "counting.twice_attention",
    claim="Feed-forward layers constitute two thirds of a Transformer's parameters.",
    source=Source(
        "Geva et al. 2021",
        "Transformer Feed-Forward Layers Are Key-Value Memories, abstract",
        "https://arxiv.org/abs/2012.14913",
    ),
    control="the share of the blocks alone beside that of the whole model, tables included",
    threshold="near: 62 to 72 %; confirmed if near of the whole in all three models, depends if near of the whole "
    "or of the blocks in some, else refuted",
    seeds=(),
)
def twice_attention() -> Finding:
    models = {"GPT-2 small": "gpt2", "LLaMA-7B": "llama-7b", "Llama-3-8B": "llama-3-8b"}
    whole, blocks = {}, {}
    for label, name in models.items():
        count = count_parameters(PRESETS[name])
        feed_forward, attention = (count.by_component[part] for part in ("feed-forward", "attention"))
        whole[label], blocks[label] = feed_forward / count.total, feed_forward / (feed_forward + attention)
    near = [[0.62 < share < 0.72 for share in shares.values()] for shares in (whole, blocks)]
    return Finding(
        measured="share of the whole model, of its blocks: "
        + ", ".join(f"{label} {100 * whole[label]:.0f} %, {100 * blocks[label]:.0f} %" for label in models),
        values=(*whole.values(), *blocks.values()),
        verdict="confirmed" if all(near[0]) else "depends" if any(near[0] + near[1]) else "refuted",
        because="8 d² of 12 d² in a block follows from d_ff = 4 d and a key-value head for every query head: both "
        "customs, and Llama-3 keeps neither. Tables come on top.",
    )


@experiment(
    "counting.tying_saves",
    claim="Tying the output to the token table removes one of the two largest matrices: V · d_model parameters.",
    source=Source(
        "Press & Wolf 2017", "Using the Output Embedding to Improve Language Models", "https://arxiv.org/abs/1608.05859"
    ),
    control="the same two models, built untied and tied, counted tensor by tensor",
    threshold="confirmed if the difference is exactly V · d_model in both, else refuted",
    seeds=(),
)
def tying_saves() -> Finding:
    saved = {config: built(config) - built(replace(config, tie_weights=True)) for config in (EXAMPLE, _untied("gpt2"))}
    exact = all(amount == config.vocab_size * config.d_model for config, amount in saved.items())
    example, gpt2 = saved.values()
    return Finding(
        measured=f"the example {example:,}, GPT-2 small {gpt2:,}",
        values=(float(example), float(gpt2)),
        verdict="confirmed" if exact else "refuted",
        because="One table of V rows serves twice; nothing else changes.",
    )


def _untied(name: str) -> TransformerConfig:
    return replace(PRESETS[name], tie_weights=False)


@experiment(
    "counting.quadratic",
    claim="The main efficiency bottleneck of Transformers is self-attention, which is quadratic.",
    source=Source(
        "Wang et al. 2020", "Linformer: Self-Attention with Linear Complexity, § 1", "https://arxiv.org/abs/2006.04768"
    ),
    control="all other products of the same blocks, which are linear in the length, at three lengths",
    threshold="share of scores and mixing in the operations: confirmed if over half at 128, 1,024 and 16,384 tokens, "
    "depends if at some, refuted if at none",
    seeds=(),
)
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
