"""Chapter 1's claims: how training changes the rows of the table, which rows it reaches, and how large they should
be."""

import statistics
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.letters import train_on_letters
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import embeddings_by_step, load_pretrained
from course_lib.tinytown import ANIMAL_SOUNDS, ROLES, Tinytown, WordTokenizer, encode_stories

SEEDS = (0, 1, 2)
RATES = (0.003, 0.01, 0.03)


def mean_cosine(table: Tensor, rows: list[int], others: list[int] | None = None) -> float:
    """Return the mean cosine of all pairs of these rows of a table (V, d); with `others`, of all pairs with one of
    each."""
    unit, n = F.normalize(table.double(), dim=-1), len(rows)
    if others is not None:
        return (unit[rows] @ unit[others].T).mean().item()
    return ((unit[rows] @ unit[rows].T).sum().item() - n) / (n * (n - 1))  # without each row's cosine with itself


def animals_and_strangers() -> tuple[list[int], list[int]]:
    """Return the ids of Tinytown's animals, which behave alike, and the ids of all other words and punctuation
    marks."""
    tokenizer = WordTokenizer()
    animals = [tokenizer.id(word) for word in ANIMAL_SOUNDS]
    marks = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)  # no text contains them
    return animals, [i for i in range(len(tokenizer)) if i not in (*animals, *marks)]


# ------------------------------------------------------------------------------------------------ similarity
@cache
def _text() -> Tensor:
    return encode_stories(Tinytown(seed=1).sample(500), WordTokenizer())


