import math
from functools import cache

import torch

from course_lib.chapters.efficiency.fixtures import recalling
from course_lib.chapters.efficiency.fixtures import steps_speculated as probe
from course_lib.grading.exercise import Case, Given, generator, stage


def speculative_step(target, draft, ids, k, generator):
    """The text ids (1, T) with n + 1 tokens more: the n guesses that the target keeps, and one of its own."""
    T, guessed, q = ids.shape[1], ids, []
    for _ in range(k):
        q.append(draft(guessed)[0, -1].softmax(dim=-1))  # (V,)
        guess = torch.multinomial(q[-1], 1, generator=generator)
        guessed = torch.cat([guessed, guess[None]], dim=1)
    p = target(guessed)[0, T - 1 :].softmax(dim=-1)  # (k + 1, V): in one pass
    n = 0
    while n < k and torch.rand(1, generator=generator) * q[n][guessed[0, T + n]] < p[n, guessed[0, T + n]]:
        n += 1
    rest = p[k] if n == k else (p[n] - q[n]).clamp(min=0)  # (V,)
    new = torch.multinomial(rest, 1, generator=generator)
    return torch.cat([guessed[:, : T + n], new[None]], dim=1)


RUNS = 400  # steps of a case in which something is drawn
IMPOSSIBLE = 1e-9


def summary(case, brought):
    """How often the steps do what; of what is no longer text, why.

    -> the share of the steps that keep n guesses (k + 1,) · that keep n and write v after them (k + 1, V) · of which
    new token i is v (k + 1, V) · what of the second cannot be, as pairs (n, v) · one pass of the target · the same with
    the same seed.
    """
    if not isinstance(brought, dict):
        return brought
    _, _, ids, k, *_ = case.args
    chances = probabilities(case)
    V = chances["written"].shape[1]
    new = brought["texts"][:, ids.shape[1] :]  # (runs, k + 1), −1 where there is none
    kept = (new >= 0).sum(dim=1) - 1
    written = torch.zeros(k + 1, V).index_put_(
        (kept, new.gather(1, kept[:, None])[:, 0]), torch.tensor(1.0), accumulate=True
    )
    tokens = torch.stack([torch.bincount(column + 1, minlength=V + 1)[1:] for column in new.T])
    return {
        "kept": written.sum(dim=1) / len(new),
        "written": written / len(new),
        "tokens": tokens / len(new),
        "cannot be": ((written > 0) & (chances["written"] < IMPOSSIBLE)).nonzero().tolist(),
        "one pass": brought["one pass"],
        "repeated": brought["repeated"],
    }


@cache
def probabilities(case):
    """Of what a summary counts: every way in which a step can go, from the two tables."""
    target, draft, ids, k, *_ = case.args
    P, Q = (model.data[0].double().softmax(dim=-1) for model in (target, draft))
    rows, V = P.shape
    written, tokens = torch.zeros(2, k + 1, V, dtype=torch.float64)

    def go_on(kept, chance):
        n, state = len(kept), (int(ids.sum()) + sum(kept)) % rows
        p = P[state]
        both = torch.minimum(p, Q[state]) if n < k else torch.zeros(V)  # guessed and kept
        for v, own in enumerate((chance * (p - both)).tolist()):
            written[n, v] += own
            for i, token in enumerate([*kept, v]):
                tokens[i, token] += own
        for v, share in enumerate(both.tolist()):
            if chance * share > IMPOSSIBLE:
                go_on([*kept, v], chance * share)

    go_on([], 1.0)
    return {"kept": written.sum(dim=1), "written": written, "tokens": tokens}


def room(chance, runs):
    """How far a share of so many runs may be off: by chance it is further once in some ten million times."""
    return 5.5 * math.sqrt(chance * (1 - chance) / runs) + 6 / runs


def judge(case, expected, got):
    """The shares are held against the probabilities themselves."""
    if not isinstance(got, dict):
        return f"Expected the text with 1 to k + 1 new tokens; got {got}."
    runs = case.args[4]
    for n, v in got["cannot be"]:
        return f"After {n} kept guess{'es' * (n != 1)} a step of yours writes token {v}, which cannot come there."
    for name, chances in probabilities(case).items():
        for place in torch.cartesian_prod(*map(torch.arange, chances.shape)).view(-1, chances.ndim).tolist():
            share, chance = (each[tuple(place)].item() for each in (got[name], chances))
            if abs(share - chance) > room(chance, runs):
                what = SAYS[name].format(*place)
                return f"{what}: so in {share:.0%} of {runs} steps of yours; the probability is {chance:.0%}."
    if not got["one pass"]:
        return "The text is right, and the target was not called once: one pass has to do for all guesses."
    return None if got["repeated"] else "With the same seed your steps are not the same: draw with the generator given."


SAYS = {
    "kept": "{0} guesses are kept",
    "written": "{0} guesses are kept, and token {1} is written after them",
    "tokens": "New token {0}, counted from 0, is {1}",
}


def models(target, draft):
    """Two models from tables of probabilities, a row for each sum of the tokens so far."""
    return [
        Given(recalling, table.clamp(min=1e-17).log(), says=f"the {name}: a model of {table.shape[1]} tokens")
        for name, table in (("target", target), ("draft", draft))
    ]


def sure_case(seed, k, wrong=None):
    """Two models that are sure of one token each, the same one; but for the guess number `wrong`, if there is one."""
    favourites = [(3 * state + 1) % 7 for state in range(7)]  # two rings of three states each, and state 2
    start = (0, 1, 5, 3, 6)[int(torch.randint(5, (1,), generator=generator(seed)))]
    target = torch.eye(7)[favourites]
    if wrong is not None:
        state = start
        for _ in range(wrong):
            state = (4 * state + 1) % 7
        favourites[state] = (favourites[state] + 1) % 7
    return Case(*models(target, torch.eye(7)[favourites]), torch.tensor([[3, 1, start - 4]]) % 7, k, 3, generator(seed))


def drawn_case(seed, k, p, q, runs=RUNS):
    """The same probabilities after every text, each time with the tokens in another order."""
    rng = generator(seed)
    orders = torch.rand(len(p), len(p), generator=rng).argsort(dim=1)
    ids = torch.randint(len(p), (1, 3), generator=rng)
    return Case(*models(torch.tensor(p)[orders], torch.tensor(q)[orders]), ids, k, runs, rng)


@stage
def sure_and_agreed(seed):
    "Both models are sure, and of the same tokens: all guesses are kept, and the target adds one."
    return [sure_case(seed, 1), sure_case(seed + 1, 3)]


@stage
def sure_and_not_agreed(seed):
    "Both models are sure, but not always of the same token: where they disagree, the target writes its own."
    return [sure_case(seed + wrong, k, wrong) for k, wrong in ((1, 0), (1, 1), (3, 0), (3, 1), (3, 2))]


@stage
def kept_or_not(seed):
    "A guess is kept with probability min(1, p / q), each with a number drawn for itself."
    half = drawn_case(seed, 1, [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], RUNS // 2)
    return [half, drawn_case(seed, 2, [0.14] * 5 + [0.2, 0.1], [0.2] * 5 + [0.0, 0.0])]


@stage
def drawn_anew(seed):
    "Where a guess is not kept, a token is drawn from what the target has more of than the draft."
    return [drawn_case(seed, 1, [0.2, 0.1, 0.55, 0.15], [0.9, 0.1, 0.0, 0.0])]
