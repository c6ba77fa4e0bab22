"""Five figures that arithmetic gives; of the false one a sum, the order, or the unit and range is wrong."""

import random

import torch

from course_lib.chapters.claims import audits
from course_lib.chapters.claims.audits import Finding
from course_lib.config import TransformerConfig
from course_lib.counting import count_parameters
from course_lib.grading.exercise import Option, generator


def cache(rng: random.Random, false: bool) -> Finding:
    """The memory of keys and values; the false form counts only the keys."""
    layers, heads, head_dim = rng.choice([12, 16, 24, 32]), rng.choice([4, 8, 16]), rng.choice([64, 128])
    tokens = rng.choice([1024, 2048, 4096, 8192])
    numbers = layers * tokens * heads * head_dim * (1 if false else 2)
    shown = (
        "Each token has a key and a value in every head: 2 · layers · tokens · heads · features numbers of 2 bytes. "
    )
    shown += "The printed memory is half of that."
    return Finding(
        "the cache",
        f"In each of its {layers} layers, a model has {heads} key-value heads of {head_dim} features. For a text of "
        f"{tokens:,} tokens it stores all keys and all values in bfloat16, with 2 bytes per number. We multiplied the "
        "sizes. 1 MB is 1,000,000 bytes.",
        [("one layer", 2 * numbers / layers / 1e6), ("all layers", 2 * numbers / 1e6)],
        ("the cache of keys and values", "MB"),
        {"layers": layers, "heads": heads, "features": head_dim, "tokens": tokens, "bytes per number": 2},
        shown
        if false
        else "The memory is right: 2 (a key and a value) · tokens · heads · features · 2 bytes per layer.",
        "units" if false else "",
        digits=1,
    )


def weights(rng: random.Random, false: bool) -> Finding:
    """Attention weights; in the false form the softmax ran over the queries."""
    scores = 1.5 * torch.randn(4, 4, generator=generator(rng.randrange(10**6)))
    made = scores.softmax(0 if false else 1)
    shown = "Each row should sum to 1, and these rows do not. The columns do, so the softmax ran over the wrong axis."
    return Finding(
        "the attention weights",
        "One row per query and one column per key. No mask was used. The weights of each query are the softmax of its "
        "scores over the four keys.",
        [(f"query {row + 1}", *made[row]) for row in range(4)],
        ("weights", *(f"key {column + 1}" for column in range(4))),
        {"printed weights": made},
        shown if false else "The weights are right: each row sums to 1. Columns may have any sum.",
        "sums" if false else "",
        digits=3,
    )


def ranking(rng: random.Random, false: bool) -> Finding:
    """Scores and weights of five keys; the false form exchanges two weights."""
    words = rng.sample(["cat", "dog", "mat", "rug", "sat", "tired", "bird", "the"], 5)
    scores = [rng.uniform(1.8, 2.2), rng.uniform(1.0, 1.4), rng.uniform(0.2, 0.6), rng.uniform(-0.6, -0.2), -1.2]
    order = rng.sample(range(5), 5)
    made = torch.tensor([scores[place] for place in order])
    printed = made.softmax(0)
    if false:
        first, second = order.index(1), order.index(2)
        printed[[first, second]] = printed[[second, first]]
    shown = "A softmax keeps the order of the scores. Here the second largest score has only the third largest weight."
    return Finding(
        "the largest weights",
        "One query has these scores for five keys. The weights are their softmax.",
        list(zip(words, made, printed)),
        ("key", "score", "weight"),
        {"keys": words, "scores": made, "printed weights": printed},
        shown if false else "The weights are right: they sum to 1, and are in the order of the scores.",
        "order" if false else "",
    )


def parameters(rng: random.Random, false: bool) -> Finding:
    """The parameters of a model, part by part; the total of the false form lacks the table of positions."""
    d_model, layers = rng.choice([(256, 6), (384, 6), (512, 8), (640, 10), (768, 12)])
    vocabulary, length = rng.choice([8_000, 16_000, 32_000, 50_257]), rng.choice([512, 1024, 2048])
    config = TransformerConfig(
        vocab_size=vocabulary, d_model=d_model, n_heads=8, n_layers=layers, d_ff=4 * d_model, max_seq_len=length
    )
    count = count_parameters(config)
    names = {"token embedding": "token table", "position embedding": "table of positions"}
    rows = [(names.get(part, part), n) for part, n in count.by_component.items() if n]
    total = sum(number for _, number in rows)
    shown = "The parts sum to more than the printed total. The difference is the table of positions."
    return Finding(
        "the parameter count",
        f"A decoder has {layers} blocks with d_model = {d_model}, {vocabulary:,} tokens, {length:,} learned positions, "
        "biases, and tied tables. We counted its parameters part by part and added them up.",
        [*rows, ("total", total - length * d_model if false else total)],
        ("part", "parameters"),
        {"parts": dict(rows), "d_model": d_model, "blocks": layers, "tokens": vocabulary, "positions": length},
        shown if false else "The count is right: the parts sum to the total.",
        "sums" if false else "",
    )


def entropies(rng: random.Random, false: bool) -> Finding:
    """Entropies of three distributions; the false form prints bits."""
    tokens = rng.choice([16, 24, 32, 48])
    made = torch.randn(3, tokens, generator=generator(rng.randrange(10**6))) * torch.tensor([[0.2], [0.5], [0.8]])
    probabilities = made.softmax(1)
    nats = -(probabilities * probabilities.log()).sum(1)
    printed = nats / torch.tensor(2.0).log() if false else nats
    limit = torch.tensor(float(tokens)).log().item()
    shown = (
        f"No distribution over {tokens} tokens has more than ln {tokens} = {limit:.2f} nats. The numbers are in bits."
    )
    return Finding(
        "the entropies",
        f"A model predicts the next of {tokens} tokens at three positions. We computed the entropy of each prediction, "
        "in nats.",
        [(f"position {place}", entropy) for place, entropy in enumerate(printed)],
        ("entropy of the prediction", "nats"),
        {"probabilities": probabilities},
        shown if false else f"The entropies are right: none is above ln {tokens} = {limit:.2f} nats.",
        "units" if false else "",
    )


MAKERS = (cache, weights, ranking, parameters, entropies)


def numbered(number: int, written: tuple[Option, ...]) -> list[Option]:
    """Return the options of a number."""
    return audits.options(audits.chosen(MAKERS, "claims.audit_1", number), number, written)