def two_tables(rate: float, seed: int, std: float, steps: int) -> tuple[float, Tensor]:
    """Train the smallest language model, a table of tokens times a table of next tokens. Return (loss, first table).

    std: standard deviation of the first table (V, 32) before training. The loss is the mean over the last fifth of the
    steps.
    """
    generator = torch.Generator().manual_seed(seed)
    size = (len(WordTokenizer()), 32)
    table, following = (
        nn.Parameter(each * torch.randn(size, generator=generator, dtype=torch.float64)) for each in (std, 0.02)
    )
    optimizer = torch.optim.AdamW([table, following], lr=rate)
    ids, losses = _text(), []
    for _ in range(steps):
        positions = torch.randint(len(ids) - 1, (512,), generator=generator)
        loss = F.cross_entropy(table[ids[positions]] @ following.T, ids[positions + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return statistics.fmean(torch.stack(losses[-max(1, steps // 5) :]).tolist()), table.detach()


SIMILAR = 0.6  # rows with at least this mean cosine count as similar


def nearness_verdict(small: list[float], large: list[float], longer: list[float]) -> str:
    """Compare the mean cosine of two animals with 0.6, after training from rows of 0.02 and from rows of 1.

    confirmed: the mean cosine of two animals is above 0.6 for every seed, with either initialization
    depends: the mean cosine is above 0.6 for every seed with only one initialization, or with the larger one only after
      longer training at a higher rate
    refuted: with neither initialization is the mean cosine above 0.6 for every seed, even after longer training
    """
    near = [min(values) > SIMILAR for values in (small, large)]
    return "confirmed" if all(near) else "depends" if any(near) or min(longer) > SIMILAR else "refuted"


@experiment(
    "embeddings.similar_words",
    claim="similar words have a similar encoding",
    source=Source(
        "TensorFlow",
        "Word embeddings (guide)",
        "https://www.tensorflow.org/text/guide/word_embeddings",
        place="section “Word embeddings”",
        quote="Word embeddings give us a way to use an efficient, dense representation in which similar words have a "
        "similar encoding. Importantly, we do not have to specify this encoding by hand.",
    ),
    control="the same stories, batches and number of steps from initial rows of 0.02 and of 1, each at its own best "
    "rate; and the cosine of an animal and any other word",
    verdict=nearness_verdict,
    seeds=SEEDS,
)
def similar_words(size: Size) -> Measurement:
    """Measure the mean cosine of Tinytown's animals, which behave alike, after a small and after a large
    initialization."""
    animals, strangers = animals_and_strangers()
    steps = size.steps(400)
    near, apart, losses, rates = {}, {}, {}, {}
    for std in (0.02, 1.0):
        best = at_best_rate(partial(two_tables, std=std, steps=steps), RATES, SEEDS)
        near[std] = [mean_cosine(table, animals) for _, table in best.results]
        apart[std] = statistics.fmean(mean_cosine(table, animals, strangers) for _, table in best.results)
        losses[std], rates[std] = best.mean, best.rate
    late_losses, late_tables = zip(*(two_tables(RATES[-1], seed, 1.0, 4 * steps) for seed in SEEDS))
    longer = [mean_cosine(table, animals) for table in late_tables]
    late_apart = statistics.fmean(mean_cosine(table, animals, strangers) for table in late_tables)
    late_loss = statistics.fmean(late_losses)
    small, large, late = map(statistics.fmean, (near[0.02], near[1.0], longer))
    return Measurement(
        measured=f"after {steps:,} steps, two animals have a mean cosine of {small:.1f} if the rows begin small, and "
        f"of {large:.1f} if they begin large",
        rows=(
            ("initial standard deviation", "cosine of two animals", "animal and other word", "loss in nats"),
            *(
                (f"{std:g} ({n:,} steps, rate {rate:g})", *(f"{number:.1f}" for number in numbers))
                for std, n, rate, *numbers in (
                    (0.02, steps, rates[0.02], small, apart[0.02], losses[0.02]),
                    (1.0, steps, rates[1.0], large, apart[1.0], losses[1.0]),
                    (1.0, 4 * steps, RATES[-1], late, late_apart, late_loss),
                )
            ),
        ),
        values=near[1.0],
        figures={"small": near[0.02], "large": near[1.0], "longer": longer},
        because="It depends on the initialization and on how far training goes. If the rows begin large, the "
        "animals take longer to come together, because many small steps have to overwrite the random numbers.",
    )


def parallelograms() -> list[tuple[str, str, str, str]]:
    """Return groups of four roles (a, b, c, d) in which a differs from b as d differs from c: in gender, age or
    royalty."""
    found = []
    for a in ROLES:
        for b in ROLES:
            for c in ROLES:
                corner = tuple(z if x == y else x if y == z else None for x, y, z in zip(ROLES[a], ROLES[b], ROLES[c]))
                d = next((role for role, traits in ROLES.items() if traits == corner), None)
                if d not in (a, b, c, None):
                    found.append((a, b, c, d))
    return found


def counted_table(seed: int, reach: int = 4, width: int = 64) -> Tensor:
    """Make a table (V, width) without training: count which words occur within `reach` words of each other, and
    compress.

    The counts become positive pointwise mutual information: the log of how much more often than by chance two words
    occur together. A singular value decomposition then keeps the `width` strongest directions.
    """
    tokenizer = WordTokenizer()
    ids, V = encode_stories(Tinytown(seed=seed).sample(2000), tokenizer), len(tokenizer)
    counts = torch.zeros(V * V, dtype=torch.float64)
    for k in range(1, reach + 1):
        counts += torch.bincount(ids[:-k] * V + ids[k:], minlength=V * V)
    together = (counts.view(V, V) + counts.view(V, V).T) / (2 * counts.sum())
    single = together.sum(dim=1, keepdim=True)
    information = (together / (single @ single.T)).nan_to_num().clamp(min=1).log()
    left, strength, _ = torch.linalg.svd(information)
    return left[:, :width] * strength[:width].sqrt()


def first_places(table: Tensor) -> dict[str, float]:
    """Return the fraction of the parallelograms whose fourth corner is the best match, for three ways of searching."""
    tokenizer, table = WordTokenizer(), F.normalize(table, dim=-1)
    right: dict[str, list[bool]] = {"all rows": [], "inputs left out": [], "no sum": []}
    for words in parallelograms():
        a, b, c, d = (tokenizer.id(word) for word in words)
        summed, single = table @ (table[a] - table[b] + table[c]), table @ table[a]
        right["all rows"].append(int(summed.argmax()) == d)
        summed[[a, b, c]] = single[[a, b, c]] = -torch.inf
        right["inputs left out"].append(int(summed.argmax()) == d)
        right["no sum"].append(int(single.argmax()) == d)
    return {name: statistics.fmean(hits) for name, hits in right.items()}


def tens(fraction: float) -> str:
    """Return a fraction in percent, rounded to tens, so that a tie in a few analogies does not change it."""
    return f"{round(fraction, 1):.0%}"


def analogies_verdict(trained: float, counted: list[float]) -> str:
    """Count the analogies whose fourth word is the nearest of all rows of the table.

    confirmed: over 90% of the analogies are solved, in the trained table and in every table of counts
    depends: over 90% of the analogies are solved, in only one of the two kinds of table
    refuted: 90% or fewer of the analogies are solved, in both kinds of table
    """
    solved = [trained > 0.9, min(counted) > 0.9]
    return "confirmed" if all(solved) else "depends" if any(solved) else "refuted"


@experiment(
    "embeddings.analogies",
    claim="each relationship is characterized by a relation-specific vector offset",
    source=Source(
        "Mikolov et al. 2013",
        "Linguistic Regularities in Continuous Space Word Representations",
        "https://aclanthology.org/N13-1090/",
        place="abstract",
        quote="We find that these representations are surprisingly good at capturing syntactic and semantic "
        "regularities in language, and that each relationship is characterized by a relation-specific vector offset.",
    ),
    control="the same search with the three words of the sum left out, as is usual; the word nearest to the first, "
    "without the sum; and tables of counts from three samples of stories, which are not trained",
    verdict=analogies_verdict,
    seeds=SEEDS,
)
def analogies() -> Measurement:
    """Count the parallelograms of Tinytown's people that close, in the shipped table and in tables of counts."""
    tables = embeddings_by_step()
    trained = first_places(tables[max(tables)])
    each = [first_places(counted_table(seed)) for seed in SEEDS]
    counted = {name: statistics.fmean(shares[name] for shares in each) for name in trained}
    honest = [shares["all rows"] for shares in each]
    return Measurement(
        measured=f"of {len(parallelograms())} analogies, the trained table solves {tens(trained['all rows'])} and "
        f"tables of counts solve {tens(counted['all rows'])}, if no row is left out of the search",
        rows=(
            ("fourth corner comes first", "trained table", "tables of counts"),
            *(
                (search, tens(trained[name]), tens(counted[name]))
                for search, name in (
                    ("among all rows", "all rows"),
                    ("inputs left out", "inputs left out"),
                    ("no sum: nearest to the first word", "no sum"),
                )
            ),
        ),
        values=honest,
        figures={"trained": trained["all rows"], "counted": honest},
        because="It depends on the table, even in Tinytown, where gender, age and royalty vary independently of each "
        "other. In tables of counts, most of the success comes from leaving out the three words of the sum.",
    )


# -------------------------------------------------------------------------------------------- gradients and sizes
def gradients_of_both_ends(model: DecoderOnly, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the look-up and what the scores contribute to the gradient of a tied table, each (V, d_model)."""
    config = TransformerConfig(**{**vars(model.config), "tie_weights": False})
    apart = DecoderOnly(config)
    apart.load_state_dict(model.state_dict(), strict=False)
    read, score = apart.token_embedding.weight, apart.output.weight
    score.data = model.token_embedding.weight.detach().clone()
    _, loss = apart(ids[:, :-1], targets=ids[:, 1:])
    from_look_up, from_scores = torch.autograd.grad(loss, [read, score])
    return from_look_up, from_scores


def tied_verdict(like_input: list[float], like_output: list[float]) -> str:
    """Compare the gradient of a tied table with its part from the look-up and its part from the output end, by cosine.

    confirmed: the tied gradient is closer to its part from the output end in every case
    refuted: the tied gradient is closer to its part from the look-up in every case
    depends: the tied gradient is closer to one part in some cases, and to the other in the rest
    """
    closer = [output > input for input, output in zip(like_input, like_output)]
    return "confirmed" if all(closer) else "depends" if any(closer) else "refuted"


@experiment(
    "embeddings.tied_table",
    claim="the tied embedding evolves in a more similar way to the output embedding than to the input embedding in the "
    "untied model",
    source=Source(
        "Press & Wolf 2017",
        "Using the Output Embedding to Improve Language Models",
        "https://arxiv.org/abs/1608.05859",
        place="abstract",
        quote="We analyze the resulting update rules and show that the tied embedding evolves in a more similar way to "
        "the output embedding than to the input embedding in the untied model.",
    ),
    control="the same weights and the same story with one table at both ends and with two tables; small untrained "
    "models, and the trained model of the course",
    verdict=tied_verdict,
    seeds=SEEDS,
)
def tied_table() -> Measurement:
    """Compare a tied table's gradient from one story with the two parts that add up to it."""
    tokenizer = WordTokenizer()
    trained, _ = load_pretrained("tinytown")
    config = TransformerConfig(len(tokenizer), d_model=16, n_heads=2, n_layers=1, max_seq_len=96, tie_weights=True)
    like_input, like_output = [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        ids = torch.tensor([tokenizer.encode(next(Tinytown(seed=20_000 + seed).stories()))])
        for model in (DecoderOnly(config), trained):
            from_look_up, from_scores = gradients_of_both_ends(model, ids)
            tied = (from_look_up + from_scores).flatten()
            like_input.append(F.cosine_similarity(tied, from_look_up.flatten(), dim=0).item())
            like_output.append(F.cosine_similarity(tied, from_scores.flatten(), dim=0).item())
    untrained, after = (
        [statistics.fmean(values[start::2]) for values in (like_input, like_output)] for start in (0, 1)
    )
    return Measurement(
        measured=f"in the trained model, the tied table’s gradient has a cosine of {after[1]:.1f} with its part from "
        f"the output end and of {after[0]:.1f} with its part from the look-up",
        rows=(
            ("part of the tied gradient", "cosine in small untrained models", "in the trained model"),
            ("from the output end", f"{untrained[1]:.1f}", f"{after[1]:.1f}"),
            ("from the look-up", f"{untrained[0]:.1f}", f"{after[0]:.1f}"),
        ),
        values=like_output,
        figures={"like_input": like_input, "like_output": like_output},
        because="Untied, each table would get one of the two parts of the tied gradient. In both kinds of model, their "
        "sum points more in the direction of the part from the output end, the larger one.",
    )


def padding_verdict(zero: dict[str, float], filled: dict[str, float]) -> str:
    """Measure how far a padding row moves in two steps of SGD and of AdamW: one of zeros, and one of ones.

    confirmed: neither moves, under either optimizer
    depends: the row of zeros stays under both optimizers, the row of ones moves under one of them
    refuted: the row of zeros moves
    """
    if any(zero.values()):
        return "refuted"
    return "depends" if any(filled.values()) else "confirmed"


@experiment(
    "embeddings.padding_row",
    claim="the embedding vector at padding_idx is not updated during training",
    source=Source(
        "PyTorch",
        "torch.nn.Embedding",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
        place="documentation of padding_idx",
        quote="If specified, the entries at padding_idx do not contribute to the gradient; therefore, the embedding "
        "vector at padding_idx is not updated during training, i.e. it remains as a fixed “pad”. For a newly "
        "constructed Embedding, the embedding vector at padding_idx will default to all zeros, but can be updated to "
        "another value to be used as the padding vector.",
    ),
    control="the same two batches with plain SGD and with AdamW (weight decay 0.1); a padding row of zeros and one of "
    "ones",
    verdict=padding_verdict,
)
def padding_row() -> Measurement:
    """Measure how far a padding row moves in two steps, with two optimizers and two initial values."""
    moved: dict[float, dict[str, float]] = {0.0: {}, 1.0: {}}
    for value, by_optimizer in moved.items():
        for name in ("SGD", "AdamW"):
            torch.manual_seed(0)
            table = nn.Embedding(6, 8, padding_idx=0)
            nn.init.constant_(table.weight[0].detach(), value)
            optimizer = (
                torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=0.1)
                if name == "AdamW"
                else torch.optim.SGD(table.parameters(), lr=0.1)
            )
            for batch in ([[0, 1]], [[1, 0]]):
                optimizer.zero_grad()
                table(torch.tensor(batch)).sum().backward()
                optimizer.step()
            by_optimizer[name] = (table.weight[0] - value).abs().max().item()
    zero, filled = moved.values()
    return Measurement(
        measured=f"in two steps of AdamW, a padding row of ones moves by {filled['AdamW']:.2f} and a row of zeros by "
        f"{zero['AdamW']:.2f}",
        rows=(
            ("moved in two steps of", "row of zeros", "row of ones"),
            *((name, f"{zero[name]:.2f}", f"{filled[name]:.2f}") for name in ("SGD", "AdamW")),
        ),
        values=(*zero.values(), *filled.values()),
        figures={"zero": zero, "filled": filled},
        because="It depends on the row’s value and on the optimizer. The row gets no gradient, but AdamW’s weight "
        "decay needs none: it pulls every row towards zero, where the default row already is.",
    )


POSITION = 0.5**0.5  # root mean square of a sinusoidal position


def words_of_size(ratio: float) -> Callable[[DecoderOnly], None]:
    """Return a function that sets the initial size of a model's words, relative to a sinusoidal position."""

    def prepare(model: DecoderOnly) -> None:
        tokens = model.token_embedding
        nn.init.normal_(tokens.weight, std=ratio * POSITION / tokens.factor)

    return prepare


DROWNED = 0.1  # nats per letter: the least cost that counts as harm


def factor_verdict(costs: list[float]) -> str:
    """Measure how much higher the loss ends without the factor, in nats per letter, each at its best rate.

    confirmed: without the factor the loss is higher by more than 0.1 for every seed
    depends: without the factor the loss is higher by more than 0.1 on average, but not for every seed
    refuted: without the factor the loss is higher by no more than 0.1 on average
    """
    if statistics.fmean(costs) <= DROWNED:
        return "refuted"
    return "confirmed" if min(costs) > DROWNED else "depends"


@experiment(
    "embeddings.times_root_d",
    claim="Without the factor √d_model the meaning of an embedding is lost when its position is added.",
    source=Source(
        "Lynn-Evans 2018",
        "How to code the Transformer in PyTorch",
        "https://towardsdatascience.com/how-to-code-the-transformer-in-pytorch-24db27c8f9ec",
        place="section on the positional encoder",
        quote="The reason we increase the embedding values before addition is to make the positional encoding "
        "relatively smaller. This means the original meaning in the embedding vector won’t be lost when we add them "
        "together.",
    ),
    control="the same model, letters, steps and seeds, each at its own best rate. In one run, tokens begin as large as "
    "at d_model = 768 with the factor; in the other, as large as without it. Rows have a standard deviation of 0.02",
    verdict=factor_verdict,
    seeds=SEEDS,
)
def times_root_d(size: Size) -> Measurement:
    """Measure how much loss a small model with sinusoidal positions gains if its tokens start much smaller than
    these."""
    std, root = 0.02, 768**0.5
    ratios = {"without": std / POSITION, "with": std * root / POSITION}

    def train(rate: float, seed: int, ratio: float) -> tuple[float, float]:
        model, loss = train_on_letters(
            seed,
            size.steps(100),
            d_model=size.width(32),
            peak=rate,
            positions="sinusoidal",
            tie_weights=False,
            prepare=words_of_size(ratio),
        )
        words = model.token_embedding
        return loss, words.weight.std().item() * words.factor / POSITION

    best = {name: at_best_rate(partial(train, ratio=ratio), RATES, SEEDS) for name, ratio in ratios.items()}
    costs = [without - with_it for without, with_it in zip(best["without"].losses, best["with"].losses)]
    grown = statistics.fmean(end for _, end in best["without"].results)
    cost = round(statistics.fmean(costs), 2) + 0
    end = f"{abs(cost):.2f} nats per letter {'lower' if cost < 0 else 'higher'}"
    rates = " and ".join(f"{rate}" for rate in sorted({each.rate for each in best.values()}))

    def three_digits(without: float, with_it: float) -> tuple[str, ...]:
        return tuple(f"{round(number, 3) + 0:.3f}" for number in (without, with_it, without - with_it))

    return Measurement(
        measured=f"without the factor, tokens grow in training from {ratios['without']:.2f} to {grown:.0f} times the "
        f"size of their positions, and the final loss is {end}",
        rows=(
            ("learning rate", "loss without the factor", "with the factor", "difference"),
            (f"{rates}, the best for each", *three_digits(*(best[name].mean for name in ratios))),
            (f"{RATES[0]} for both (one seed)", *three_digits(*(best[name].tried[RATES[0]] for name in ratios))),
        ),
        values=costs,
        figures={"costs": costs},
        because="Nothing is lost: training enlarges the small rows. The missing factor costs little, unless the "
        "learning rate is too low.",
    )
