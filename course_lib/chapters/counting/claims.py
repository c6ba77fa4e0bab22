"""Chapter 10's claims: sums over closed forms, each compared with a model that is really built."""

import statistics
from dataclasses import replace

import torch

from course_lib.claims.registry import Measurement, Source, experiment
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import count_parameters, forward_flops
from course_lib.gpt import DecoderOnly

GPT1_VOCABULARY = 40_478  # tokens; GPT-2's has 50,257
LABELS = {
    "small": "117",
    "medium": "345",
    "large": "762",
    "XL": "1,542",
}  # million parameters (Radford et al., table 2)

# Llama 3 70B: the family's large model, with 8 key-value heads for 64 query heads (Grattafiori et al. 2024, table 3).
LLAMA_3_70B = replace(PRESETS["llama-3-8b"], d_model=8192, n_heads=64, n_layers=80, d_ff=28_672)


def built(config: TransformerConfig) -> int:
    """Count the parameters of the decoder that config describes, in a model that has shapes but no numbers."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in DecoderOnly(config).parameters())


def gpt2_verdict(millions: float) -> str:
    """Build GPT-2 small and count it, tensor by tensor.

    confirmed: it has 117 million parameters after rounding
    refuted: it has another number
    """
    return "confirmed" if round(millions) == 117 else "refuted"


@experiment(
    "counting.gpt2_117m",
    claim="GPT-2 small has 117 million parameters.",
    source=Source(
        "Radford et al. 2019",
        "Language Models are Unsupervised Multitask Learners (GPT-2)",
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
        place="table 2, whose columns are parameters, layers and d_model",
        quote="117M 12 768",
    ),
    control="the built model, counted tensor by tensor; all four sizes with the vocabulary of GPT-1",
    verdict=gpt2_verdict,
)
def gpt2_117m() -> Measurement:
    """Count GPT-2 small as it is, and the four sizes of the family with GPT-1's vocabulary."""
    n = built(PRESETS["gpt2"])
    family = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
    others = [built(replace(PRESETS[name], vocab_size=GPT1_VOCABULARY)) for name in family]
    return Measurement(
        measured=f"GPT-2 small has {n / 1e6:.0f} million parameters; with the vocabulary of GPT-1 it would have "
        f"{others[0] / 1e6:.0f} million",
        values=(n, *others),
        figures={"millions": n / 1e6},
        because="The paper's four labels are the counts with GPT-1's vocabulary. OpenAI says that the labels were an "
        "error. That the vocabulary was the cause is our inference.",
        rows=(
            ("million parameters", "with GPT-1's vocabulary", "in the paper"),
            *((f"GPT-2 {size}", f"{other / 1e6:,.1f}", label) for (size, label), other in zip(LABELS.items(), others)),
        ),
    )


def tables_verdict(small: list[float], large: list[float]) -> str:
    """Compare the token tables' fraction of all parameters in models below and above a billion parameters.

    confirmed: in every small model it is at least twice as large as in any large one
    depends: it is so on average only
    refuted: it is not so on average
    """
    if min(small) >= 2 * max(large):
        return "confirmed"
    return "depends" if statistics.fmean(small) >= 2 * statistics.fmean(large) else "refuted"


@experiment(
    "counting.tables_hold_most",
    claim="In sub-billion models the embedding layers are a significant portion of the parameters, in larger models a "
    "considerably lower one.",
    source=Source(
        "Liu et al. 2024",
        "MobileLLM: Optimizing Sub-billion Parameter Language Models for On-Device Use Cases",
        "https://arxiv.org/abs/2402.14905",
        place="§ 2.2.3",
        quote="In sub-billion scale language models, the embedding layers constitute a significant portion of the "
        "parameter count. … this proportion is considerably lower in larger language models.",
    ),
    control="seven published models, three of them below a billion parameters; input and output tables counted "
    "together; four of the seven have the same vocabulary. The course's model, with 343 words, is left out",
    verdict=tables_verdict,
)
def tables_hold_most() -> Measurement:
    """Return the token tables' fraction of the parameters of seven models."""
    names = {
        "GPT-2 small": "gpt2",
        "GPT-2 medium": "gpt2-medium",
        "GPT-2 large": "gpt2-large",
        "GPT-2 XL": "gpt2-xl",
        "LLaMA-7B": "llama-7b",
        "Llama-3-8B": "llama-3-8b",
    }
    models = {label: PRESETS[name] for label, name in names.items()} | {"Llama-3-70B": LLAMA_3_70B}
    counts = {name: count_parameters(config) for name, config in models.items()}
    fractions = {
        name: (count.by_component["token embedding"] + count.by_component["output head"]) / count.total
        for name, count in counts.items()
    }
    small = [fractions[name] for name, count in counts.items() if count.total < 1e9]
    large = [fractions[name] for name, count in counts.items() if count.total >= 1e9]
    return Measurement(
        measured=f"token tables are {fractions['Llama-3-8B']:.0%} of Llama-3-8B, but only "
        f"{fractions['GPT-2 large']:.0%} of GPT-2 large, which has fewer than a billion parameters",
        values=tuple(fractions.values()),
        figures={"small": small, "large": large},
        because="It depends on the vocabulary and the shape as much as on the size. With the same vocabulary the "
        "fraction falls as models grow, as the paper says. A larger vocabulary raises it.",
        rows=(
            ("model", "million parameters", "vocabulary", "token tables"),
            *(
                (name, f"{counts[name].total / 1e6:,.0f}", f"{models[name].vocab_size:,}", f"{part:.0%}")
                for name, part in fractions.items()
                if name != "GPT-2 medium"
            ),
        ),
    )


