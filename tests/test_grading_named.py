"""Typical slips are named, each by its own name: answers as learners write them, not changes of the reference.

The pages' own mistakes are held against their own forms in `test_grading.py`. These answers have another form, and each
was once told the name of another mistake, or none.
"""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from course_lib.grading import EXERCISES, grade
from course_lib.grading.engine import PUBLIC_SEED

pytestmark = pytest.mark.usefixtures("as_a_learner")

# --- your_gpt ---------------------------------------------------------------------------------------------------------


def asked_by_name(fetch, exercises, library):
    taken, lent = {}, []
    for name in exercises:
        try:
            taken[name] = fetch(name)
        except ValueError:
            taken[name] = library[name]
            lent.append(name)
    return taken, lent


def lent_backwards(fetch, exercises, library):
    taken, lent = {}, []
    for name, exercise in exercises.items():
        try:
            taken[name] = fetch(exercise)
        except ValueError:
            taken[name], lent = library[name], [name, *lent]
    return taken, lent


def written_into_the_library(fetch, exercises, library):
    lent = []
    for name, exercise in exercises.items():
        try:
            library[name] = fetch(exercise)
        except ValueError:
            lent.append(name)
    return library, lent


def written_into_the_table(fetch, exercises, library):
    lent = []
    for name, exercise in exercises.items():
        try:
            exercises[name] = fetch(exercise)
        except ValueError:
            exercises[name] = library[name]
            lent.append(name)
    return exercises, lent


def within_allclose(yours, theirs, tolerance):
    for name, tensor in yours.items():
        if tensor.isnan().any():
            return name, math.inf
        if not torch.allclose(tensor, theirs[name], atol=tolerance):
            return name, float((tensor - theirs[name]).abs().max())
    return None, 0.0


def nan_as_a_difference(yours, theirs, tolerance):
    for name in theirs:
        difference = (yours[name] - theirs[name]).abs()
        if not (difference <= tolerance).all():
            return name, difference.max().item()
    return None, 0.0


def judged(mean_of, share=lambda tellable, stories: len(tellable) / len(stories)):
    def judged_by_grammar(stories, log_prob):
        found = [log_prob(story) for story in stories]
        tellable = [p for p in found if p != -math.inf]
        return share(tellable, stories), mean_of(found, tellable)

    return judged_by_grammar


def mean_or_none(found, tellable):
    return np.mean(tellable) if tellable else None


YOUR_GPT = [
    ("your_gpt.parts", asked_by_name, "asked by name"),
    ("your_gpt.parts", lent_backwards, "names backwards"),
    ("your_gpt.parts", written_into_the_library, "library overwritten"),
    ("your_gpt.parts", written_into_the_table, None),
    ("your_gpt.parity", within_allclose, "a relative tolerance as well"),
    ("your_gpt.parity", nan_as_a_difference, "NaN returned"),
    ("your_gpt.writes", judged(lambda found, tellable: np.mean(found) if tellable else None), "−inf in the mean"),
    ("your_gpt.writes", judged(lambda found, tellable: sum(tellable, 0.0) / len(tellable)), "divided by none"),
    (
        "your_gpt.writes",
        judged(lambda found, tellable: np.mean(tellable) if tellable else -math.inf),
        "minus infinity for none",
    ),
    ("your_gpt.writes", judged(mean_or_none, lambda tellable, stories: 100 * len(tellable) / len(stories)), "percent"),
    ("your_gpt.bill", 228_160 - 4 * 128, "one norm in a block"),
    ("your_gpt.bill", 228_160 - 4 * (64 * 64 + 64), "three projections"),
]

# --- byte-pair encoding, attention ------------------------------------------------------------------------------------


def joined(tokens, pair):
    found = []
    while tokens:
        length = 2 if tuple(tokens[:2]) == pair else 1
        found.append("".join(tokens[:length]))
        tokens = tokens[length:]
    return found


def joined_from_the_right(tokens, pair):
    return [
        token[::-1] for token in joined([token[::-1] for token in tokens[::-1]], tuple(s[::-1] for s in pair[::-1]))
    ][::-1]


def joined_in_the_text(tokens, pair):
    return " ".join(tokens).replace(" ".join(pair), "".join(pair)).split()


def learned(join=joined, pairs=list, fewer=0):
    def train_bpe(words, n_merges):
        corpus, merges = [(list(word), count) for word, count in words.items()], []
        while len(merges) < n_merges - fewer:
            counts = Counter()
            for tokens, count in corpus:
                for pair in pairs(pairwise(tokens)):
                    counts[pair] += count
            if not counts:
                break
            merges.append(max(counts, key=lambda pair: (counts[pair], pair)))
            corpus = [(join(tokens, merges[-1]), count) for tokens, count in corpus]
        return merges

    return train_bpe


