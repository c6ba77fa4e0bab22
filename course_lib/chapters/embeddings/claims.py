"""Chapter 1's claims: what training does to the rows of the table, and what it leaves alone."""

import statistics
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.registry import Finding, experiment
from course_lib.config import TransformerConfig
from course_lib.embeddings import TokenEmbedding
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import embeddings_by_step
from course_lib.tinytown import ANIMAL_SOUNDS, ROLES, Tinytown, WordTokenizer, encode_stories

SEEDS = (0, 1, 2)
STEPS = 300


def mean_cosine(table: Tensor, rows: list[int]) -> float:
    """Mean cosine of all pairs among these rows of a table (V, d)."""
    unit, n = F.normalize(table[rows].double(), dim=-1), len(rows)
    return ((unit @ unit.T).sum().item() - n) / (n * (n - 1))  # without each row's cosine with itself


# ------------------------------------------------------------------------------------------------ nearness
@cache
def _text() -> Tensor:
    return encode_stories(Tinytown(seed=1).sample(500), WordTokenizer())


def two_tables(std: float, seed: int, steps: int = 0) -> tuple[Tensor, float]:
    """The smallest language model: what a token is times what tends to follow. (the first table (V, 32), final loss).

    std: spread of the first table at the start. The loss is the mean over the last fifth of the steps.
    """
    generator = torch.Generator().manual_seed(seed)
    size = (len(WordTokenizer()), 32)
    table, following = (
        nn.Parameter(spread * torch.randn(size, generator=generator, dtype=torch.float64)) for spread in (std, 0.02)
    )
    optimizer = torch.optim.AdamW([table, following], lr=1e-2)
    ids, losses = _text(), []
    for _ in range(steps or STEPS):
        places = torch.randint(len(ids) - 1, (512,), generator=generator)
        loss = F.cross_entropy(table[ids[places]] @ following.T, ids[places + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return table.detach(), statistics.fmean(losses[-len(losses) // 5 :])


@experiment("embeddings.similar_words", claim="Words used alike end up with similar vectors.")
def similar_words() -> Finding:
    """Mean cosine of Tinytown's animals, which do the same things, after a start of 0.02 and of 1."""
    animals = [WordTokenizer().id(word) for word in ANIMAL_SOUNDS]
    near, losses = {}, {}
    for std in (0.02, 1.0):
        trained = [two_tables(std, seed) for seed in SEEDS]
        near[std] = [mean_cosine(table, animals) for table, _ in trained]
        losses[std] = statistics.fmean(loss for _, loss in trained)
    small, large = (statistics.fmean(values) for values in near.values())
    return Finding(
        measured=f"mean cosine of two animals {small:.1f} from a start of 0.02, {large:.1f} from a start of 1; "
        f"loss {losses[0.02]:.1f} and {losses[1.0]:.1f}",
        values=tuple(near[0.02]),
        verdict="depends" if small - large > 0.2 else "confirmed" if large > 0.6 else "refuted",
        because="Prediction allows a common direction, and a small start lets it appear; a large random start stays, "
        "and the rest of the model learns to read it.",
    )


@experiment("embeddings.longer_is_nearer", claim="The longer the training, the nearer the similar words.")
def longer_is_nearer() -> Finding:
    """Mean cosine of Tinytown's animals in the shipped model's table, over the saved training steps."""
    animals = [WordTokenizer().id(word) for word in ANIMAL_SOUNDS]
    cosines = {step: mean_cosine(table, animals) for step, table in embeddings_by_step().items()}
    last, best = max(cosines), max(cosines, key=cosines.__getitem__)
    return Finding(
        measured=f"mean cosine of two animals {cosines[best]:.1f} at step {best}, {cosines[last]:.1f} at step {last}",
        values=(cosines[best], cosines[last]),
        verdict="refuted" if cosines[best] - cosines[last] > 0.1 else "confirmed",
        because="First all that stands in the same places is pushed the same way; later the differences pay: only the "
        "cat says meow.",
    )


def parallelograms() -> list[tuple[str, str, str, str]]:
    """(a, b, c, d): four roles such that a differs from b, in gender, age or rank, as d differs from c."""
    found = []
    for a in ROLES:
        for b in ROLES:
            for c in ROLES:
                corner = tuple(z if x == y else x if y == z else None for x, y, z in zip(ROLES[a], ROLES[b], ROLES[c]))
                d = next((role for role, traits in ROLES.items() if traits == corner), None)
                if d not in (a, b, c, None):
                    found.append((a, b, c, d))
    return found


@experiment("embeddings.analogies", claim="king − man + woman ≈ queen: relations are directions in the table.")
def analogies() -> Finding:
    """Share of Tinytown's parallelograms whose fourth corner comes first: inputs left out, all rows, no sum."""
    tokenizer = WordTokenizer()
    tables = embeddings_by_step()
    table = F.normalize(tables[max(tables)], dim=-1)
    right: dict[str, list[bool]] = {"inputs left out": [], "all rows": [], "nearest to king alone": []}
    for words in parallelograms():
        a, b, c, d = (tokenizer.id(word) for word in words)
        summed, alone = table @ (table[a] - table[b] + table[c]), table @ table[a]
        right["all rows"].append(int(summed.argmax()) == d)
        summed[[a, b, c]] = alone[[a, b, c]] = -torch.inf
        right["inputs left out"].append(int(summed.argmax()) == d)
        right["nearest to king alone"].append(int(alone.argmax()) == d)
    shares = {name: statistics.fmean(hits) for name, hits in right.items()}
    honest, control = shares["all rows"], shares["nearest to king alone"]
    return Finding(
        measured=f"of {len(right['all rows'])} analogies first: "
        + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()),
        values=tuple(shares.values()),
        verdict="confirmed" if honest > 0.9 and control < 0.5 else "depends" if honest > control + 0.1 else "refuted",
        because="Tinytown shows gender, age and rank one apart from the other, and the table keeps them apart; ask "
        "every report what is left when nothing is left out of the search.",
    )


# -------------------------------------------------------------------------------------------- gradients and sizes
@experiment("embeddings.own_rows", claim="A batch trains only the rows of the tokens that it holds.")
def own_rows() -> Finding:
    """Share of the rows that get a gradient from one story, with an output table of its own and tied."""
    tokenizer = WordTokenizer()
    reached = {}
    for tied in (False, True):
        shares = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = DecoderOnly(
                TransformerConfig(len(tokenizer), d_model=16, n_heads=2, n_layers=1, max_seq_len=96, tie_weights=tied)
            )
            ids = torch.tensor([tokenizer.encode(next(Tinytown(seed).stories()))])
            _, loss = model(ids[:, :-1], targets=ids[:, 1:])
            (gradient,) = torch.autograd.grad(loss, model.token_embedding.weight)
            rows = gradient.abs().amax(dim=-1) > 0  # (V,)
            shares.append(rows.double().mean().item())
        reached[tied] = shares
    apart, shared = (statistics.fmean(reached[tied]) for tied in (False, True))
    return Finding(
        measured=f"one story reaches {100 * apart:.0f} % of the rows with tables apart, {100 * shared:.0f} % tied",
        values=tuple(reached[False]),
        verdict="depends" if apart < 0.5 < shared else "confirmed" if shared < 0.5 else "refuted",
        because="A look-up copies its own rows; tied, the same rows also make the scores, and every score takes part "
        "in the softmax.",
    )


@experiment("embeddings.standing_still", claim="A row that gets no gradient stays as it is.")
def standing_still() -> Finding:
    """How far a row moves in a step that gives it no gradient: read one step before, or never; AdamW and plain SGD."""
    moved: dict[str, list[tuple[float, float]]] = {"AdamW": [], "SGD": []}
    for seed in SEEDS:
        for name in moved:
            torch.manual_seed(seed)
            table = TokenEmbedding(6, 8)
            optimizer = (
                torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=0.1)
                if name == "AdamW"
                else torch.optim.SGD(table.parameters(), lr=0.1)
            )
            for batch in ([[0, 1]], [[1, 2]]):
                before = table.weight.detach().clone()
                optimizer.zero_grad()
                table(torch.tensor(batch)).sum().backward()
                optimizer.step()
            step = (table.weight - before).abs().amax(dim=-1)  # (6,): row 0 was read before, row 5 never
            moved[name].append((step[0].item(), step[5].item()))
    once, never = (statistics.fmean(pair[i] for pair in moved["AdamW"]) for i in (0, 1))
    still = all(size == 0 for pair in moved["SGD"] for size in pair)
    adam = all(size > 0 for pair in moved["AdamW"] for size in pair)
    return Finding(
        measured=f"AdamW moves a row read one step before by {once:.2f}, one never read by {never:.4f}; "
        "plain SGD moves neither",
        values=tuple(pair[0] for pair in moved["AdamW"]),
        verdict="depends" if still and adam else "confirmed" if still else "refuted",
        because="AdamW remembers earlier gradients and pulls every row towards zero; plain descent does neither.",
    )


@experiment("embeddings.times_root_d", claim="Rows are multiplied by √d_model for stability.")
def times_root_d() -> Finding:
    """Size of scaled rows, relative to a sinusoidal position, whose root mean square is √½, for three starts."""
    d_model, ratios = 768, {}
    for name, std in (("N(0, 1)", 1.0), ("0.02", 0.02), ("1/√d_model", d_model**-0.5)):
        torch.manual_seed(0)
        rows = TokenEmbedding(2000, d_model, scale=True)
        rows.weight.data = std * torch.randn(2000, d_model)
        ratios[name] = rows(torch.arange(2000)).std().item() / 0.5**0.5
    balanced = [1 / 3 < ratio < 3 for ratio in ratios.values()]
    return Finding(
        measured="scaled rows are "
        + ", ".join(f"{ratio:.1f} (start {name})" for name, ratio in ratios.items())
        + " times as large as a position",
        values=tuple(ratios.values()),
        verdict="confirmed" if all(balanced) else "depends" if any(balanced) else "refuted",
        because="Vaswani et al. 2017 give no reason. What the factor moves is the balance with the position: even for "
        "rows that start small; with the default start of nn.Embedding it drowns the position.",
    )
