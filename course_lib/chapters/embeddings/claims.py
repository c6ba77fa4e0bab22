"""Chapter 1's claims: what training does to the rows of the table, and what it leaves alone."""

import statistics
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.letters import train_on_letters
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.config import TransformerConfig
from course_lib.embeddings import TokenEmbedding
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import embeddings_by_step
from course_lib.tinytown import ANIMAL_SOUNDS, ROLES, Tinytown, WordTokenizer, encode_stories

SEEDS = (0, 1, 2)
STEPS = 300


def mean_cosine(table: Tensor, rows: list[int], others: list[int] | None = None) -> float:
    """Mean cosine of all pairs among these rows of a table (V, d); with `others`, of each row with each of those."""
    unit, n = F.normalize(table.double(), dim=-1), len(rows)
    if others is not None:
        return (unit[rows] @ unit[others].T).mean().item()
    return ((unit[rows] @ unit[rows].T).sum().item() - n) / (n * (n - 1))  # without each row's cosine with itself


def animals_and_strangers() -> tuple[list[int], list[int]]:
    """Ids of Tinytown's animals, which do the same things, and of all other words and signs."""
    tokenizer = WordTokenizer()
    animals = [tokenizer.id(word) for word in ANIMAL_SOUNDS]
    marks = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)  # no text holds them
    return animals, [i for i in range(len(tokenizer)) if i not in (*animals, *marks)]


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


SIMILAR = 0.6  # the mean cosine from which rows count as similar


@experiment(
    "embeddings.similar_words",
    claim="Words used alike end up with similar vectors.",
    source=Source("TensorFlow", "Word embeddings (guide)", "https://www.tensorflow.org/text/guide/word_embeddings"),
    control="the same stories, steps and draws from a table that starts with a spread of 0.02 and of 1; beside two "
    "animals, an animal and any other word",
    threshold=f"confirmed if two animals have a mean cosine above {SIMILAR} from either start, depends if from one "
    "start alone, else refuted",
    seeds=SEEDS,
)
def similar_words() -> Finding:
    """Mean cosine of Tinytown's animals, which do the same things, after a start of 0.02 and of 1."""
    animals, strangers = animals_and_strangers()
    near, apart, losses = {}, {}, {}
    for std in (0.02, 1.0):
        trained = [two_tables(std, seed) for seed in SEEDS]
        near[std] = [mean_cosine(table, animals) for table, _ in trained]
        apart[std] = statistics.fmean(mean_cosine(table, animals, strangers) for table, _ in trained)
        losses[std] = statistics.fmean(loss for _, loss in trained)
    similar = [min(values) > SIMILAR for values in near.values()]
    small, large = (statistics.fmean(values) for values in near.values())
    return Finding(
        measured=f"mean cosine of two animals {small:.1f} from a start of 0.02, {large:.1f} from a start of 1; of an "
        f"animal and another word {apart[0.02]:.1f} and {apart[1.0]:.1f}; loss {losses[0.02]:.1f} and "
        f"{losses[1.0]:.1f}",
        values=tuple(near[0.02]),
        verdict="confirmed" if all(similar) else "depends" if any(similar) else "refuted",
        because="Prediction allows a common direction, and a small start lets it appear. A large random start stays: "
        "animals are still nearer to each other than to other words, but far from alike, and the model predicts as "
        "well.",
    )


@experiment(
    "embeddings.longer_is_nearer",
    claim="Training gradually squeezes related words into the same region.",
    source=Source(
        "The Neural Base",
        "Why similar words have similar vectors",
        "https://theneuralbase.com/transformer-architecture/learn/beginner/why-similar-words-have-similar-vectors/",
    ),
    control="the same table at earlier and at later steps, in two models: the one that ships with the course, and two "
    "tables without blocks; beside two animals, an animal and any other word",
    threshold="refuted if in both models two animals are nearer by more than 0.05 at an earlier step than at the last, "
    "depends if in one, else confirmed",
    seeds=SEEDS,
)
def longer_is_nearer() -> Finding:
    """Mean cosine of Tinytown's animals over the saved steps of the shipped model, and in two tables that go on."""
    animals, strangers = animals_and_strangers()
    tables = embeddings_by_step()
    cosines = {step: mean_cosine(table, animals) for step, table in tables.items()}
    last, best = max(cosines), max(cosines, key=cosines.__getitem__)
    apart = [mean_cosine(tables[step], animals, strangers) for step in (best, last)]
    early, late = (
        [mean_cosine(two_tables(0.02, seed, steps)[0], animals) for seed in SEEDS] for steps in (STEPS, 3 * STEPS)
    )
    fallen = [cosines[best] - cosines[last] > 0.05, min(a - b for a, b in zip(early, late)) > 0.05]
    return Finding(
        measured=f"mean cosine of two animals {cosines[best]:.1f} at step {best}, {cosines[last]:.1f} at step {last} "
        f"(of an animal and another word {apart[0]:.1f} and {apart[1]:.1f}); in two tables alone "
        f"{statistics.fmean(early):.1f} after {STEPS} steps, {statistics.fmean(late):.1f} after {3 * STEPS}",
        values=(cosines[best], cosines[last], *late),
        verdict="refuted" if all(fallen) else "depends" if any(fallen) else "confirmed",
        because="First all that stands in the same places is pushed the same way; then related words part again, while "
        "the loss still falls. A likely reason is that differences pay: only the cat says meow.",
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


@experiment(
    "embeddings.analogies",
    claim="king − man + woman ≈ queen: relations are directions in the table.",
    source=Source(
        "Mikolov et al. 2013",
        "Linguistic Regularities in Continuous Space Word Representations",
        "https://aclanthology.org/N13-1090/",
    ),
    control="the same search with nothing left out of it, and without the sum: the nearest to king alone",
    threshold="confirmed if over 90 % come first among all rows, and under 50 % without the sum; depends if with it "
    "over 10 in 100 more come first than without; else refuted",
)
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
        because="The right word is nearest to the sum even if the three words that went into it stay in the search; "
        "most reports leave them out. Tinytown varies gender, age and rank independently.",
    )