def headwise(root):
    def heads_one_by_one(x, W_Q, W_K, W_V, W_O, n_heads, mask=None):
        total = 0
        for q, k, v, o in zip(*(W.chunk(n_heads, 1) for W in (W_Q, W_K, W_V)), W_O.chunk(n_heads, 0)):
            scores = torch.einsum("btd,bsd->bts", x @ q, x @ k) / root(q.shape[1])
            if mask is not None:
                scores = torch.where(mask, scores, -torch.inf)
            total = total + torch.softmax(scores, -1) @ (x @ v) @ o
        return total

    return heads_one_by_one


def attention_divided_by(size):
    def scaled_dot_product_attention(q, k, v, mask=None):
        scores = torch.einsum("...td,...sd->...ts", q, k) / size(q, v)
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf)
        weights = torch.nan_to_num(torch.softmax(scores, -1))
        return weights @ v, weights

    return scaled_dot_product_attention


ATTENTION = [
    ("embeddings.merge_table", learned(pairs=set), "a pair once in a word"),
    ("embeddings.merge_table", learned(joined_in_the_text), "joined in the text"),
    ("embeddings.merge_table", learned(joined_from_the_right), "from the right"),
    ("embeddings.merge_table", learned(fewer=1), "one merge too few"),
    ("heads.loop", headwise(lambda D: D), "scaled by D"),
    (
        "attention.scaled_dot_product",
        attention_divided_by(lambda q, v: v.shape[-1] ** 0.5),
        "scaled by the width of the values",
    ),
    ("attention.scaled_dot_product", attention_divided_by(lambda q, v: 2), "scaled by 2"),
]

# --- adapters, bytes, laws --------------------------------------------------------------------------------------------


class BothRandom(nn.Module):
    std = 0.02

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear, self.by = linear, alpha / rank
        for parameter in linear.parameters():
            parameter.requires_grad = False
        d_out, d_in = linear.weight.shape
        self.A = nn.Parameter(nn.init.normal_(torch.empty(rank, d_in), std=0.02))
        self.B = nn.Parameter(nn.init.normal_(torch.empty(d_out, rank), std=self.std))

    def forward(self, x):
        return self.linear(x) + self.by * nn.functional.linear(nn.functional.linear(x, self.A), self.B)

    def new(self):
        has_bias, like = self.linear.bias is not None, self.linear.weight
        return nn.Linear(like.shape[1], like.shape[0], bias=has_bias, dtype=like.dtype)

    @torch.no_grad()
    def merge(self):
        merged = self.new()
        merged.weight.copy_(self.linear.weight + self.by * self.B @ self.A)
        if merged.bias is not None:
            merged.bias.copy_(self.linear.bias)
        return merged


class BothUniform(BothRandom):
    def __init__(self, linear, rank, alpha):
        super().__init__(linear, rank, alpha)
        nn.init.kaiming_uniform_(self.A, a=5**0.5)
        nn.init.kaiming_uniform_(self.B, a=5**0.5)


class MergedInFloat32(BothRandom):
    std = 0.0

    def new(self):
        return nn.Linear(*self.linear.weight.shape[::-1], bias=self.linear.bias is not None)


def bytes_of(size=torch.abs, steps=127, stored=torch.int8, limits=None, told=lambda largest, scale: scale, zeros=1.0):
    def quantize_int8(W):
        largest = size(W).max(dim=1).values
        scale = largest / steps
        scale = torch.where(scale == 0, torch.full_like(scale, zeros), scale)
        q = torch.round(W / scale.unsqueeze(-1))
        return (q.clamp(*limits) if limits else q).to(stored), told(largest, scale)

    return quantize_int8


def zeros_left_at_zero(W):
    scale = W.abs().amax(1) / 127
    q = torch.where(scale[:, None] > 0, W / scale[:, None], torch.zeros_like(W))
    return q.round().to(torch.int8), scale


def plane_through_the_losses(runs, E, N, D):
    rows = np.array([[1.0, math.log(n), math.log(d)] for n, d, _ in runs])
    c, a, b = np.linalg.lstsq(rows, np.log([loss for *_, loss in runs]), rcond=None)[0]
    return -a, -b, math.exp(c + a * math.log(N) + b * math.log(D))


