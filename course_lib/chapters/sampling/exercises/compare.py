import torch

from course_lib.chapters.sampling.exercises._shared import INF, some_ids
from course_lib.chapters.sampling.exercises.generate import generate
from course_lib.chapters.sampling.fixtures import DRAWS, chain, sum_of_all
from course_lib.chapters.sampling.fixtures import as_two_rows as probe
from course_lib.grading.exercise import Case, Given, generator, stage


def compare_temperatures(model, ids, n_tokens, temperatures, generator):
    return compare_with(model, ids, n_tokens, temperatures, generator)


def by_windows(model, text):
    """Return the logits (B, T, V) after each position of text (B, T), from all earlier tokens that the model can
    see."""
    window = model.config.max_seq_len
    return torch.stack([model(text[:, max(0, t - window) : t])[:, -1] for t in range(1, text.shape[1] + 1)], 1)


def log_probabilities(model, text, temperature=1.0, see=by_windows):
    """Return ln p of every token of text (B, T) except the first, under the model: (B, T − 1)."""
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


# Five words can follow, two of them only at high temperature. The prompt's own word never comes again.
# No probability is so small that 40,000 samples would contain a word in some runs but not in others.
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
    "10,000 texts of 4 new tokens from a small model, at temperatures 1, 0.05 and 0, then 5."
    order = torch.cat([torch.randperm(5, generator=generator(seed)), torch.tensor([5])])
    model = Given(chain, FIVE_WORDS[order][:, order])
    prompts = torch.full((DRAWS, 2), 5)
    return [
        Case(model, prompts, 4, temperatures, generator(seed + draw))
        for draw, temperatures in enumerate([(1.0, 0.05, 0), (5.0,)])
    ]


@stage
def longer_than_the_window(seed):
    "Three texts that are, or become, longer than the model's window: it raises an error for more than 8 tokens."
    rng = generator(seed)
    model = Given(sum_of_all, 29, 8)
    return [Case(model, some_ids(rng, 3, T, 29), 6, (0, 0.01), generator(seed)) for T in (5, 10)]
