"""Chapter 12's records: runs that take minutes, recorded in assets/training.json.

python -m course_lib.chapters.training.records scaling    trains the runs of one record again and prints both results
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib.chapters.training.claims import (
    OPTIMIZER_STEPS,
    PEAKS,
    ROW,
    ROWS,
    SEEDS,
    SHARE,
    grammar_loss,
    held_out_loss,
    muon_steps,
    optimized,
    small_model,
    story_batches,
    train_at_scale,
)
from course_lib.chapters.training.power_law import RECORD, SCALES, Run, recorded
from course_lib.claims.tinytown import HELD_OUT_SEED, PROBES
from course_lib.config import TransformerConfig
from course_lib.course.files import read_json, save_json
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.pretrained import load_text
from course_lib.tinytown import Batches, Tinytown, WordTokenizer
from course_lib.training import TrainingDiverged, learning_rate, train

Bar = Callable[[Iterable], Iterable]


# --------------------------------------------------------------------------------------------- the learning rate alone
RATES = (0.005, 0.01, 0.02, 0.04, 0.08)
SWEEP_STEPS, WARMUP = 300, 30
SHAPES = ("decayed", "decayed, no warm-up", "constant")


def swept(rate: float, shape: str, seed: int, on_step: Callable[[int, nn.Module], None] | None = None) -> float | None:
    """Return the held-out loss of a model of 32 features after SWEEP_STEPS at this peak rate; None if it diverged.

    shape: one of SHAPES. The rate is "decayed" along the cosine or "constant" to the end, after a warm-up unless the
    shape says there is none.
    on_step: called with each step and the model, as by `train`.
    """
    model, warmup = small_model(seed=seed), 0 if "no warm-up" in shape else WARMUP
    floor = rate if shape == "constant" else 0.0
    try:
        train(model, story_batches(ROWS, seed), SWEEP_STEPS, rate, warmup, floor, on_step=on_step, progress=False)
    except TrainingDiverged:
        return None
    return held_out_loss(model, 100)


def record_sweep(bar: Bar) -> Iterator[dict[str, Any]]:
    """Train at every rate with and without a warm-up, and two rates without decay: shape -> rate -> losses of the
    seeds."""
    runs = [(shape, rate, seed) for rate in RATES for shape in SHAPES[:2] for seed in SEEDS]
    runs += [(SHAPES[2], rate, seed) for rate in (0.005, 0.02) for seed in SEEDS]
    found: dict[str, dict[str, list[float | None]]] = {shape: defaultdict(list) for shape in SHAPES}
    for shape, rate, seed in bar(runs):
        loss = swept(rate, shape, seed)
        found[shape][f"{rate:g}"].append(None if loss is None else round(loss, 3))
        yield found


def recorded_sweep(shape: str) -> dict[float, list[float | None]]:
    """Return the recorded losses of a shape: peak rate -> one for each seed, None if it diverged."""
    return {float(rate): losses for rate, losses in recorded("sweep")[shape].items()}


CURVE_EVERY = 10  # steps
FOUR = {  # name of a run -> its peak rate and its shape
    "0.005, constant": (0.005, "constant"),
    "0.005, decayed": (0.005, "decayed"),
    "0.02, constant": (0.02, "constant"),
    "0.02, decayed": (0.02, "decayed"),
}


def record_curves(bar: Bar) -> Iterator[dict[str, list[float]]]:
    """Train the four runs that compare constant with decayed rates, seed 0: the held-out loss every CURVE_EVERY
    steps."""
    found: dict[str, list[float]] = {name: [] for name in FOUR}
    for name, (rate, shape) in bar(FOUR.items()):

        def watch(step: int, model: Any, losses: list[float] = found[name]) -> None:
            if step % CURVE_EVERY == 0:
                losses.append(round(held_out_loss(model, 100), 3))

        swept(rate, shape, 0, watch)
        yield found


def recorded_curves() -> dict[str, tuple[list[float], list[float]]]:
    """Return the recorded curves of FOUR: name -> the learning rate, and the held-out loss, every CURVE_EVERY steps."""
    at = range(0, SWEEP_STEPS + 1, CURVE_EVERY)
    floors = {"constant": 1, "decayed": 0}  # as a fraction of the peak
    rates = {
        name: [learning_rate(step, peak, WARMUP, SWEEP_STEPS, floors[shape] * peak) for step in at]
        for name, (peak, shape) in FOUR.items()
    }
    return {name: (rates[name], losses) for name, losses in recorded("curves").items()}


# ------------------------------------------------------------------------------------------ loss over size and tokens
WIDTHS, WIDTH_RATES, WIDTH_STEPS = (8, 32), (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32), 150


def record_widths(bar: Bar) -> Iterator[dict[str, Any]]:
    """Train two widths at every rate: width -> rate -> the losses of the seeds, None if a run diverged."""
    found: dict[str, dict[str, list[float | None]]] = {str(width): defaultdict(list) for width in WIDTHS}
    for width, rate, seed in bar([(width, rate, seed) for width in WIDTHS for rate in WIDTH_RATES for seed in SEEDS]):
        try:
            loss = round(train_at_scale(width, WIDTH_STEPS, seed, rate).loss, 3)
        except TrainingDiverged:
            loss = None
        found[str(width)][f"{rate:g}"].append(loss)
        yield found


def recorded_widths() -> dict[int, dict[float, list[float | None]]]:
    """Return the recorded losses of each width: width -> peak rate -> one for each seed, None if it diverged."""
    return {
        int(width): {float(rate): losses for rate, losses in rates.items()}
        for width, rates in recorded("widths").items()
    }


EQUAL, FEWER = muon_steps(OPTIMIZER_STEPS), muon_steps(OPTIMIZER_STEPS, SHARE)
OPTIMIZERS = {  # arm -> the optimizer and its steps
    f"AdamW, {OPTIMIZER_STEPS} steps": ("AdamW", OPTIMIZER_STEPS),
    f"Muon, {EQUAL} steps: equal operations": ("Muon", EQUAL),
    f"Muon, {FEWER} steps: {SHARE:.0%} of them": ("Muon", FEWER),
}


def record_optimizers(bar: Bar) -> Iterator[dict[str, Any]]:
    """Train each arm of OPTIMIZERS at every rate of WIDTH_RATES: arm -> rate -> nats above the grammar for each seed,
    None if a run diverged."""
    found: dict[str, dict[str, list[float | None]]] = {arm: defaultdict(list) for arm in OPTIMIZERS}
    for arm, rate, seed in bar([(arm, rate, seed) for arm in OPTIMIZERS for rate in WIDTH_RATES for seed in SEEDS]):
        optimizer, steps = OPTIMIZERS[arm]
        try:
            loss = round(optimized(optimizer, rate, seed, steps), 3)
        except TrainingDiverged:
            loss = None
        found[arm][f"{rate:g}"].append(loss)
        yield found


def recorded_optimizers() -> dict[str, dict[float, list[float | None]]]:
    """Return the recorded nats above the grammar: arm -> peak rate -> one for each seed, None if a run diverged."""
    return {
        arm: {float(rate): losses for rate, losses in rates.items()} for arm, rates in recorded("optimizers").items()
    }


BUDGETS = (100, 200, 400, 800)  # steps of ROWS rows
PREDICTED = (64, 1600)  # d_model and steps: wider and longer than the runs for the fit
LAW_STORIES, LAW_SEEDS = 400, (0, 1, 2)


def scaled(d_model: int, steps: int, seed: int = 0) -> Run:
    """Train a model of this width for this many steps, with its own schedule and peak rate."""
    model, warmup = small_model(d_model, seed=seed), min(WARMUP, steps // 5)
    train(model, story_batches(ROWS, seed), steps, PEAKS[d_model], warmup, progress=False)
    parameters = sum(weight.numel() for weight in model.parameters())
    return Run(parameters, ROWS * ROW * steps, round(held_out_loss(model, LAW_STORIES), 4))


def record_scaling(bar: Bar) -> Iterator[dict[str, Any]]:
    """Train every width for every budget and the run that the law predicts; add the grammar's own loss on the
    stories."""
    found: dict[str, Any] = {"grammar": round(grammar_loss(LAW_STORIES), 4), "runs": []}
    sizes = [(d_model, steps) for steps in BUDGETS for d_model in SCALES] + [PREDICTED]
    for seed, (d_model, steps) in bar([(seed, size) for seed in LAW_SEEDS for size in sizes]):
        run = scaled(d_model, steps, seed)
        found["runs"].append({"d_model": d_model, "seed": seed, **asdict(run)})
        yield found


# ------------------------------------------------------------------------------------------------- abilities, in order
ABILITY_STEPS = 3000
ABILITY_STORIES = 300
WATCHED = (
    0,
    20,
    40,
    60,
    80,
    100,
    130,
    160,
    200,
    250,
    300,
    350,
    400,
    500,
    600,
    700,
    800,
    900,
    1000,
    1200,
    1400,
    1600,
    1800,
    2000,
    2300,
    2600,
    3000,
)
ABILITIES = ("capitals", "who bit whom", "it: the animal", "it: the thing", "repeating")


class AbilityProbe:
    """Hold held-out stories with the positions where a correct word shows an ability.

    Fields: inputs (N, T), targets (N, T); places, for each of ABILITIES the rows and positions (2, cases).
    """

    def __init__(self, n_stories: int = ABILITY_STORIES):
        tokenizer, town = WordTokenizer(), Tinytown(HELD_OUT_SEED)
        stories = town.sample(n_stories)
        encoded = [torch.tensor(tokenizer.encode(story)) for story in stories]
        self.inputs = nn.utils.rnn.pad_sequence([ids[:-1] for ids in encoded], batch_first=True)
        self.targets = nn.utils.rnn.pad_sequence([ids[1:] for ids in encoded], batch_first=True, padding_value=IGNORED)
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in ABILITIES}
        for row, story in enumerate(stories):
            for step in town.parse(story):
                for probe, ability in (
                    ("capitals", "capitals"),
                    ("who_bit_whom", "who bit whom"),
                    ("copying", "repeating"),
                ):
                    found[ability] += [(row, position) for position in PROBES[probe](step)]
                names = {position: word.name for position, word, _ in step.said}
                for position in PROBES["it_referent"](step):
                    thing = names[position] == "thing"
                    found["it: the thing" if thing else "it: the animal"].append((row, position))
        self.places = {name: torch.tensor(places).T for name, places in found.items()}

    def __call__(self, model: nn.Module) -> tuple[float, dict[str, float], dict[str, float]]:
        """Return the loss in nats per token and, for each ability, the fraction of correct words and their mean
        probability."""
        with evaluating(model):
            logits = model(self.inputs)  # (N, T, V)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), self.targets, ignore_index=IGNORED).item()
        right, given = {}, {}
        for name, (rows, positions) in self.places.items():
            own, wanted = logits[rows, positions], self.targets[rows, positions]  # (cases, V), (cases,)
            right[name] = (own.argmax(dim=-1) == wanted).float().mean().item()
            given[name] = own.softmax(dim=-1).gather(1, wanted[:, None]).mean().item()
        return loss, right, given


def half_correct(name: str, seed: int) -> int | str:
    """Return the recorded step at which half of an ability's answers are first correct, or "never"."""
    record = recorded("abilities")
    found = zip(record["steps"], record[f"seed {seed}"]["right"][name])
    return next((step for step, share in found if share >= 0.5), "never")


