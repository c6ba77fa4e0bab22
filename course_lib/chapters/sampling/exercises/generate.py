import torch

from course_lib.chapters.sampling.exercises._shared import as_often_as_probable as judge
from course_lib.chapters.sampling.exercises._shared import greedy, some_ids
from course_lib.chapters.sampling.fixtures import chain, sum_of_all
from course_lib.chapters.sampling.fixtures import followed as probe
from course_lib.grading.exercise import Case, Given, generator, stage


def draw(logits, temperature, generator):
    """Sample one token per row: (B, V) -> (B,)."""
    p = greedy(logits) if temperature == 0 else (logits / temperature).softmax(-1)
    return torch.multinomial(p.log().softmax(-1), 1, generator=generator).squeeze(-1)


def generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    for _ in range(max_new_tokens):
        logits = model(ids[:, -max_seq_len:])[:, -1]  # (B, V)
        ids = torch.cat([ids, draw(logits, temperature, generator)[:, None]], 1)  # (B, T + 1)
    return ids


@stage
def one_more_token(seed):
    "One new token at temperature 0: the most probable one after the prompt."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 1, 3), 1, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 3, 4), 1, 16, 0, generator(seed)),
    ]


@stage
def several_tokens(seed):
    "Several new tokens: each depends on all tokens before it, new ones included. For 0 new tokens return the prompt."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 1, 2), 4, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 3, 5), 6, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 2, 3), 0, 16, 0, generator(seed)),
    ]


@stage
def beyond_the_window(seed):
    "A text longer than max_seq_len: the model sees the last max_seq_len tokens, and you return the full text."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 4), some_ids(rng, 2, 3), 5, 4, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 4), some_ids(rng, 2, 7), 3, 4, 0, generator(seed)),
    ]


THREE_WORDS = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]]).log()


@stage
def drawn_tokens(seed):
    "Above temperature 0: how often each pair of new tokens is sampled in 10,000 texts. Logits may be large."
    prompt = torch.randint(3, (1, 2), generator=generator(seed))
    return [
        Case(Given(chain, THREE_WORDS + level), prompt, 2, 8, temperature, generator(seed))
        for temperature, level in ((1.0, 0.0), (0.5, 0.0), (2.0, 1e3))
    ]
