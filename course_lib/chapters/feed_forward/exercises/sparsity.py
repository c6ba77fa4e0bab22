import torch

from course_lib.chapters.feed_forward.exercises._shared import TINY, drawn_ids, small_model
from course_lib.chapters.feed_forward.fixtures import as_row as probe
from course_lib.chapters.feed_forward.fixtures import tinytown
from course_lib.gpt import evaluating
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.fixtures import drawn_decoder
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.trace import trace


def active_shares(model, ids, pad_id):
    """Return for each block the fraction of hidden units above 0,
    over all tokens that are not padding."""
    with evaluating(model), trace(model, "*.hidden") as seen:
        model(ids)
    real = ids != pad_id  # (B, T)
    return [(hidden[real] > 0).float().mean().item() for hidden in seen.values()]  # hidden[real]: (tokens, d_ff)


@stage
def one_token_in(seed):
    "One token: the fraction of eleven units that fire, in each of two blocks."
    return [Case(small_model(seed), drawn_ids(generator(seed), 1), 0)]


@stage
def a_text_in(seed):
    "One text: the mean over its tokens, for every block."
    rng = generator(seed)
    return [
        Case(small_model(seed), drawn_ids(rng, 7), 0),
        Case(small_model(seed + 1, n_layers=3, d_ff=7), drawn_ids(rng, 9), 0),
    ]


@stage
def gelu_units(seed):
    "GELU units: a unit fires if its score is above 0, whether or not the others are exactly 0."
    ids = drawn_ids(generator(seed), 8, 8)
    return [Case(small_model(seed, activation="gelu", mute=mute), ids, 0) for mute in (0, 3)]


@stage
def padded_texts(seed):
    "Texts of different lengths, padded with `pad_id`: padding does not count."
    rng = generator(seed)
    ids = drawn_ids(rng, 9, 4, 2)
    return [
        Case(small_model(seed), ids, 0),
        Case(small_model(seed, activation="gelu"), (ids - 1) % TINY["vocab_size"], TINY["vocab_size"] - 1),
    ]


@stage
def before_and_after_training(seed):
    "A model like Tinytown's, untrained or trained, on new stories, cut after 32, 25, 18 and 11 tokens."
    model, tokenizer = load_pretrained("tinytown")
    stories = [tokenizer.encode(story)[: 32 - 7 * i] for i, story in enumerate(Tinytown(50_000 + seed).sample(4))]
    ids = torch.tensor([story + [tokenizer.pad_id] * (32 - len(story)) for story in stories])
    untrained = Given(drawn_decoder, model.config.to_dict(), seed, says="an untrained model like Tinytown's")
    return [Case(untrained, ids, tokenizer.pad_id), Case(Given(tinytown), ids, tokenizer.pad_id)]


@stage
def with_dropout(seed):
    "A model that arrives in training mode with dropout on: measure with dropout off."
    return [Case(small_model(seed, dropout=0.4), drawn_ids(generator(seed), 9, 6), 0)]