OTHERS = [
    ("pretrained.lora", BothRandom, "an effect at the start"),
    ("pretrained.lora", BothUniform, "an effect at the start"),
    ("pretrained.lora", MergedInFloat32, "merged in float32"),
    ("efficiency.quantize", bytes_of(stored=torch.float32), "q in float32"),
    ("efficiency.quantize", bytes_of(steps=128, zeros=0.5), "divided by 128"),
    ("efficiency.quantize", bytes_of(steps=128, limits=(-128, 127)), "divided by 128"),
    ("efficiency.quantize", bytes_of(size=lambda W: W), "sign forgotten"),
    ("efficiency.quantize", bytes_of(size=lambda W: W, limits=(-127, 127)), "sign forgotten"),
    ("efficiency.quantize", bytes_of(steps=1), "not divided by 127"),
    ("efficiency.quantize", bytes_of(told=lambda largest, scale: largest), "the largest number itself"),
    ("efficiency.quantize", zeros_left_at_zero, "a scale of 0"),
    ("training.scaling_law", plane_through_the_losses, "one product without the floor"),
    ("gpt.initial_loss", math.log(128_256) + 0.02**2 * 4096 / 2, "Llama 3's own width"),
]


# --- told as the likeness of another mistake --------------------------------------------------------------------------


def turned_from_the_first_token(x, positions, theta):
    return EXERCISES["positions.rotary"].reference(x, positions - positions.min(), theta)


def variance_at_least_eps(x, gamma, beta, eps):
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.maximum(variance, torch.full_like(variance, eps)).sqrt() * gamma + beta


def clipped_by_one(which):
    def clip_gradients(parameters, max_norm):
        parameters = [each for each in parameters if each.grad is not None]
        norm = parameters[which].grad.double().norm().item()
        for each in parameters if norm > max_norm else ():
            each.grad.mul_(max_norm / norm)
        return norm

    return clip_gradients


def nucleus(limit):
    def top_p_filter(logits, p):
        order = logits.argsort(-1, descending=True)
        probabilities = logits.softmax(-1).gather(-1, order)
        drop = torch.roll(probabilities.cumsum(-1), 1, -1) >= limit(p)
        drop[..., 0] = False
        return torch.full_like(logits, -torch.inf).scatter(
            -1, order, logits.gather(-1, order).masked_fill(drop, -torch.inf)
        )

    return top_p_filter


LIKENESSES = [
    ("positions.rotary", turned_from_the_first_token, "counted from the first token"),
    ("normalization.layer_norm", variance_at_least_eps, "eps as a floor"),
    ("training.clip", clipped_by_one(0), "one gradient for all"),
    ("training.clip", clipped_by_one(-1), "one gradient for all"),
    ("sampling.top_p", nucleus(lambda p: 1 - p), "1 − p"),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "name"),
    [pytest.param(*row, id=f"{row[0]}: {row[2]}") for row in (*YOUR_GPT, *ATTENTION, *OTHERS, *LIKENESSES)],
)
def test_a_typical_slip_is_told_by_its_own_name(exercise_id, answer, name):
    for seed in (PUBLIC_SEED, 5):
        result = grade(exercise_id, answer, seed)
        assert not result.passed, f"seed {seed}: it passes"
        assert result.misconception == name, f"seed {seed}: told {result.misconception!r}"


def test_of_a_row_of_zeros_0_over_0_is_only_a_consequence():
    """The answer guards the division and leaves the scale at 0: the sentence must be true of it as well."""
    told = "\n".join(grade("efficiency.quantize", zeros_left_at_zero, PUBLIC_SEED).sentences)
    assert "Your scale for a row of zeros is 0, and it must be above 0." in told


def test_a_wider_model_starts_above_ln_v_and_the_statement_names_its_width():
    """The chapter's own formula, ln V and half the variance of the logits, passes for the width that is stated."""
    assert grade("gpt.initial_loss", math.log(128_256) + 0.02**2 * 64 / 2, PUBLIC_SEED).passed
    assert "d_model = 64" in EXERCISES.path("gpt.initial_loss").read_text(encoding="utf-8").partition("## Why")[0]


def test_the_case_of_another_dtype_shows_it_and_the_statement_allows_it():
    result = grade("pretrained.lora", MergedInFloat32, PUBLIC_SEED)
    assert "dtype=torch.float64" in result.feedback
    statement = EXERCISES.path("pretrained.lora").read_text(encoding="utf-8").partition("## Why")[0]
    assert "any floating-point dtype" in statement
