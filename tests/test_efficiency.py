"""Weights of one byte and guesses that are checked: what the fast ways compute is what the plain ones compute."""

import pytest
import torch
from helpers import V, build, draw_ids, seeds, small
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.efficiency import Int8Linear, chunked_loss, left_over, quantize_int8, speculate, to_int8
from course_lib.gpt import IGNORED
from course_lib.pretrained import load_pretrained
from course_lib.sampling import generate, next_token_distribution
from course_lib.tinytown import Tinytown
from course_lib.trace import kept_for_backward
from course_lib.training import story_losses

# --- a loss in chunks -------------------------------------------------------------------------------------------------


def states(vocab_size=11, tokens=(3, 5), seed=0):
    """Hidden states, an output layer, and targets of which some do not count."""
    rng = torch.Generator().manual_seed(seed)
    output = nn.Linear(8, vocab_size, dtype=torch.float64)
    hidden = torch.randn(*tokens, 8, generator=rng, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocab_size, tokens, generator=rng)
    return hidden, output, targets.masked_fill(torch.rand(tokens, generator=rng) < 0.3, IGNORED)


@pytest.mark.parametrize("chunk", [1, 4, 15, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_a_loss_in_chunks_is_pytorchs_and_so_are_its_gradients(chunk, seed):
    hidden, output, targets = states(seed=seed)
    leaves = (hidden, output.weight, output.bias)
    expected = nn.functional.cross_entropy(output(hidden).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    found = chunked_loss(hidden, output, targets, chunk)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(torch.autograd.grad(3 * found, leaves), torch.autograd.grad(3 * expected, leaves)):
        torch.testing.assert_close(ours, theirs)


class InChunks(nn.Module):
    """The loss of an output layer: of all tokens at once, or in chunks."""

    def __init__(self, output, chunk):
        super().__init__()
        self.output, self.chunk = output, chunk

    def forward(self, hidden, targets):
        if self.chunk:
            return chunked_loss(hidden, self.output, targets, self.chunk)
        return nn.functional.cross_entropy(self.output(hidden).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def test_a_loss_in_chunks_keeps_nothing_that_grows_with_the_vocabulary():
    kept = {}
    for vocab_size in (100, 1000):
        hidden, output, targets = states(vocab_size)
        for chunk in (None, 4):
            kept[chunk, vocab_size] = kept_for_backward(InChunks(output, chunk), hidden, targets)[1]
    assert kept[None, 1000] > 8 * kept[None, 100]
    assert kept[4, 1000] == kept[4, 100] < 0.1 * kept[None, 100]


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        ({"chunk": 0}, "chunk must be .* at least 1"),
        ({"targets": torch.full((3, 5), IGNORED)}, "all targets are -100"),
        ({"targets": torch.full((3, 5), 11)}, "targets"),
        ({"targets": torch.zeros(3, 4, dtype=torch.int64)}, r"\(3, 5, 8\) and \(3, 4\)"),
        ({"hidden": torch.zeros(3, 5, 7)}, "hidden"),
    ],
)
def test_a_loss_in_chunks_names_what_does_not_fit(spoiled, message):
    hidden, output, targets = states()
    given = {"hidden": hidden, "output": output, "targets": targets, "chunk": 4} | spoiled
    with pytest.raises(ValueError, match=message):
        chunked_loss(**given)


# --- int8 -------------------------------------------------------------------------------------------------------------


@given(rows=st.integers(1, 9), columns=st.integers(1, 40), spread=st.floats(1e-6, 1e6), seed=seeds)
def test_no_weight_moves_by_more_than_half_a_step(rows, columns, spread, seed):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * spread
    q, scale = quantize_int8(weight)
    assert q.dtype == torch.int8
    assert q.abs().max() <= 127
    assert (q.abs().amax(dim=1) == 127).all()  # each row uses the whole range
    assert ((q * scale[:, None] - weight).abs() <= 0.5001 * scale[:, None]).all()


def test_whole_numbers_of_the_range_and_rows_of_zeros_stay_what_they_are():
    weight = torch.tensor([[127.0, -3.0, 0.0], [0.0, 0.0, 0.0]])
    q, scale = quantize_int8(weight)
    assert q.tolist() == [[127, -3, 0], [0, 0, 0]]
    assert scale.tolist() == [1.0, 1.0]


@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    sizes=st.tuples(st.one_of(st.integers(1, 70), st.sampled_from([32, 64, 96])), st.integers(1, 70)),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=seeds,
)
def test_the_kernel_the_formula_and_a_linear_layer_of_rounded_weights_agree(batch, sizes, bias, dtype, seed):
    torch.manual_seed(seed)
    linear = nn.Linear(*sizes, bias=bias)
    ours = Int8Linear(linear)
    rounded = nn.Linear(*sizes, bias=bias).double()
    rounded.load_state_dict(linear.state_dict() | {"weight": ours.q * ours.scale[:, None]})
    x = torch.randn(*batch, sizes[0]).to(dtype)
    expected = rounded(x.double()).to(dtype)
    coarse, fine = {"rtol": 2e-2, "atol": 5e-2}, {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(ours.by_hand(x), expected, **(coarse if dtype == torch.bfloat16 else fine))
    torch.testing.assert_close(ours(x), expected, **(fine if dtype == torch.float64 else coarse))


def test_a_model_of_bytes_keeps_its_perplexity_and_leaves_the_original_alone():
    model, tokenizer = load_pretrained("tinytown")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small_model = to_int8(model)
    assert not [name for name, part in small_model.named_modules() if isinstance(part, nn.Linear)]
    stories = [tokenizer.encode(story) for story, _ in zip(Tinytown(seed=7).stories(), range(100))]
    nats, tokens = story_losses(model, stories)
    rounded, _ = story_losses(small_model, stories)
    ratio = ((rounded.sum() - nats.sum()) / tokens.sum()).exp()  # of the perplexities
    assert 0.99 < ratio < 1.01
    assert ratio != 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_it_counts_a_byte_for_a_weight():
    model = build(small())
    linear = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    held = sum(part.q.numel() * part.q.element_size() for part in to_int8(model).modules() if hasattr(part, "q"))
    assert held == linear


@pytest.mark.parametrize("weight", [torch.zeros(3), torch.tensor([[torch.nan]]), torch.zeros(2, 2, dtype=torch.int64)])
def test_what_is_no_matrix_of_numbers_is_refused(weight):
    with pytest.raises(ValueError, match="weight must be a matrix"):
        quantize_int8(weight)


# --- speculation ------------------------------------------------------------------------------------------------------


def pair(**changes):
    config = small(max_seq_len=24, **changes)
    return build(config, seed=0), build(small(n_layers=1, max_seq_len=24), seed=1)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("positions", ["learned", "rope", "alibi"])
def test_greedy_it_writes_what_the_model_writes_alone(k, positions):
    model, draft = pair(positions=positions)
    for guesser in (model, draft):
        ids = draw_ids(1, 3)
        text, kept = speculate(model, guesser, ids, 20, k, temperature=0)
        assert torch.equal(text, generate(model, ids, 20, temperature=0))
        assert sum(kept) + len(kept) == 20  # each pass gives the guesses kept, and one token of the model's own
        if guesser is model:
            assert len(kept) == -(-20 // (k + 1))  # its own guesses are all kept


@given(
    p=st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(any),
    q=st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(any),
)
def test_kept_or_drawn_anew_a_token_has_the_models_probability(p, q):
    p, q = (torch.tensor(x, dtype=torch.float64) / sum(x) for x in (p, q))
    kept = torch.minimum(p, q)
    torch.testing.assert_close(kept + (1 - kept.sum()) * left_over(p, q), p)


@pytest.mark.proof
def test_drawn_texts_have_the_models_distribution():
    """All 36 texts of two tokens, 1,000 draws: the model's own probabilities, and not the draft's."""
    torch.manual_seed(0)
    model, draft = (build(small(vocab_size=6, n_layers=1), seed=seed) for seed in (0, 1))
    start, n, how = torch.tensor([[1]]), 1000, {"temperature": 1.5, "top_k": 5}

    def exact(which):
        first = next_token_distribution(which(start)[0, -1], **how)
        pairs = torch.stack([torch.tensor([1, token]) for token in range(6)])
        return first[:, None] * next_token_distribution(which(pairs)[:, -1], **how)  # (6, 6)

    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(6, 6)
    for _ in range(n):
        _, a, b = speculate(model, draft, start, 2, 2, generator, **how)[0][0]
        counts[a, b] += 1
    with torch.no_grad():
        p, q = exact(model), exact(draft)
    assert counts[p == 0].sum() == 0

    def chi_square(expected):
        there = expected > 0
        return ((counts - n * expected)[there] ** 2 / (n * expected[there])).sum().item()

    assert chi_square(p) < 60  # 35 degrees of freedom: above it once in 200 times
    assert chi_square(q) > 200


def test_the_same_seed_writes_the_same_text():
    model, draft = pair()
    ids = draw_ids(1, 2)
    texts = [speculate(model, draft, ids, 15, 3, torch.Generator().manual_seed(s))[0] for s in (0, 0, 1)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"k": 0}, "k must"),
        ({"max_new_tokens": 23}, "ask for at most 22"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"ids": torch.zeros(2, 3, dtype=torch.int64)}, "got 2 rows"),
        ({"ids": torch.tensor([[V]])}, "outside the vocabulary"),
        ({"draft": build(small(vocab_size=9, max_seq_len=24))}, "need the same vocabulary"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, wrong):
    model, draft = pair()
    given_ = {"model": model, "draft": draft, "ids": torch.tensor([[1, 2]]), "max_new_tokens": 4} | changes
    with pytest.raises(ValueError, match=wrong):
        speculate(**given_)