def two_thirds_verdict(whole: list[float], blocks: list[float]) -> str:
    """Take the feed-forward layers' fraction of full models and of their blocks. Near two thirds means 62 to 72%.

    confirmed: it is near two thirds of the full model in every case
    depends: it is near two thirds of the full model, or of the blocks, in some cases
    refuted: it is near two thirds in no case
    """
    near = [[0.62 < part < 0.72 for part in parts] for parts in (whole, blocks)]
    return "confirmed" if all(near[0]) else "depends" if any(near[0] + near[1]) else "refuted"


@experiment(
    "counting.twice_attention",
    claim="Feed-forward layers constitute two-thirds of a transformer model's parameters.",
    source=Source(
        "Geva et al. 2021",
        "Transformer Feed-Forward Layers Are Key-Value Memories",
        "https://arxiv.org/abs/2012.14913",
        place="abstract",
        quote="Feed-forward layers constitute two-thirds of a transformer model's parameters, yet their role in the "
        "network remains under-explored.",
    ),
    control="four models, each counted in full, with its tables, and by its blocks only",
    verdict=two_thirds_verdict,
)
def twice_attention() -> Measurement:
    models = {label: PRESETS[name] for label, name in (("GPT-2 small", "gpt2"), ("LLaMA-7B", "llama-7b"))}
    models |= {"Llama-3-8B": PRESETS["llama-3-8b"], "Llama-3-70B": LLAMA_3_70B}
    whole, blocks = [], []
    for config in models.values():
        count = count_parameters(config)
        feed_forward, attention = (count.by_component[part] for part in ("feed-forward", "attention"))
        whole.append(feed_forward / count.total)
        blocks.append(feed_forward / (feed_forward + attention))
    return Measurement(
        measured=f"feed-forward layers have {whole[0]:.0%} of the parameters in the smallest of four models, and "
        f"{whole[-1]:.0%} in the largest",
        values=(*whole, *blocks),
        figures={"whole": whole, "blocks": blocks},
        because="It depends on the token tables, which are 31% of GPT-2 small, and on the blocks. In GPT-2 and "
        "LLaMA-7B a block has about 8 d² in feed-forward layers and 4 d² in attention. In Llama-3-8B it has "
        "10.5 d² and 2.5 d².",
        rows=(
            ("feed-forward layers", "of the model", "of its blocks"),
            *((label, f"{a:.0%}", f"{b:.0%}") for label, a, b in zip(models, whole, blocks)),
        ),
    )


def quadratic_verdict(parts: list[float]) -> str:
    """Take the fraction of a forward pass's operations that attention's scores and sums need, at three lengths.

    confirmed: it is over half at every length
    depends: it is over half at some lengths
    refuted: it is over half at no length
    """
    return "confirmed" if min(parts) > 0.5 else "depends" if max(parts) > 0.5 else "refuted"


@experiment(
    "counting.quadratic",
    claim="The main efficiency bottleneck in Transformer models is its self-attention mechanism.",
    source=Source(
        "Wang et al. 2020",
        "Linformer: Self-Attention with Linear Complexity",
        "https://arxiv.org/abs/2006.04768",
        place="§ 1",
        quote="The main efficiency bottleneck in Transformer models is its self-attention mechanism. … However, "
        "attending to all tokens at each layer incurs a complexity of O(n²) with respect to sequence length.",
    ),
    control="all other products of the same blocks, which are linear in the length, at 128, 1,024 and 16,384 tokens; "
    "operations are counted, not seconds or memory",
    verdict=quadratic_verdict,
)
def quadratic() -> Measurement:
    """Return the fraction of operations for scores and sums in all blocks of GPT-2 small, for three lengths."""
    config = replace(PRESETS["gpt2"], vocab_size=1, max_seq_len=16_384)  # an output head for one word is negligible
    parts = {}
    for T in (128, 1024, 16_384):
        pairs = config.n_layers * 4 * T * T * config.d_model  # scores and mixing: 2 T² d each
        parts[T] = pairs / forward_flops(config, T)
    half = {"GPT-2 small": (config.d_model, 6), "Llama-3-8B": (PRESETS["llama-3-8b"].d_model, 6.5)}
    return Measurement(
        measured=f"in GPT-2 small's blocks, attention's scores and weighted sums are {parts[1024]:.0%} of the "
        f"operations at 1,024 tokens, its full context; with 16,384 positions they would be {parts[16_384]:.0%}",
        values=tuple(parts.values()),
        figures={"parts": list(parts.values())},
        because="It depends on the length T. In a block of 12 d² parameters a token costs 24 d² for these, and 4 T d "
        "for scores and sums. So the fraction is T / (6 d + T), which is half at T = 6 d. With Llama-3-8B's 13 d², it "
        "is half at 6.5 d.",
        rows=(
            ("blocks as in", "d", "tokens at which scores and sums are half"),
            *((label, f"{d:,}", f"{int(times * d):,}") for label, (d, times) in half.items()),
        ),
    )
