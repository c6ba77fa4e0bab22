from dataclasses import asdict, replace

import torch

from course_lib.chapters.counting.fixtures import make_config
from course_lib.config import PRESETS, TransformerConfig
from course_lib.grading.exercise import Case, Given, generator, stage


def count_parameters(config):
    """Return the number of parameters of the pre-norm decoder that config describes."""
    d, d_kv = config.d_model, config.n_kv_heads * config.d_head
    attention = 2 * d * d + 2 * d * d_kv  # queries and W_O, keys and values
    ups = 2 if config.activation == "swiglu" else 1
    feed_forward = (ups + 1) * d * config.d_ff
    norm = d
    if config.bias:
        attention += 2 * d + 2 * d_kv
        feed_forward += ups * config.d_ff + d
        if config.norm == "layer":
            norm += d

    table = config.vocab_size * d
    total = table + config.n_layers * (attention + feed_forward + 2 * norm) + norm
    if config.positions == "learned":
        total += config.max_seq_len * d
    if not config.tie_weights:
        total += table
    return total


PLAIN = TransformerConfig(
    vocab_size=11, d_model=8, n_heads=2, n_layers=1, d_ff=20, max_seq_len=5, norm="rms", positions="rope", bias=False
)


def told(config):
    """Return a config that is passed as data and built where the answer runs."""
    return Given(make_config, asdict(config), says=repr(config))


@stage
def blocks(seed):
    "Tied models without biases, with RMSNorm and RoPE: only matrices and gains. d_ff is not 4 · d_model."
    return [
        Case(told(PLAIN)),
        Case(told(replace(PLAIN, n_layers=3))),
        Case(told(replace(PLAIN, n_layers=3, d_ff=7))),
    ]


@stage
def tables(seed):
    "The tables: only one of the five position schemes has one, and an untied output head has a separate one."
    schemes = ("none", "sinusoidal", "alibi", "learned")
    return [
        *(Case(told(replace(PLAIN, positions=scheme))) for scheme in schemes),
        Case(told(replace(PLAIN, tie_weights=False))),
    ]


@stage
def biases(seed):
    "Norms and biases: with `bias` every linear layer in a block and every LayerNorm has a bias; RMSNorm never has one."
    return [
        Case(told(replace(PLAIN, norm="layer"))),
        Case(told(replace(PLAIN, bias=True))),
        Case(told(replace(PLAIN, norm="layer", bias=True, n_layers=2))),
        Case(told(replace(PLAIN, tie_weights=False, bias=True, norm="layer"))),
    ]


@stage
def swiglu(seed):
    "SwiGLU: the feed-forward has a third matrix and, with `bias`, a third bias."
    return [
        Case(told(replace(PLAIN, activation="swiglu"))),
        Case(told(replace(PLAIN, activation="swiglu", bias=True, norm="layer"))),
    ]


@stage
def grouped_heads(seed):
    "Fewer key-value heads than query heads."
    wide = replace(PLAIN, d_model=24, n_heads=6, n_kv_heads=6)
    return [
        Case(told(replace(wide, n_kv_heads=2))),
        Case(told(replace(wide, n_kv_heads=1))),
        Case(told(replace(wide, n_kv_heads=3, bias=True, norm="layer"))),
    ]


@stage
def whole_models(seed):
    "A whole model: of random sizes, or a published one (GPT-2, LLaMA-7B or Llama-3-8B)."
    rng = generator(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=rng))

    def one_of(*options):
        return options[number(0, len(options) - 1)]

    cases = []
    for activation in ("relu", "gelu", "gelu_tanh", "swiglu", "swiglu"):
        n_kv_heads, group, d_head = number(1, 3), number(1, 4), 2 * number(1, 5)
        n_heads = n_kv_heads * group
        config = TransformerConfig(
            vocab_size=number(3, 999),
            d_model=n_heads * d_head,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            n_layers=number(1, 9),
            d_ff=number(1, 99),
            max_seq_len=number(1, 300),
            activation=activation,
            norm=one_of("layer", "rms"),
            positions=one_of("none", "sinusoidal", "learned", "rope", "alibi"),
            tie_weights=one_of(True, False),
            bias=one_of(True, False),
        )
        cases.append(Case(told(config)))
    return [*cases, *(Case(told(PRESETS[name])) for name in ("gpt2", "llama-7b", "llama-3-8b"))]
