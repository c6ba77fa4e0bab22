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
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        assert nearest_tokens(weight.to(dtype), 1, 2)[1].tolist() == [0.0, 0.0]
        three_of_zeros = torch.cat([torch.zeros(3, 2), weight[:1]]).to(dtype)
        assert analogy(three_of_zeros, 0, 1, 2, 1)[1].tolist() == [0.0]


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-12, 1e12, 1e30, 1e37])
def test_a_cosine_does_not_depend_on_how_long_the_vectors_are(scale):
    """Squares of such numbers leave float32 at one end or the other; their angle is well within it."""
    weight = torch.randn(12, 5)
    for found in (nearest_tokens, lambda table, index, k: analogy(table, index, 1, 2, k)):
        expected, cosines = found(weight.double(), 0, 4)
        indices, scores = found(scale * weight, 0, 4)
        assert indices.tolist() == expected.tolist()
        torch.testing.assert_close(scores.double(), cosines, atol=1e-5, rtol=0)
    mixed = weight.clone()
    mixed[::2] *= scale
    torch.testing.assert_close(nearest_tokens(mixed, 0, 11), nearest_tokens(weight, 0, 11))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_half_precision_gives_the_cosines_of_its_own_numbers(dtype, tolerance, scale):
    weight = (scale * torch.randn(9, 6)).to(dtype)
    indices, scores = nearest_tokens(weight, 0, 8)
    assert scores.dtype == dtype
    expected = F.cosine_similarity(weight.double(), weight.double()[0], dim=-1)
    torch.testing.assert_close(scores.double(), expected[indices], atol=tolerance, rtol=0)


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
        with pytest.raises(ValueError, match="only 4 tokens remain"):
            nearest_tokens(torch.randn(5, 2), 0, 5)
        with pytest.raises(ValueError, match="only 2 tokens remain"):
            analogy(torch.randn(5, 2), 0, 1, 2, 3)

    def test_a_table_has_two_dimensions(self):
        with pytest.raises(ValueError, match=r"\(V, d_model\)"):
            nearest_tokens(torch.randn(5), 0, 1)

    @pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
    def test_a_row_that_is_no_vector_has_no_neighbours(self, wrong):
        weight = torch.randn(6, 3)
        weight[4, 1] = wrong
        for use in (lambda: nearest_tokens(weight, 0, 2), lambda: analogy(weight, 0, 1, 2, 2)):
            with pytest.raises(ValueError, match="row 4 of weight holds NaN or infinite numbers"):
                use()

    def test_rows_are_named_by_whole_numbers(self):
        weight = torch.randn(5, 2)
        for index in (1.5, "cat", None, torch.tensor([1, 2])):
            with pytest.raises(TypeError, match="a token must be given by its id, a whole number, got"):
                nearest_tokens(weight, index, 1)
        assert nearest_tokens(weight, torch.tensor(1), 1)[0].tolist() == nearest_tokens(weight, 1, 1)[0].tolist()

    def test_lists_are_no_tensors(self):
        for wrong, name in (
            (lambda: TokenEmbedding(7, 3)([[1, 2]]), "ids"),
            (lambda: nearest_tokens([[1.0, 2.0]] * 3, 0, 1), "weight"),
            (lambda: analogy([[1.0, 2.0]] * 5, 0, 1, 2, 1), "weight"),
        ):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                wrong()
