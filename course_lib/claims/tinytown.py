"""The Tinytown model: its recipe, and tests of what it has learnt against the known grammar."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from course_lib.checks import require_at_least_one, require_at_least_zero, require_positive, require_seed
from course_lib.config import preset
from course_lib.course.files import read_json, save_json, save_tensors, write_whole
from course_lib.embeddings import analogy, nearest_tokens
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import EARLY_STEPS_FILE, save_pretrained
from course_lib.tinytown import ANIMAL_SOUNDS, CLASSES, Batches, Step, Tinytown, WordTokenizer, encode_stories
from course_lib.training import History, story_losses, train
from course_lib.training_options import processes
from course_lib.training_options.gradients import require_options

HELD_OUT_SEED = 20_000  # stories of this seed are for measuring only: no recipe trains on them


# ------------------------------------------------------------------------------------- what a Tinytown model has learnt
@dataclass
class TinytownFigures:
    """The results of a Tinytown model on held-out stories.

    loss, entropy, grammar_loss: in nats per predicted token: the model's loss, the grammar's exact entropy, and the
        grammar's loss on these stories, which differs from the entropy because the sample is finite.
    excess: loss / entropy − 1.
    capitals, it_referent, who_bit_whom, copying: fraction of cases in which the most probable token is correct.
    pronouns: fraction of cases in which the correct one of he/she (his/her) is more probable than the other.
    analogy: the tokens nearest to king − man + woman, without the inputs. cat_neighbours: the five nearest to "cat".
    """

    loss: float
    entropy: float
    grammar_loss: float
    excess: float
    capitals: float
    it_referent: float
    who_bit_whom: float
    pronouns: float
    copying: float
    analogy: list[str]
    cat_neighbours: list[str]
    cat_neighbours_are_animals: bool
    stories: int


# A probe returns the positions in the story of the words that test one ability.
def _capitals(step: Step) -> list[int]:
    return [position for position, word, _ in step.said if word.relation == "capital"]


def _it_referent(step: Step) -> list[int]:
    """Return the noun after "yes, the …" in lines with "it was": only the adjective tells the animal from the thing."""
    if step.line.topic != "rest" or "it was" not in step.line.text:
        return []
    comma = next(position for position, _, said in step.said if said == ",")
    nouns = {"animal", "animals", "thing"}
    return [position for position, word, _ in step.said if word.name in nouns and position > comma]


def _who_bit_whom(step: Step) -> list[int]:
    if step.line.topic != "bite":
        return []
    return [position for position, word, _ in step.said if word.name in ("agent", "victim") and not word.source][-1:]


def _pronouns(step: Step) -> list[int]:
    return [position for position, word, _ in step.said if word.relation in ("pronoun", "possessive")]


def _copies(step: Step) -> list[int]:
    """Return the repetitions of random words, which only copying can predict."""
    return [
        position for position, word, _ in step.said if word.name in ("first", "second", "third") and not word.source
    ]


PROBES: dict[str, Callable[[Step], list[int]]] = {  # a step of a story -> the positions of the words that test it
    "capitals": _capitals,
    "it_referent": _it_referent,
    "who_bit_whom": _who_bit_whom,
    "pronouns": _pronouns,
    "copying": _copies,
}
OTHER_PRONOUN = {"he": "she", "she": "he", "his": "her", "her": "his"}


def measure_tinytown(
    model: nn.Module, tokenizer: WordTokenizer, n_stories: int = 2000, seed: int = HELD_OUT_SEED
) -> TinytownFigures:
    """Measure the loss, to compare with the exact entropy, and each tested ability on `n_stories` held-out stories.

    Source: this course; popular texts ascribe these abilities to language models.
    """
    town = Tinytown(seed)
    stories = town.sample(n_stories)
    encoded = [tokenizer.encode(story) for story in stories]
    nats, tokens = story_losses(model, encoded)
    weight = model.get_parameter("token_embedding.weight").detach()

    right: dict[str, list[bool]] = {name: [] for name in PROBES}
    for story, ids in zip(stories, encoded):
        inputs = torch.tensor([ids[:-1]], device=weight.device)  # (1, T)
        with evaluating(model):
            logits = model(inputs)[0].cpu()  # (T, V); row t predicts ids[t + 1], which is word t
        for step in town.parse(story):
            for name, probe in PROBES.items():
                for position in probe(step):
                    expected = ids[position + 1]
                    if name == "pronouns":
                        other = tokenizer.id(OTHER_PRONOUN[tokenizer.tokens[expected]])
                        right[name].append(bool(logits[position, expected] > logits[position, other]))
                    else:
                        right[name].append(int(logits[position].argmax()) == expected)

    if untested := [name for name, cases in right.items() if not cases]:
        raise ValueError(f"n_stories={n_stories} is too small: these stories have no case of {', '.join(untested)}")

    words = tokenizer.tokens
    king, man, woman = (tokenizer.id(word) for word in ("king", "man", "woman"))
    neighbours = [words[i] for i in nearest_tokens(weight, tokenizer.id("cat"), 5)[0].tolist()]
    animals = set(ANIMAL_SOUNDS) | set(CLASSES["animals"])
    loss, entropy = (nats.sum() / tokens.sum()).item(), town.entropy()
    return TinytownFigures(
        loss=loss,
        entropy=entropy,
        grammar_loss=-sum(town.log_prob(story) for story in stories) / tokens.sum().item(),
        excess=loss / entropy - 1,
        **{name: sum(cases) / len(cases) for name, cases in right.items()},
        analogy=[words[i] for i in analogy(weight, king, man, woman, 3)[0].tolist()],
        cat_neighbours=neighbours,
        cat_neighbours_are_animals=set(neighbours) <= animals,
        stories=n_stories,
    )


# ----------------------------------------------------------------------------------------- the model that ships with us
@dataclass(frozen=True)
class TinytownRecipe:
    """All settings of the shipped model: the same recipe on the same machine gives the same weights.

    precision, compile, accumulate: as in `train`; if several processes share the run, each takes its own batch.
    Errors: ValueError or TypeError that names the setting, its value and the allowed values.
    """

    steps: int = 5000
    batch_size: int = 24
    peak: float = 3e-3
    warmup: int = 100
    seed: int = 0
    stories: int = 120_000
    threads: int = 2
    precision: str = "float32"
    compile: bool = False
    accumulate: int = 1
    early_steps: tuple[int, ...] = (0, 10, 25, 50, 100, 200, 300, 400, 500, 700, 1000, 1500, 2000, 3000)

    def __post_init__(self):
        require_at_least_one(steps=self.steps, batch_size=self.batch_size, stories=self.stories, threads=self.threads)
        require_at_least_one(accumulate=self.accumulate)
        require_positive(peak=self.peak)
        require_at_least_zero(warmup=self.warmup)
        if not -(2**63) <= require_seed(self.seed) < 2**63:
            raise ValueError(f"seed must be a whole number of at most 63 bits, got {self.seed}")


def train_tinytown(
    folder: str | Path, recipe: TinytownRecipe | None = None, progress: bool = True, measure_stories: int = 2000
) -> tuple[TinytownFigures, History]:
    """Train the Tinytown model from scratch; write it to `folder` with config, vocabulary, recipe and figures.

    An interrupted run continues from its last checkpoint. Several processes may share a run (`join_processes`); the
    first writes the files.
    Errors: ValueError if the folder contains a finished model or an unfinished run of another recipe, or if there are
        too few stories; OSError if the folder cannot be written. A refused run leaves no files behind.
    """
    recipe = recipe or TinytownRecipe()
    folder = Path(folder)
    if (folder / "figures.json").exists():
        raise ValueError(f"{folder} holds a trained model already: give another folder, or move that one away")
    begun = folder / "recipe.json"
    if begun.exists() and (other := _differences(read_json(begun), recipe)):
        raise ValueError(
            f"{folder} holds an unfinished run of another recipe ({other}): give the same options, or another folder"
        )
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    tokenizer = WordTokenizer()
    model = DecoderOnly(preset("tinytown"))
    T = model.config.max_seq_len
    _batches(recipe, tokenizer, T, min(recipe.stories, T))  # raises for too few stories before anything is written
    require_options(model, recipe.precision, recipe.compile, False)  # raises if this machine lacks an option
    folder.mkdir(parents=True, exist_ok=True)
    first = processes.rank() == 0
    if first:
        save_json(begun, asdict(recipe))
    batches = _batches(recipe, tokenizer, T, recipe.stories)
    unfinished = folder / "training.pt"
    early = folder / "early-steps.pt"
    tables = torch.load(early, weights_only=True) if early.exists() else {}

    def keep_early_steps(step: int, _: nn.Module) -> None:
        if first and (step in recipe.early_steps or step == recipe.steps):
            tables[str(step)] = model.token_embedding.weight.detach().half().clone()
            write_whole(early, lambda part: torch.save(tables, part))

    history = train(
        model,
        batches,
        recipe.steps,
        recipe.peak,
        recipe.warmup,
        checkpoint=unfinished,
        checkpoint_every=250,
        on_step=keep_early_steps,
        progress=progress,
        precision=recipe.precision,
        compile=recipe.compile,
        accumulate=recipe.accumulate,
    )
    figures = measure_tinytown(model, tokenizer, measure_stories)
    if not first:
        return figures, history
    save_pretrained(folder, model, tokenizer)
    save_tensors(folder / EARLY_STEPS_FILE, tables)
    every = 50
    curve = [sum(history.losses[i : i + every]) / every for i in range(0, recipe.steps - every + 1, every)]
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(figures).items()}
    save_json(
        folder / "figures.json",
        {
            "figures": rounded,
            "recipe": asdict(recipe),
            "training_loss_mean_of_50_steps": [round(loss, 4) for loss in curve],
        },
    )
    for finished in (unfinished, early, begun):
        finished.unlink()
    return figures, history


def _batches(recipe: TinytownRecipe, tokenizer: WordTokenizer, T: int, stories: int) -> Batches:
    ids = encode_stories(Tinytown(recipe.seed).sample(stories), tokenizer)
    generator = torch.Generator().manual_seed(recipe.seed)
    return Batches(ids, recipe.batch_size, T, generator, start_id=tokenizer.bos_id)


def _differences(begun: dict, recipe: TinytownRecipe) -> str:
    """Return how an unfinished run differs from the recipe: "seed 0 there, 1 here"; "" if it does not."""
    wanted = json.loads(json.dumps(asdict(recipe)))  # JSON turns tuples into lists
    begun = {"precision": "float32", "compile": False, "accumulate": 1} | begun  # missing in older runs
    return ", ".join(
        f"{name} {begun.get(name)} there, {wanted[name]} here" for name in wanted if begun.get(name) != wanted[name]
    )
