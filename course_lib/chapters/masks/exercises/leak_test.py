import torch

from course_lib.chapters.masks.fixtures import Mixing
from course_lib.grading.exercise import Case, Given, generator, stage


def leaks_future(model, ids):
    """Return True if an output of model(ids) depends on a later token of ids (B, T)."""
    before = model(ids)  # (B, T, V)
    V = before.shape[-1]
    for place in range(1, ids.shape[1]):
        changed = ids.clone()
        changed[:, place] = (changed[:, place] + 1) % V  # another token, in every row
        moved = (model(changed) - before)[:, :place].abs().max()
        if moved > 1e-5:
            return True
    return False


V_TOKENS = 6


def drawn_model(
    rng, T, *, V=V_TOKENS, layers=1, leaks=(), size=2.0, past=1.0, rounding=0.0, favourite=0.0, opened=None
):
    """Return a model with random weights; `leaks` are the pairs (query, later key) in which the query sees the key.

    opened: (token, position): only texts with this token at this position leak.
    """
    mixes = [past * torch.rand(T, T, generator=rng).add(0.5).tril() / T for _ in range(layers)]
    for query, key in leaks:
        mixes[0][query, key] += size
    bias = torch.zeros(V)
    bias[-1] = favourite
    # All tokens differ much from each other, so replacing one by any other has a visible effect.
    embedding = torch.linalg.qr(torch.randn(V, V, generator=rng))[0]
    output = torch.linalg.qr(torch.randn(V, V, generator=rng))[0]
    says = f"a model of {layers} layer{'s' if layers > 1 else ''}"
    if leaks:
        says += ", in which " + " and ".join(f"position {query} sees token {key}" for query, key in leaks)
    if opened is not None:
        says += f", in a text with token {opened[0]} at position {opened[1]}"
    return Given(Mixing, embedding, mixes, output, bias, rounding, *(opened or ()), says=says)


def drawn_ids(rng, B, T):
    """Return texts without the vocabulary's last token: adding 1 stays in range, and other mistakes show first."""
    return torch.randint(V_TOKENS - 1, (B, T), generator=rng)


@stage
def each_on_its_own(seed):
    "A model in which each output depends only on its own token: there is nothing to leak at any length."
    rng = generator(seed)
    return [
        Case(drawn_model(rng, 4, past=0.0), drawn_ids(rng, 1, 1)),
        Case(drawn_model(rng, 4, past=0.0), drawn_ids(rng, 1, 4)),
    ]


@stage
def several_models(seed):
    "A causal model, or one in which each token sees later ones: all of them, or only the next one."
    rng = generator(seed)
    everywhere = [(query, key) for key in range(4) for query in range(key)]
    step = [(t, t + 1) for t in range(4)]
    return [
        Case(drawn_model(rng, 4), drawn_ids(rng, 1, 4)),
        Case(drawn_model(rng, 4, leaks=everywhere), drawn_ids(rng, 1, 4)),
        Case(drawn_model(rng, 8, layers=3), drawn_ids(rng, 3, 8)),  # more tokens than the vocabulary has
        Case(drawn_model(rng, 5, layers=2, leaks=step), drawn_ids(rng, 2, 5)),
    ]


@stage
def one_hole(seed):
    "A single leak: one position sees one later token, which may be the next one or far away."
    rng = generator(seed)
    holes = [(0, 5), (1, 2), (2, 5), (3, 4), (0, 1), (1, 3)]
    return [Case(drawn_model(rng, 6, leaks=[hole]), drawn_ids(rng, 2, 6)) for hole in holes]


@stage
def in_one_text_of_several(seed):
    "Three texts. The model leaks in only one of them, because of its first or second token; never in the first text."
    rng = generator(seed)
    cases = []
    for leaky in (2, 1):
        ids = drawn_ids(rng, 3, 5)
        ids[:, 0] = torch.tensor([1, 2, 3])
        cases.append(Case(drawn_model(rng, 5, leaks=[(1, 3), (0, 2)], opened=(1 + leaky, 0)), ids))
    ids = torch.tensor([[3, 1, 2, 4, 3], [4, 0, 5, 1, 2], [2, 2, 4, 5, 1]])
    return [*cases, Case(drawn_model(rng, 5, leaks=[(1, 3), (0, 2)], opened=(0, 1)), ids)]


@stage
def favourites_that_stay(seed):
    "A leak that does not change the most probable token, because it is small or the model always prefers one token."
    rng = generator(seed)
    return [
        Case(drawn_model(rng, 5, leaks=[(2, 3)], size=0.01, favourite=9.0), drawn_ids(rng, 2, 5)),
        Case(drawn_model(rng, 5, leaks=[(1, 3)], favourite=9.0), drawn_ids(rng, 2, 5)),
    ]


@stage
def any_token(seed):
    "The later token may be any one, such as the vocabulary's first or last; a vocabulary may have only two tokens."
    rng = generator(seed)
    cases = []
    for token in (0, V_TOKENS - 1):
        ids = drawn_ids(rng, 1, 5)
        ids[:, 3:] = token
        cases.append(Case(drawn_model(rng, 5, leaks=[(1, 3)]), ids))
        cases += [Case(one_sided_model(rng, up), ids) for up in (True, False)]
    # Two texts that differ only in the token that is seen: a random or fixed token is already in one of them.
    ids = torch.randint(2, (1, 3), generator=rng)
    last = drawn_model(rng, 3, V=2, leaks=[(1, 2)])
    cases += [Case(last, torch.cat([ids[:, :2], torch.tensor([[token]])], 1)) for token in (0, 1)]
    ids = torch.randint(2, (2, 4), generator=rng)
    return [*cases, Case(drawn_model(rng, 4, V=2), ids), Case(drawn_model(rng, 4, V=2, leaks=[(1, 3)]), ids)]


def one_sided_model(rng, up):
    """Return a model whose position 1 sees tokens 3 and 4: larger tokens move all logits further up, or down."""
    size = torch.arange(1, V_TOKENS + 1)[:, None] / V_TOKENS  # (V, 1): tokens from small to large
    mix = torch.eye(5) / 5
    mix[1, 3] = mix[1, 4] = 1.0
    upwards = 0.5 + torch.rand(1, V_TOKENS, generator=rng)
    says = f"a model in which a larger token makes all logits {'larger' if up else 'smaller'}"
    return Given(Mixing, size, [mix], upwards if up else -upwards, torch.zeros(V_TOKENS), 0.0, says=says)


@stage
def nothing_but_rounding(seed):
    "A causal model whose outputs change in the last digit, as sums in a different order do. This is no leak."
    rng = generator(seed)
    # Changing a token or shortening a text moves outputs by less than 0.00001, the limit in the exercise.
    return [Case(drawn_model(rng, 5, rounding=1e-5), drawn_ids(rng, 2, 5))]
