import torch

from course_lib.chapters.positions.fixtures import measured_with_shuffles as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.fixtures import self_attention


def equivariance_error(f, x, n_shuffles):
    """Return the largest |f(Px) − P f(x)| over n_shuffles random orders P of tokens."""
    plain, largest = f(x), 0.0
    for _ in range(n_shuffles):
        order = torch.randperm(x.shape[1])
        deviation = (f(x[:, order]) - plain[:, order]).abs().max().item()
        largest = max(largest, deviation)
    return largest


def drawn_text(rng, B, T, D, *, sign=1, added=False, causal=False, dtype=torch.float64):
    """Return a case: attention with random weights, a text, and enough shuffles to try every order of T tokens."""
    W_Q, W_K, W_V = (torch.randn(D, D, generator=rng, dtype=dtype) for _ in range(3))
    places = torch.randn(T, D, generator=rng, dtype=dtype) if added else None
    says = "attention" + (" with positions" if added else " without positions") + (", causal" if causal else "")
    x = torch.randn(B, T, D, generator=rng, dtype=dtype)
    return Given(self_attention, W_Q, W_K, sign * W_V, places, causal, says=says), x, {2: 24, 3: 100, 4: 400}[T]


@stage
def two_tokens(seed):
    "Two tokens, which can only be exchanged, and attention with positions: the outputs do not follow."
    return [Case(*drawn_text(generator(seed), 1, 2, 3, added=True))]


@stage
def without_positions(seed):
    "Attention without positions: the deviation is only rounding, in float32 or float64."
    rng = generator(seed)
    return [
        Case(*drawn_text(rng, 1, 3, 4, dtype=torch.float32)),
        Case(*drawn_text(rng, 2, 3, 4)),
        Case(*drawn_text(rng, 3, 3, 3)),
    ]


@stage
def with_positions(seed):
    "Attention with positions, in a batch: the largest deviation over all entries and shuffles, of either sign."
    rng = generator(seed)
    state = rng.get_state()
    here = Case(*drawn_text(rng, 2, 3, 5, added=True))
    rng.set_state(state)
    return [here, Case(*drawn_text(rng, 2, 3, 5, sign=-1, added=True)), Case(*drawn_text(rng, 4, 4, 4, added=True))]


@stage
def behind_a_mask(seed):
    "Causal attention without positions: the output depends on which tokens came before."
    rng = generator(seed)
    return [Case(*drawn_text(rng, 1, 3, 4, causal=True)), Case(*drawn_text(rng, 2, 4, 3, causal=True))]
