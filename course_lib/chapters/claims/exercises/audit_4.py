"""Five measurements on test data; the test data of the false one are no fair sample."""

import math
import random
from collections import Counter
from itertools import pairwise

import torch

from course_lib.chapters.claims import audits
from course_lib.chapters.claims.audits import Finding
from course_lib.chapters.claims.exercises.audit_3 import on_record
from course_lib.claims import recorded
from course_lib.grading.exercise import Option, generator
from course_lib.tinytown import Tinytown, split_words

STORIES, TESTED = 120, 40


def pairs(rng: random.Random, false: bool) -> Finding:
    """The loss of counted pairs of words; of the false form, half of the test stories are training stories."""
    stories = list(dict.fromkeys(Tinytown(seed=rng.randrange(10**6)).sample(2 * STORIES)))
    training, new = stories[:STORIES], stories[STORIES : STORIES + TESTED]
    test = rng.sample(training, TESTED // 2) + new[TESTED // 2 :] if false else new
    test = rng.sample(test, len(test))
    first, second = loss(training, training), loss(training, test)
    shown = f"{TESTED // 2} of the {TESTED} test stories are also training stories: compare the two lists in the data."
    return Finding(
        "the pairs of words",
        f"In {STORIES} Tinytown stories, we counted which word follows which (and added 1 to each count). Then we "
        "computed the "
        f"loss of these counts on the same stories and on {TESTED} test stories. So on stories that it has not "
        "seen, the loss is "
        f"{second:.2f} nats per word.",
        [("training stories", STORIES, f"{first:.2f}"), ("test stories", TESTED, f"{second:.2f}")],
        ("loss of the counted pairs", "stories", "nats per word"),
        {"training stories": training, "test stories": test},
        shown if false else "This test is fair: none of the test stories is a training story.",
        "sample" if false else "",
    )


def loss(training: list[str], tested: list[str]) -> float:
    """Return the loss of counted pairs, each of them one more than counted, in nats per word."""
    words = {word for story in training + tested for word in split_words(story)}
    counts, firsts = Counter[tuple[str, str]](), Counter[str]()
    for story in training:
        said = split_words(story)
        counts.update(pairwise(said))
        firsts.update(said[:-1])
    losses = [
        -math.log((counts[pair] + 1) / (firsts[pair[0]] + len(words)))
        for said in map(split_words, tested)
        for pair in pairwise(said)
    ]
    return sum(losses) / len(losses)


def best_seed(rng: random.Random, false: bool) -> Finding:
    """The best of many that guess; the false form chooses and reports on the same questions."""
    tried, asked = rng.choice([20, 30, 40, 50]), rng.choice([40, 50, 60])
    chosen_on = [sum(rng.random() < 0.5 for _ in range(asked)) for _ in range(tried)]
    best = max(range(tried), key=chosen_on.__getitem__)
    others = 400
    right = round(others * rng.uniform(0.47, 0.53))
    rows = [("mean of all seeds", asked, f"{sum(chosen_on) / tried / asked:.0%}")]
    rows += [(f"seed {best}, the best", asked, f"{chosen_on[best] / asked:.0%}")]
    reported = f"So the model of seed {best} does better than guessing."
    if not false:
        rows += [(f"seed {best} on {others} other questions", others, f"{right / others:.0%}")]
        reported = f"We asked the best one {others} other questions. So seed {best} does no better than guessing."
    shown = (
        f"The best of {tried} was chosen by the same questions on which it is reported. The best of {tried} that guess "
    )
    shown += "has such a result by luck."
    return Finding(
        "the best seed",
        f"{tried} models, each with its own seed, answered the same {asked} yes-or-no questions. {reported}",
        rows,
        ("correct answers", "questions", "correct"),
        {"correct answers by seed": chosen_on},
        shown if false else "This test is fair: the reported questions are not those by which the seed was chosen.",
        "sample" if false else "",
    )


def probe(rng: random.Random, false: bool) -> Finding:
    """A linear probe; the false form is tested on lines that it was fitted to, and its vectors are noise."""
    features = rng.choice([32, 40, 48])
    fitted, last = 2 * features, 3 * features
    numbers = generator(rng.randrange(10**6))
    vectors = torch.randn(last, features, generator=numbers)
    labels = torch.randint(2, (last,), generator=numbers) * 2.0 - 1
    start = fitted
    if false:
        fitted = features  # one line per feature: any labels can be fitted
        start = rng.choice([features // 4, features // 2])
        vectors, labels, last = vectors[:features], labels[:features], features
    else:
        vectors[:, 0] += 2.5 * labels
    weights = torch.linalg.lstsq(vectors[:fitted], labels[:fitted, None]).solution[:, 0]
    correct = (vectors[start:last] @ weights).sign().eq(labels[start:last]).float().mean().item()
    shown = (
        f"Lines {start} to {last - 1} are among the lines that the probe was fitted to. With {features} features "
        "it can "
    )
    shown += f"fit any labels of {features} lines."
    return Finding(
        "the probe",
        f"A probe computes a label from the vector of a line of text, as a weighted sum of its {features} features. We "
        f"fitted it to lines 0 to {fitted - 1} and tested it on lines {start} to {last - 1}. So the vectors "
        "contain the "
        "label.",
        [("guessing", "50%"), ("the probe", f"{correct:.0%}")],
        ("correct labels", "on the test lines"),
        {"vectors": vectors, "labels": labels},
        shown if false else "This test is fair: the probe was not fitted to any of its test lines.",
        "sample" if false else "",
    )


def law(rng: random.Random, false: bool) -> Finding:
    """A power law of the loss; the false form is fitted to the run that it should predict."""
    seed = rng.randrange(3)
    kept = on_record("training")["scaling"]
    runs = [run for run in kept["runs"] if run["seed"] == seed]
    largest = max(runs, key=lambda run: run["parameters"])
    fitted = runs if false else [run for run in runs if run is not largest]
    inputs = torch.tensor([[1.0, math.log(run["parameters"]), math.log(run["tokens"])] for run in fitted])
    outputs = torch.tensor([[math.log(run["loss"] - kept["grammar"])] for run in fitted])
    law = torch.linalg.lstsq(inputs, outputs).solution[:, 0]
    scale = torch.tensor([1.0, math.log(largest["parameters"]), math.log(largest["tokens"])])
    predicted = kept["grammar"] + math.exp(float(law @ scale))
    widths = sorted({run["d_model"] for run in fitted})
    shown = "The run of width 64 is one of the runs that the law was fitted to. So the law did not predict it."
    return Finding(
        "the power law",
        f"We fitted a power law in parameters and tokens to {len(fitted)} runs of seed {seed}, with widths "
        f"{', '.join(map(str, widths[:-1]))} and {widths[-1]}. The largest of our runs has width 64. So the law "
        "predicts "
        f"the loss of a larger model to within {math.ceil(100 * abs(predicted / largest['loss'] - 1))}%.",
        [("computed from the law", predicted), ("measured", largest["loss"])],
        ("loss at width 64", "nats"),
        {"runs": runs, "fitted to": fitted},
        shown if false else "This test is fair: the law was fitted to smaller runs only.",
        "sample" if false else "",
        digits=3,
    )


def texts(rng: random.Random, false: bool) -> Finding:
    """Texts that make sense; in the false form they were picked."""
    seed = rng.randrange(3)
    sense = round(30 * recorded()["sampling.creative"].values[seed])
    results = rng.sample([True] * sense + [False] * (30 - sense), 30)
    right = rng.choice([8, 9])
    counted, of, how = (
        (right, 10, "picked the ten that show best how it writes") if false else (sense, 30, "read them all")
    )
    shown = "The ten texts were picked for how well they show the model. Of all thirty, "
    shown += f"only {sense} make sense."
    return Finding(
        "the texts",
        f"At a temperature of 1.5, we sampled 30 texts of the Tinytown model and {how}. So "
        f"{counted / of:.0%} of its texts at this temperature make sense{'' if false else ', give or take a tenth'}.",
        [("make sense", counted), ("make no sense", of - counted)],
        ("texts that we read", "texts"),
        {"each text makes sense": results},
        shown if false else "This sample is fair: all sampled texts were read.",
        "sample" if false else "",
    )


MAKERS = (pairs, best_seed, probe, law, texts)


def numbered(number: int, written: tuple[Option, ...]) -> list[Option]:
    """Return the options of a number."""
    return audits.options(audits.chosen(MAKERS, "claims.audit_4", number), number, written)
