from dataclasses import asdict

import torch

from course_lib.chapters.counting.fixtures import make_config
from course_lib.config import TransformerConfig
from course_lib.grading.exercise import Case, Given, generator, stage


def train_flops(n_params, n_tokens):
    """Floating-point operations of a whole training run, by the usual rule."""
    forward = 2 * n_params * n_tokens
    backward = 2 * forward
    return forward + backward


def told(config):
    """A config told as data."""
    return Given(make_config, asdict(config), says=repr(config))


def drawn(seed):
    "Drawn configs, odd sizes."
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
    return cases


@stage
def one_of_each(seed):
    "One parameter, one token."
    return [Case(1, 1)]


@stage
def small_numbers(seed):
    "Sizes small enough to check by hand."
    return [Case(10, 3), Case(7, 100)]


@stage
def whole_runs(seed):
    "Whole training runs: a drawn one, and GPT-3's 175 billion parameters on 300 billion tokens."
    rng = generator(seed)
    drawn = [int(torch.randint(1000, 10**6, (), generator=rng)) for _ in range(2)]
    return [Case(*drawn), Case(175 * 10**9, 300 * 10**9)]
