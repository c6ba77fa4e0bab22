"""Chapter 13's exercises accept any honest answer: here the library's own functions, which draw in another way."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from course_lib.grading import EXERCISES, grade
from course_lib.grading.page import catalogue
from course_lib.sampling import generate, next_token_distribution, sample_next_token, top_k_filter, top_p_filter
from tests.right import by_way_of
from tests.right.sampling import compare_of_the_library


class Adapted(nn.Module):
    """An exercise's model with the configuration that the library's `generate` reads."""

    def __init__(self, model, max_seq_len):
        super().__init__()
        self.model = model
        self.config = SimpleNamespace(
            vocab_size=model(torch.zeros(1, 1, dtype=torch.int64)).shape[-1], max_seq_len=max_seq_len
        )

    def forward(self, ids):
        return self.model(ids)


def library_generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    return generate(Adapted(model, max_seq_len), ids, max_new_tokens, temperature=temperature, generator=generator)


def library_next_token(logits, temperature, top_k, top_p, generator):
    return sample_next_token(logits, temperature, top_k, top_p, generator=generator)


ANSWERS = {
    "sampling.temperature": by_way_of(next_token_distribution),
    "sampling.top_k": by_way_of(top_k_filter),
    "sampling.top_p": by_way_of(top_p_filter),
    "sampling.next_token": library_next_token,
    "sampling.generate": library_generate,
    "sampling.compare": compare_of_the_library,
}


@pytest.fixture(autouse=True)
def the_librarys_functions_are_taken(monkeypatch):
    """As if they were anybody's: what the exercises compare is held against them."""
    for name in ANSWERS:
        monkeypatch.setitem(catalogue.EXERCISES, name, replace(EXERCISES[name], library=()))


@pytest.mark.parametrize("seed", [0, 11, 2024])
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.usefixtures("as_a_learner")
def test_what_the_librarys_function_computes_passes(name, seed):
    result = grade(name, ANSWERS[name], seed)
    assert result.passed, result


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda logits, *settings: library_next_token(logits, *settings)[:, None], "misconception: axis not removed"),
        (
            lambda logits, *settings: library_next_token(logits, *settings) + (settings[0] > 0),
            "the ids are 0 to 4; yours go from 1 to 5",
        ),
        (lambda logits, *settings: library_next_token(logits, *settings).tolist(), "it is a list"),
    ],
)
@pytest.mark.usefixtures("as_a_learner")
def test_what_is_no_row_of_ids_is_told(answer, told):
    result = grade("sampling.next_token", answer, 3)
    assert not result.passed
    assert told in result.feedback or told == f"misconception: {result.misconception}"