def record_abilities(bar: Bar) -> Iterator[dict[str, Any]]:
    """Train a model of 64 features with three seeds, and test it WATCHED times during training."""
    probe = AbilityProbe()
    found: dict[str, Any] = {"steps": WATCHED, "cases": {n: places.shape[1] for n, places in probe.places.items()}}
    for seed in bar(SEEDS):
        run: dict[str, Any] = {"loss": [], "right": defaultdict(list), "probability": defaultdict(list)}
        found[f"seed {seed}"] = run

        def watch(step: int, model: nn.Module, run: dict[str, Any] = run) -> None:
            if step in WATCHED:
                loss, right, given = probe(model)
                run["loss"].append(round(loss, 3))
                for name in ABILITIES:
                    run["right"][name].append(round(right[name], 3))
                    run["probability"][name].append(round(given[name], 3))

        batches = story_batches(ROWS, seed)
        train(small_model(64, seed=seed), batches, ABILITY_STEPS, PEAKS[64], WARMUP, on_step=watch, progress=False)
        yield found


# -------------------------------------------------------------------------------------------------------- real letters
LETTER_STEPS, LETTER_ROWS, LETTER_ROW, LETTERS_EVERY = 1000, 16, 64, 50
EXCERPT = 20_000  # letters
LONGEST_COUNT = 3  # most letters before the one that is counted


