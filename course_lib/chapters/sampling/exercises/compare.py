from functools import partial
from types import SimpleNamespace

import torch

from course_lib.chapters.sampling.exercises._shared import INF
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.given import DRAWS, chain, sum_of_all
from course_lib.grading.given import as_two_rows as probe


def top_k_filter(logits, k):
    """The logits (..., V) with −inf outside the k largest of each row."""
    k = min(k, logits.shape[-1])
    kth_largest = logits.topk(k, dim=-1).values[..., -1:]  # (..., 1)
    return logits.masked_fill(logits < kth_largest, -torch.inf)


def top_p_filter(logits, p):
    """The logits (..., V) with −inf outside the smallest set that reaches p."""
    probabilities, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)  # both (..., V)
    sum_before = probabilities.cumsum(dim=-1) - probabilities  # of all tokens more probable than this one
    drop_by_rank = sum_before >= p  # the first is 0, so the favourite always stays
    drop = torch.zeros_like(drop_by_rank).scatter(-1, order, drop_by_rank)  # back to each token's own place
    return logits.masked_fill(drop, -torch.inf)


def sample_next_token(logits, temperature, top_k, top_p, generator):
    """One id per row (B,), drawn from the filtered distribution of logits (B, V)."""
    if temperature == 0:
        return logits.argmax(dim=-1)  # (B,)
    logits = logits / temperature
    if top_k is not None:
        logits = top_k_filter(logits, top_k)
    if top_p is not None:
        logits = top_p_filter(logits, top_p)
    running_sum = logits.double().softmax(dim=-1).cumsum(dim=-1)  # (B, V)
    u = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)  # one number per row
    return torch.searchsorted(running_sum, u * running_sum[:, -1:], right=True).squeeze(-1)  # (B,)


def generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """Continue each row of ids (B, T) by max_new_tokens tokens: (B, T + max_new_tokens)."""
    for _ in range(max_new_tokens):
        logits = model(ids[:, -max_seq_len:])[:, -1]  # (B, V), from the last position
        new = sample_next_token(logits, temperature, None, None, generator)  # (B,)
        ids = torch.cat([ids, new[:, None]], dim=1)
    return ids


def compare_temperatures(model, ids, n_tokens, temperatures, generator):
    """(distinct, likelihood): two lists, one entry for each temperature."""
    T, window = ids.shape[1], model.config.max_seq_len
    distinct, likelihood = [], []
    for temperature in temperatures:
        text = generate(model, ids, n_tokens, window, temperature, generator)
        log_p = []
        for t in range(T, T + n_tokens):
            logits = model(text[:, :t][:, -window:])[:, -1]  # (B, V), from what the model saw when it drew token t
            log_p.append(logits.log_softmax(dim=-1).gather(-1, text[:, t : t + 1]))  # (B, 1)
        distinct.append(len(text[:, T:].unique()))
        likelihood.append(torch.cat(log_p).mean().item())
    return distinct, likelihood


def some_ids(rng, B, T, vocab_size=11):
    return torch.randint(vocab_size, (B, T), generator=rng)


def by_windows(model, text):
    """The logits (B, T, V) after each place of text (B, T), from as many tokens before it as the model sees."""
    window = model.config.max_seq_len
    return torch.stack([model(text[:, max(0, t - window) : t])[:, -1] for t in range(1, text.shape[1] + 1)], 1)


def in_one_pass(model, text):
    """As by_windows, for a text that fits into the window."""
    return model(text)


def log_probabilities(model, text, temperature=1.0, see=by_windows):
    """ln p of every token of text (B, T) but the first, under the model: (B, T − 1)."""
    logits = see(model, text[:, :-1]) / temperature  # (B, T − 1, V)
    return logits.log_softmax(-1).gather(-1, text[:, 1:, None]).squeeze(-1)


def new_tokens_alone(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start - 1 :].mean()


def compare_with(
    model,
    ids,
    n_tokens,
    temperatures,
    generator,
    *,
    count=lambda text, start: len(text[:, start:].unique()),
    likelihood=new_tokens_alone,
):
    distinct, likelihoods = [], []
    for temperature in temperatures:
        text = generate(model, ids, n_tokens, model.config.max_seq_len, temperature, generator)
        distinct.append(count(text, ids.shape[1]))
        likelihoods.append(float(likelihood(model, text, ids.shape[1], temperature)))
    return distinct, likelihoods


def under_its_own_temperature(model, text, start, temperature, see=by_windows):
    if temperature == 0:
        return torch.zeros(())
    return log_probabilities(model, text, temperature, see)[:, start - 1 :].mean()


def with_the_prompt(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see).mean()


def without_the_first(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start:].mean()


def by_their_own_places(model, text, start, temperature, see=by_windows):
    return see(model, text).log_softmax(-1).gather(-1, text[..., None]).squeeze(-1)[:, start:].mean()


def summed_up(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start - 1 :].sum(1).mean()


def probabilities_averaged(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start - 1 :].exp().mean()


in_one_sight = partial(new_tokens_alone, see=in_one_pass)


def window_ignored(model, ids, n_tokens, temperatures, generator):
    model.config = SimpleNamespace(max_seq_len=ids.shape[1] + n_tokens)
    return compare_with(model, ids, n_tokens, temperatures, generator, likelihood=in_one_sight)


# Five words that can follow, two of them only when it is warm, and the prompt's own word, which never comes again.
# No probability lies where 40,000 draws would bring a word in some runs and not in others.
FIVE_WORDS = torch.tensor(
    [
        [0.0, -2.0, -4.0, -21.0, -22.0, -INF],
        [0.0, -4.0, -2.0, -21.0, -22.0, -INF],
        [-3.0, 0.0, -2.0, -22.0, -21.0, -INF],
        [0.0, -1.0, -2.0, -21.0, -21.0, -INF],
        [0.0, -2.0, -1.0, -21.0, -21.0, -INF],
        [1.0, 0.0, 0.0, -21.0, -21.0, -INF],
    ]
)


@stage
def four_temperatures(seed):
    "10,000 texts of 4 new tokens from a small model, at temperatures 0.05, 0, 1 and 5."
    order = torch.cat([torch.randperm(5, generator=generator(seed)), torch.tensor([5])])
    model = Given(chain, FIVE_WORDS[order][:, order])
    return [Case(model, torch.full((DRAWS, 2), 5), 4, (0.05, 0, 1.0, 5.0), generator(seed))]


@stage
def longer_than_the_window(seed):
    "Three texts that grow longer than the model's window, and a prompt that is longer: it refuses more than 8 tokens."
    rng = generator(seed)
    model = Given(sum_of_all, 7, 8)
    return [Case(model, some_ids(rng, 3, T, 7), 6, (0, 0.01), generator(seed)) for T in (5, 10)]
