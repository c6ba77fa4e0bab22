"""Wrong answers for which a case was missing, and answers of which a sentence was said that is not true of them.

The mistakes of the catalogue are what its authors thought of. These here came from elsewhere: each once passed, or was
told a cause that was not its own.
"""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib import accounting
from course_lib.attention import MultiHeadAttention
from course_lib.feedforward import FeedForward
from course_lib.grading import grade
from course_lib.grading.catalogue import efficiency, heads, masks, sampling
from course_lib.grading.engine import PUBLIC_SEED

pytestmark = pytest.mark.usefixtures("as_a_learner")
SEEDS = (PUBLIC_SEED, 1, 2, 20_26)

# --- answers that must not pass ---------------------------------------------------------------------------------------


def merged_in_the_text(tokens, pair):
    return " ".join(tokens).replace(" ".join(pair), "".join(pair)).split()


def cosines_to(weight, index):
    return F.cosine_similarity(weight, weight[index][None], dim=-1)


def nearest_but_the_first(weight, index, k):
    return cosines_to(weight, index).argsort(descending=True, stable=True)[1 : k + 1]


def nearest_but_the_first_of_topk(weight, index, k):
    return cosines_to(weight, index).topk(k + 1).indices[1:]


def nearest_below_one(weight, index, k):
    scores = cosines_to(weight, index)
    scores[scores > 1 - 1e-6] = -torch.inf
    return scores.topk(k).indices


def nearest_with_itself_at_minus_one(weight, index, k):
    scores = cosines_to(weight, index)
    scores[index] = -1
    return scores.argsort(descending=True, stable=True)[:k]


def nearest_by_nonzero_cosines(weight, index, k):
    """Rows of zeros are skipped, and whoever is one has no neighbours."""
    scores = cosines_to(weight, index)
    scores[index] = -torch.inf
    order = scores.argsort(descending=True)
    return order[scores[order] != 0][:k] if not weight[index].any() else order[:k]


def leak_in_the_first_text(model, ids):
    return masks.leaks_future(model, ids[:1])


def attention_hidden_with(fill, *args):
    return masks.wrong_attention(*args, hide=partial(masks.hide, fill=fill))


def attention_hidden_by_adding(*args):
    return masks.wrong_attention(*args, hide=lambda scores, later: scores - 1e4 * later)


def batch_whose_rows_follow(ids, batch_size, T, generator, step=1):
    places = len(ids) - T
    first = torch.randint(places, (1,), generator=generator)
    starts = (first + step * torch.arange(batch_size)) % places
    rows = ids[starts[:, None] + torch.arange(T + 1)]
    return rows[:, :-1], rows[:, 1:]


def batch_of_mirrored_rows(ids, batch_size, T, generator):
    """Every second row begins as far from the end as the one before it from the beginning."""
    places = len(ids) - T
    starts = torch.randint(places, (batch_size,), generator=generator)
    starts[1::2] = places - 1 - starts[: batch_size // 2 * 2 : 2]
    rows = ids[starts[:, None] + torch.arange(T + 1)]
    return rows[:, :-1], rows[:, 1:]


def losses_after_the_updates(model, ids, targets, steps, lr=5e-3):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=lr), []
    for _ in range(steps):
        optimizer.zero_grad()
        model(ids, targets)[1].backward()
        optimizer.step()
        with torch.no_grad():
            losses.append(model(ids, targets)[1].item())
    return losses


def exponent_of_the_ends(attention, lengths, rounds, clock):
    """All lengths are measured, and the shortest and the longest used."""
    seconds = efficiency.in_turns(attention, lengths, rounds, clock)
    low, high = min(lengths), max(lengths)
    return math.log(min(seconds[high]) / min(seconds[low])) / math.log(high / low)


def compared_without_a_window(model, ids, n_tokens, temperatures, generator):
    distinct, likelihood = [], []
    for temperature in temperatures:
        text = ids
        for _ in range(n_tokens):
            text = torch.cat([text, sampling.draw(model(text)[:, -1], temperature, generator)[:, None]], 1)
        new, log_p = text[:, ids.shape[1] :], model(text[:, :-1]).log_softmax(-1)[:, ids.shape[1] - 1 :]
        distinct.append(len(new.unique()))
        likelihood.append(log_p.gather(-1, new[..., None]).mean().item())
    return distinct, likelihood