# -------------------------------------------------------------------------------------------- gradients and sizes
@experiment(
    "embeddings.own_rows",
    claim="A batch trains only the rows of the tokens that it holds.",
    source=Source(
        "Press & Wolf 2017",
        "Using the Output Embedding to Improve Language Models, § 3",
        "https://arxiv.org/abs/1608.05859",
    ),
    control="the same model and the same story, with an output table of its own and with tied tables",
    threshold="confirmed if under half of the rows get a gradient either way, depends if only with tables apart, else "
    "refuted",
    seeds=SEEDS,
)
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


@experiment(
    "embeddings.standing_still",
    claim="A row that gets no gradient is not updated.",
    source=Source(
        "PyTorch",
        "documentation of nn.Embedding, padding_idx",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
    ),
    control="the same batches with plain SGD; beside a row that was read one step before, one that was never read",
    threshold="confirmed if such rows stay to the last digit with SGD and with AdamW, depends if with SGD alone, else "
    "refuted",
    seeds=SEEDS,
)
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
        because="AdamW remembers earlier gradients and pulls every row towards zero; plain descent does neither. (A "
        "padding row of PyTorch stays because it starts at zero, where there is nothing to pull.)",
    )


POSITION = 0.5**0.5  # root mean square of a sinusoidal position


def words_of_size(ratio: float) -> Callable[[DecoderOnly], None]:
    """Let the words of a model start at this size, relative to a sinusoidal position."""

    def prepare(model: DecoderOnly) -> None:
        tokens = model.token_embedding
        nn.init.normal_(tokens.weight, std=ratio * POSITION / tokens.factor)

    return prepare


DROWNED = 0.05  # nats per letter: what it has to cost if the position drowns the word
RATES = (1e-3, 1e-2)


@experiment(
    "embeddings.times_root_d",
    claim="Rows are multiplied by √d_model so that the position does not drown the word.",
    source=Source(
        "Data Science Stack Exchange",
        "Transformer model: Why are word embeddings scaled before adding positional encodings?",
        "https://datascience.stackexchange.com/questions/87906/",
    ),
    control="the same model, letters, steps and seeds, with words of the size that rows of 0.02 have at d_model = 768 "
    f"with the factor, and of the size that they have without; at the rates {RATES[0]} and {RATES[1]}",
    threshold=f"confirmed if without the factor the loss ends over {DROWNED} nats per letter higher in every seed, at "
    "both rates, refuted if at none, else depends",
    seeds=SEEDS,
)
def times_root_d() -> Finding:
    """Sizes with the factor and without, from two starts; and what small words cost a small model with sinusoids."""
    d_model = 768
    starts = {"N(0, 1)": 1.0, "0.02": 0.02}
    ratios = {name: (std / POSITION, std * d_model**0.5 / POSITION) for name, std in starts.items()}
    costs: dict[float, list[float]] = {}
    grown: dict[float, float] = {}
    for rate in RATES:
        without, with_it = (
            [
                train_on_letters(
                    seed, 150, positions="sinusoidal", tie_weights=False, peak=rate, prepare=words_of_size(ratio)
                )
                for seed in SEEDS
            ]
            for ratio in ratios["0.02"]
        )
        costs[rate] = [a[1] - b[1] for a, b in zip(without, with_it)]
        tables = [model.token_embedding for model, _ in without]
        grown[rate] = statistics.fmean(table.weight.std().item() * table.factor / POSITION for table in tables)
    drowned = [min(cost) > DROWNED for cost in costs.values()]
    return Finding(
        measured="size of word ÷ position, without and with the factor: "
        + ", ".join(f"{a:.2g}, {b:.2g} (start {name})" for name, (a, b) in ratios.items())
        + "; nats per letter higher without it, from 0.02: "
        + ", ".join(
            f"{round(statistics.fmean(costs[rate]), 1) + 0:.1f} at rate {rate} (size then {grown[rate]:.1f})"
            for rate in RATES
        ),
        values=tuple(cost for rate in RATES for cost in costs[rate]),
        verdict="confirmed" if all(drowned) else "depends" if any(drowned) else "refuted",
        because="Small rows have to grow first, as fast as the learning rate lets them. From the default start of "
        "nn.Embedding the factor makes words that dwarf their positions. Vaswani et al. 2017 give no reason for it.",
    )
