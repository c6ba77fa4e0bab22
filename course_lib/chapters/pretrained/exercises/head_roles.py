import torch

from course_lib.chapters.pretrained.fixtures import restless_decoder, stored_weights
from course_lib.grading.exercise import Case, Given, generator, stage


def head_roles(model, ids):
    """Return {"previous", "first", "induction"}: the scores (L, H) of all heads."""
    weights = torch.stack(model.attention_weights(ids)).mean(dim=1)  # (L, H, T, T), the mean over the texts
    n = ids.shape[1] // 2
    second = torch.arange(n, 2 * n)  # the positions at which a word is repeated
    return {
        "previous": weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=-1),
        "first": weights[..., 1:, 0].mean(dim=-1),
        "induction": weights[..., second, second - n + 1].mean(dim=-1),
    }


def random_words_twice(rng, B, n, V=50):
    words = torch.randint(V, (B, n), generator=rng)
    return torch.cat([words, words], dim=1)  # (B, 2n)


def causal_weights(rng, B, H, T):
    allowed = torch.ones(T, T, dtype=torch.bool).tril()
    return (2 * torch.randn(B, H, T, T, generator=rng)).masked_fill(~allowed, -torch.inf).softmax(-1)


def of_stored_weights(seed, B, n, L, H):
    rng = generator(seed + 100 * n + B)
    weights = [causal_weights(rng, B, H, 2 * n) for _ in range(L)]
    return Case(Given(stored_weights, weights, says=f"a model with {L} × {H} heads"), random_words_twice(rng, B, n))


@stage
def known_heads(seed):
    "One block with four known heads: previous position, first position, induction, and uniform attention."
    n = 4
    T, places = 2 * n, torch.arange(2 * n)
    rows = torch.eye(T)
    even = torch.ones(T, T).tril() / (places + 1)[:, None]
    copying = torch.where((places >= n)[:, None], rows[(places - n + 1).clamp(min=0)], even)
    weights = torch.stack([rows[(places - 1).clamp(min=0)], rows[0].expand(T, T), copying, even])[None]  # (1, H, T, T)
    ids = random_words_twice(generator(seed), 1, n)
    return [Case(Given(stored_weights, [weights], says="a model of one block with four known heads"), ids)]


@stage
def drawn_heads(seed):
    "Random attention weights of one or several blocks, for one or several texts."
    return [
        of_stored_weights(seed, 1, 3, 2, 3),
        of_stored_weights(seed, 4, 5, 3, 2),
        of_stored_weights(seed, 2, 7, 1, 5),
    ]


@stage
def real_decoders(seed):
    "A decoder with random weights: its attention depends on the words and their positions."
    rng = generator(seed)
    cases = []
    for layers, heads, B, n in ((2, 3, 3, 6), (3, 2, 1, 9)):
        config = {"vocab_size": 50, "d_model": 12, "n_heads": heads, "n_layers": layers, "max_seq_len": 20}
        model = Given(restless_decoder, config, seed + layers, says=f"a decoder with {layers} × {heads} heads")
        cases.append(Case(model, random_words_twice(rng, B, n)))
    return cases