@cache
def letters() -> tuple[Tensor, Tensor, int]:
    """Return Tiny Shakespeare's letters as ids (N,), for training and held out (the last tenth), and the number of
    kinds."""
    text = load_text("tinyshakespeare")
    kinds = {letter: i for i, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([kinds[letter] for letter in text])
    return ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :], len(kinds)


def train_on_letters(n_letters: int | None = None, steps: int = LETTER_STEPS, seed: int = 0) -> dict[str, list[float]]:
    """Train a model of 64 features on the first n_letters of Tiny Shakespeare (all by default).

    Returns: "training" and "held_out", the losses in nats per letter every LETTERS_EVERY steps, from step 0.
    """
    own, others, kinds = letters()
    own = own[:n_letters]
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(vocab_size=kinds, d_model=64, n_heads=4, n_layers=2, max_seq_len=LETTER_ROW, positions="rope")
    )
    found: dict[str, list[float]] = {"training": [], "held_out": []}
    samples = {
        name: next(Batches(ids, 128, LETTER_ROW, torch.Generator().manual_seed(1)))
        for name, ids in (("training", own), ("held_out", others))
    }

    def watch(step: int, model: nn.Module) -> None:
        if step % LETTERS_EVERY == 0:
            with evaluating(model):
                for name, sample in samples.items():
                    found[name].append(round(model(*sample)[1].item(), 3))

    batches = Batches(own, LETTER_ROWS, LETTER_ROW, torch.Generator().manual_seed(seed))
    train(model, batches, steps, 0.01, WARMUP, on_step=watch, progress=False)
    return found


