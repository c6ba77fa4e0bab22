import math
from functools import cache

import torch

from course_lib.chapters.efficiency.fixtures import recalling
from course_lib.chapters.efficiency.fixtures import steps_speculated as probe
from course_lib.grading.exercise import Case, Given, generator, stage


def speculative_step(target, draft, ids, k, generator):
    """Return the text ids (1, T) with n + 1 more tokens: the n guesses that the target
    keeps, and one more token."""
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


RUNS, FEW = 300, 8  # steps of a random case, and of one in which nothing is random
IMPOSSIBLE = 1e-6  # the largest difference between two tables of float32
KEPT, WRITTEN, TOKENS = "n guesses kept", "token v after n kept guesses", "new token i is v"


def summary(case, brought):
    """Return a summary of the steps, or the reason why a result is not a text.

    For few steps it has all the texts. For many steps it has three tables of frequencies: n guesses were kept (k + 1,);
    n guesses were kept and v follows them (k + 1, V); new token i is v (k + 1, V). It also has the tokens that were
    written when no guess was kept, although they are impossible there. Then it says whether the target was called once,
    and whether the same seed gives the same texts.
    """
    if not isinstance(brought, dict):
        return brought
    new = brought["texts"][:, case.args[2].shape[1] :]  # (runs, k + 1), −1 if there is none
    again = brought["again"]
    sound = {
        "one pass": brought["passes"].tolist() == [1] * len(brought["texts"]),
        "repeated": torch.equal(again, brought["texts"][: len(again)]),
    }
    if len(new) < RUNS:
        return {"new tokens": [[v for v in row if v >= 0] for row in new.unique(dim=0).tolist()], **sound}
    chances = probabilities(case)
    written = torch.zeros_like(chances[WRITTEN])
    kept = (new >= 0).sum(dim=1) - 1
    one = torch.tensor(1.0, dtype=written.dtype)
    written.index_put_((kept, new.gather(1, kept[:, None])[:, 0]), one, accumulate=True)
    tokens = torch.stack([torch.bincount(column + 1, minlength=written.shape[1] + 1)[1:] for column in new.T])
    return {
        KEPT: (written.sum(dim=1) / len(new)).float(),
        WRITTEN: (written / len(new)).float(),
        TOKENS: tokens / len(new),
        "cannot come first": ((written > 0) & (chances[WRITTEN] < IMPOSSIBLE))[0].nonzero().flatten().tolist(),
        **sound,
    }


@cache
def probabilities(case):
    """Return the exact probabilities of the numbers in a summary: every way in which a step can go, from both
    tables."""
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
    return {KEPT: written.sum(dim=1), WRITTEN: written, TOKENS: tokens}


def judge(case, expected, got):
    """Compare the frequencies with the true probabilities."""
    if not isinstance(got, dict):
        return f"Expected the text with 1 to k + 1 new tokens; got {got}."
    if "new tokens" in expected:
        if got["new tokens"] != expected["new tokens"]:
            wanted = expected["new tokens"][0]
            wrong = next(text for text in got["new tokens"] if text != wanted)
            return f"Nothing is random in this case: the new tokens are {wanted}, but your step gives {wrong}."
    elif got["cannot come first"]:
        impossible = got["cannot come first"][0]
        return f"One of your steps keeps no guess and writes token {impossible}, which has probability 0 there."
    else:
        for name, chances in probabilities(case).items():
            for place in torch.cartesian_prod(*map(torch.arange, chances.shape)).view(-1, chances.ndim).tolist():
                share, chance = (each[tuple(place)].item() for each in (got[name], chances))
                if abs(share - chance) > room(chance):
                    what = SAYS[name].format(*place)
                    return f"{what} in {share:.0%} of your {RUNS} steps. The probability is {chance:.0%}."
    if not got["one pass"]:
        return "The text is right, but you call the target more than once. One pass is enough for all guesses."
    return None if got["repeated"] else "With the same seed your steps differ. Pass `generator` to all sampling."


def room(chance):
    """Return the tolerance of a frequency. A larger deviation happens by chance less than once in 10^8 times."""
    return 5.5 * math.sqrt(chance * (1 - chance) / RUNS) + 6 / RUNS


SAYS = {
    KEPT: "{0} guesses are kept",
    WRITTEN: "{0} guesses are kept, and token {1} is written after them",
    TOKENS: "New token {0}, counted from 0, is {1}",
}


def models(target, draft):
    """Return two models from tables of probabilities, with a row for each sum of the tokens so far."""
    return [
        Given(
            recalling,
            table.clamp(min=1e-17).log(),
            says=f"after each text, in a different order: {in_words(table[0])}",
        )
        for table in (target, draft)
    ]


def in_words(probabilities):
    return ", ".join(f"{each:.2g}" for each in sorted(probabilities.tolist(), reverse=True))


def sure_case(seed, k, wrong=None):
    """Return two models that are certain of the same token each time, except for the guess number `wrong`, if given."""
    favourites = [(3 * state + 1) % 7 for state in range(7)]  # two rings of three states each, and state 2
    start = (0, 1, 5, 3, 6)[int(torch.randint(5, (1,), generator=generator(seed)))]
    target = torch.eye(7)[favourites]
    if wrong is not None:
        state = start
        for _ in range(wrong):
            state = (4 * state + 1) % 7
        favourites[state] = (favourites[state] + 1) % 7
    return Case(
        *models(target, torch.eye(7)[favourites]), torch.tensor([[3, 1, start - 4]]) % 7, k, generator(seed), FEW
    )


def drawn_case(seed, k, p, q):
    """Return models with the same probabilities after every text, each time for the tokens in another order."""
    rng = generator(seed)
    orders = torch.rand(len(p), len(p), generator=rng).argsort(dim=1)
    ids = torch.randint(len(p), (1, 3), generator=rng)
    return Case(*models(torch.tensor(p)[orders], torch.tensor(q)[orders]), ids, k, rng, RUNS)


@stage
def sure_and_agreed(seed):
    "Both models are certain of the same tokens: all guesses are kept, and the target adds one token."
    return [sure_case(seed, 1), sure_case(seed + 1, 3)]


@stage
def sure_and_not_agreed(seed):
    "Both models are certain, but not always of the same token: where they differ, use the target's token."
    return [sure_case(seed + wrong, k, wrong) for k, wrong in ((1, 0), (1, 1), (3, 0), (3, 1), (3, 2))]


@stage
def kept_or_not(seed):
    "A guess is kept with probability min(1, p / q), with a separate random number for each guess."
    half = drawn_case(seed, 1, [1.0, 0.0, 0.0], [0.5, 0.5, 0.0])
    return [half, drawn_case(seed, 3, [0.15] * 4 + [0.25, 0.15], [0.25] * 4 + [0.0, 0.0])]


@stage
def drawn_anew(seed):
    "Where a guess is not kept, a token is sampled from max(0, p − q)."
    return [drawn_case(seed, 1, [0.45, 0.1, 0.25, 0.2], [0.9, 0.1, 0.0, 0.0])]
