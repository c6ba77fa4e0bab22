"""The embedding table: look-ups, gradients, neighbours and analogies."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.embeddings import TokenEmbedding, analogy, nearest_tokens


@given(
    V=st.integers(1, 20), d_model=st.integers(1, 9), B=st.integers(0, 3), T=st.integers(0, 5), seed=st.integers(0, 99)
)
def test_a_look_up_is_the_product_with_one_hot_rows(V, d_model, B, T, seed):
    torch.manual_seed(seed)
    embedding = TokenEmbedding(V, d_model)
    ids = torch.randint(V, (B, T))
    torch.testing.assert_close(embedding(ids), F.one_hot(ids, V).float() @ embedding.weight)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_look_up_equals_pytorchs_embedding_in_values_and_gradients(dtype):
    ours, theirs = TokenEmbedding(11, 4), nn.Embedding(11, 4)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight)
    ids = torch.tensor([[3, 7, 3], [0, 10, 3]], dtype=dtype)
    upstream = torch.randn(2, 3, 4)
    (ours(ids) * upstream).sum().backward()
    (theirs(ids) * upstream).sum().backward()
    assert torch.equal(ours(ids), theirs(ids))
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


def test_only_the_rows_that_were_looked_up_get_a_gradient():
    embedding = TokenEmbedding(6, 3)
    embedding(torch.tensor([[1, 4, 4]])).sum().backward()
    assert embedding.weight.grad.sum(dim=1).tolist() == [0, 3, 0, 0, 6, 0]


def test_scale_multiplies_by_the_root_of_d_model():
    embedding = TokenEmbedding(5, 16, scale=True)
    ids = torch.tensor([4, 0])
    torch.testing.assert_close(embedding(ids), 4 * embedding.weight[[4, 0]])


def test_rows_start_with_a_spread_of_one_fiftieth():
    weight = TokenEmbedding(1000, 64).weight
    assert abs(weight.std().item() - 0.02) < 0.0005  # 64,000 draws: the standard error is 0.00006
    assert abs(weight.mean().item()) < 0.0005


def test_the_output_follows_the_tables_dtype():
    assert TokenEmbedding(5, 3).double()(torch.tensor([1])).dtype == torch.float64


@given(V=st.integers(4, 30), d_model=st.integers(1, 8), seed=st.integers(0, 99), data=st.data())
def test_neighbours_are_the_largest_cosines_of_a_plain_loop(V, d_model, seed, data):
    weight = np.random.default_rng(seed).normal(size=(V, d_model))
    index, k = data.draw(st.integers(0, V - 1)), data.draw(st.integers(1, V - 1))
    cosine = {
        i: float(weight[i] @ weight[index] / np.linalg.norm(weight[i]) / np.linalg.norm(weight[index]))
        for i in range(V)
        if i != index
    }
    indices, scores = nearest_tokens(torch.from_numpy(weight), index, k)
    assert scores.tolist() == pytest.approx(sorted(cosine.values(), reverse=True)[:k])
    assert index not in indices.tolist()
    assert [cosine[i] for i in indices.tolist()] == pytest.approx(scores.tolist())


def test_a_parallelogram_solves_its_analogy_and_never_answers_with_an_input():
    man, royal, female = torch.eye(4)[:3] * 3
    king, woman, queen = man + royal, man + female, man + royal + female
    weight = torch.stack([king, man, woman, torch.tensor([0.1, 0.2, 0.3, 9.0]), queen])
    indices, scores = analogy(weight, a=0, b=1, c=2, k=2)
    assert indices.tolist() == [4, 3]
    assert scores[0].item() == pytest.approx(1.0)


def test_the_inputs_of_an_analogy_are_left_out_even_when_they_are_nearest():
    weight = torch.tensor([[1.0, 0.0], [0.1, 0.1], [0.1, 0.0], [0.0, 1.0]])  # a − b + c points almost along a
    assert analogy(weight, a=0, b=1, c=2, k=1)[0].tolist() == [3]
    assert analogy(weight, a=0, b=0, c=0, k=3)[0].tolist() == [2, 1, 3]  # one input three times over


def test_a_row_of_zeros_has_cosine_zero_rather_than_nan():
    weight = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    assert nearest_tokens(weight, 1, 2)[1].tolist() == [0.0, 0.0]


def test_neighbours_do_not_drag_a_gradient_along():
    weight = nn.Parameter(torch.randn(5, 3))
    assert not nearest_tokens(weight, 0, 2)[1].requires_grad
    assert weight.grad is None


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize("wrong", [-1, 7, 99])
    def test_an_id_outside_the_table_is_named(self, wrong):
        with pytest.raises(ValueError, match=rf"ids contain {wrong}, .*ids run from 0 to 6"):
            TokenEmbedding(7, 3)(torch.tensor([[1, wrong, 2]]))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8])
    def test_ids_must_be_whole_numbers(self, dtype):
        with pytest.raises(ValueError, match="whole numbers"):
            TokenEmbedding(7, 3)(torch.ones(2, 2).to(dtype))

    @pytest.mark.parametrize("sizes", [(0, 4), (4, -1), (2.5, 4), ("4", 4), (True, 4)])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, sizes):
        with pytest.raises(ValueError, match="must be a whole number of at least 1"):
            TokenEmbedding(*sizes)

    @pytest.mark.parametrize(
        ("index", "k", "message"), [(5, 1, "outside the table"), (-1, 1, "outside"), (0, 0, "k must be")]
    )
    def test_neighbours_of_nothing(self, index, k, message):
        with pytest.raises(ValueError, match=message):
            nearest_tokens(torch.randn(5, 2), index, k)

    def test_more_neighbours_than_there_are(self):
        with pytest.raises(ValueError, match="only 4 are left"):
            nearest_tokens(torch.randn(5, 2), 0, 5)
        with pytest.raises(ValueError, match="only 2 are left"):
            analogy(torch.randn(5, 2), 0, 1, 2, 3)

    def test_a_table_has_two_dimensions(self):
        with pytest.raises(ValueError, match=r"\(V, d_model\)"):
            nearest_tokens(torch.randn(5), 0, 1)