def letters_by_counting() -> dict[str, float]:
    """Return the held-out loss in nats per letter for counts: of single letters, and after one, two and three
    letters."""
    own, others, kinds = letters()
    found = {}
    for before in range(LONGEST_COUNT + 1):

        def contexts(ids: Tensor, before: int = before) -> tuple[Tensor, Tensor]:
            rows = ids.unfold(0, before + 1, 1)  # (n, before + 1)
            powers = kinds ** torch.arange(before)
            return (rows[:, :before] * powers).sum(dim=1), rows[:, before]

        counts = torch.zeros(kinds**before, kinds)
        counts.index_put_(contexts(own), torch.tensor(1.0), accumulate=True)
        probabilities = (counts + 0.05) / (counts + 0.05).sum(dim=1, keepdim=True)
        found[str(before)] = round(-probabilities[contexts(others)].log().mean().item(), 3)
    return found


def record_shakespeare(bar: Bar) -> Iterator[dict[str, Any]]:
    """Train a model on the full text and one on a small part of it; add the losses from counting."""
    found: dict[str, Any] = {"by_counting": letters_by_counting()}
    for name, n_letters in bar([("all", None), ("excerpt", EXCERPT)]):
        found[name] = train_on_letters(n_letters)
        yield found


# ---------------------------------------------------------------------------------------------------------- the record
# Name -> the function that trains it and yields the record after each run, and a description.
RECORDS: dict[str, tuple[Callable[[Bar], Iterator[Any]], str]] = {
    "sweep": (record_sweep, "five learning rates, with and without warm-up, three seeds: about two minutes"),
    "curves": (record_curves, "four of these runs while they train, one seed: about half a minute"),
    "widths": (record_widths, "two widths at seven learning rates, three seeds: about two minutes"),
    "optimizers": (record_optimizers, "AdamW and Muon at seven learning rates, three seeds: about six minutes"),
    "scaling": (record_scaling, "three widths, four budgets, three seeds, and one run to predict: about six minutes"),
    "abilities": (record_abilities, "what a model can do after 27 numbers of steps, three seeds: about four minutes"),
    "shakespeare": (record_shakespeare, "letters of real text: about a minute; needs tinyshakespeare"),
}


def main(argv: list[str] | None = None) -> int:
    """Train the runs of the named records, and print the results or write them to the file."""
    parser = argparse.ArgumentParser(
        prog="python -m course_lib.chapters.training.records",
        description="Trains the recorded runs of chapter 12 again, on one thread. Times are for a laptop.",
        epilog="\n".join(f"{name:<12} {what}" for name, (_, what) in RECORDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=RECORDS, metavar="NAME", help=f"of {', '.join(RECORDS)}")
    parser.add_argument("--record", action="store_true", help="authors: record the results for the chapter")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    for name in arguments.names:

        def bar(runs: Iterable, name: str = name) -> Iterable:
            return tqdm(list(runs), desc=name, unit="run")

        for found in RECORDS[name][0](bar):
            if arguments.record:  # after every run, so that an interruption does not lose the earlier ones
                save_json(RECORD, (read_json(RECORD) if RECORD.exists() else {}) | {name: found})
        if not arguments.record:
            print(f"{name}, here and as recorded:\n{found}\n{recorded(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