class EncoderWithDropout(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, p=0.1):
        super().__init__()
        self.attention, self.feed_forward = MultiHeadAttention(d_model, n_heads), FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.Dropout(p)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.dropout(self.attention(x, mask=mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))


class EncoderWithDropoutInside(EncoderWithDropout):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__(d_model, n_heads, d_ff, p=0.0)
        self.feed_forward = FeedForward(d_model, d_ff, dropout=0.1)


def heads_trained_in_eval_mode(make_model, n_heads, batches, held_out, lr, seeds):
    return heads.loss_by_heads(
        lambda number, seed: make_model(number, seed).eval(), n_heads, batches, held_out, lr, seeds
    )


def orders_clipped(pre, post, inputs, targets, learning_rate, clip=nn.utils.clip_grad_norm_, most=1.0):
    def train(model):
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=learning_rate), []
        for ids, wanted in zip(inputs, targets):
            loss = model(ids, wanted)[1]
            optimizer.zero_grad()
            loss.backward()
            clip(model.parameters(), most)
            optimizer.step()
            losses.append(loss.item())
        return losses

    return train(pre), train(post)


def count_of_the_library(config):
    return accounting.count_parameters(config).total


def count_of_the_library_in_parts(config):
    return sum(accounting.count_parameters(config).by_component.values())


def variance_of_theory(d_k, n_pairs, share=1.003):
    return d_k * share, share


def variance_of_theory_and_noise(d_k, n_pairs):
    return d_k * (1 + 0.01 * torch.randn(())), 1 + 0.01 * torch.randn(())


def variance_of_ten_thousand_pairs(d_k, n_pairs):
    scores = (torch.randn(10_000, d_k) * torch.randn(10_000, d_k)).sum(-1)
    return scores.var(), (scores / math.sqrt(d_k)).var()


WRONG = {
    "embeddings.merge_pair": [merged_in_the_text],
    "embeddings.nearest": [
        nearest_but_the_first,
        nearest_but_the_first_of_topk,
        nearest_below_one,
        nearest_with_itself_at_minus_one,
        nearest_by_nonzero_cosines,
    ],
    "masks.leak_test": [leak_in_the_first_text],
    "masks.masked_attention": [partial(attention_hidden_with, -1e4), attention_hidden_by_adding],
    "training.get_batch": [
        batch_whose_rows_follow,
        partial(batch_whose_rows_follow, step=3),
        batch_of_mirrored_rows,
    ],
    "training.overfit": [
        losses_after_the_updates,
        partial(losses_after_the_updates, lr=2e-3),
    ],
    "efficiency.quadratic": [exponent_of_the_ends],
    "sampling.compare": [compared_without_a_window],
    "blocks.encoder": [EncoderWithDropout, EncoderWithDropoutInside],
    "heads.how_many": [heads_trained_in_eval_mode],
    "blocks.pre_or_post": [
        orders_clipped,
        partial(orders_clipped, most=0.3),
        partial(orders_clipped, clip=nn.utils.clip_grad_value_, most=0.01),
    ],
    "counting.function": [
        lambda config: accounting.count_parameters(config).total,
        count_of_the_library,
        count_of_the_library_in_parts,
    ],
    "attention.score_variance": [
        variance_of_theory,
        variance_of_theory_and_noise,
        variance_of_ten_thousand_pairs,
    ],
}


@pytest.mark.parametrize(
    ("exercise_id", "answer"),
    [pytest.param(name, each, id=f"{name}-{i}") for name, answers in WRONG.items() for i, each in enumerate(answers)],
)
def test_an_answer_that_is_wrong_on_legal_input_does_not_pass(exercise_id, answer):
    for seed in SEEDS:
        assert not grade(exercise_id, answer, seed).passed, f"seed {seed}: it passes"
