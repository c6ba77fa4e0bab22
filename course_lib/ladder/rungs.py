"""The rungs: what each chapter adds to the model, and how much that lowers the loss.

Every rung is trained with the same budget on the same stories. Its loss is measured on held-out stories, in nats per
token, and compared with the grammar's own loss on them. No honest predictor can have a lower loss on average.
"""

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import nn

from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.course.files import read_json, save_json
from course_lib.ladder.model import MAX_SEQ_LEN, LadderModel, Shape
from course_lib.pretrained import shipped_figures
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import story_losses, train

RECORD = Path(__file__).parent.parent / "assets" / "ladder.json"
SEEDS = (0, 1, 2)
STEPS, BATCH, RATE, WARMUP = 1500, 16, 5e-3, 50
FAST = 4 * RATE
STORIES, HELD_OUT = 12_000, 500
SHIPPED = "shipped"

# Name of a part of the model -> the exercise whose answer can replace it.
EXERCISES = {
    "lookup": "embeddings.lookup",
    "attention": "attention.scaled_dot_product",
    "mask": "masks.causal",
    "split": "heads.split",
    "merge": "heads.merge",
    "rotary": "positions.rotary",
    "feed_forward": "feed_forward.forward",
    "norm": "normalization.layer_norm",
    "block": "blocks.pre_norm",
}


@dataclass(frozen=True)
class Rung:
    """Describe one rung.

    The chapter with the slug `chapter` reaches it. `label` is a short description, and `shape` has the model's
    settings. `parts` has the names in PARTS that the model uses. `seconds` is roughly the training time on two cores;
    it is 0 for the model that ships, which has its own recipe. `peak` is the highest learning rate. An `aside` is only
    a comparison, shown only in its own chapter.
    """

    id: str
    chapter: str
    label: str
    shape: Shape
    parts: tuple[str, ...]
    seconds: int
    peak: float = RATE
    aside: bool = False

    @property
    def honest(self) -> bool:
        """Return whether this model predicts without seeing later tokens."""
        return self.shape.causal or not self.shape.n_layers


_ONE = Shape(n_layers=1)
_TOLD = replace(_ONE, positions="learned")
_CAUSAL = replace(_ONE, causal=True)
_HEADS = replace(_CAUSAL, n_heads=4)
_ORDER = replace(_HEADS, positions="rotary")
_THINKS = replace(_ORDER, feed_forward=True)
_NORMED = replace(_THINKS, norms=True)
_P1 = ("lookup",)
_P2 = (*_P1, "attention")
_P3 = (*_P2, "mask")
_P4 = (*_P3, "split", "merge")
_P5 = (*_P4, "rotary")
_P6 = (*_P5, "feed_forward", "block")
_P7 = (*_P6, "norm")

RUNGS = {
    rung.id: rung
    for rung in (
        Rung("embeddings", "embeddings", "embedding and output table", Shape(), _P1, 10),
        Rung("attention", "attention", "attention that sees every token", _ONE, _P2, 20),
        Rung("peeking", "attention", "the same, with positions", _TOLD, _P2, 20, aside=True),
        Rung("masks", "masks", "causal mask", _CAUSAL, _P3, 20),
        Rung("heads", "heads", "four heads", _HEADS, _P4, 20),
        Rung("positions", "positions", "positions: RoPE", _ORDER, _P5, 25),
        Rung("feed_forward", "feed_forward", "feed-forward network", _THINKS, _P6, 30),
        Rung(
            "positions_fast", "feed_forward", "without it, at 4 × the learning rate",
            _ORDER, _P5, 25, FAST, aside=True,
        ),
        Rung(
            "feed_forward_fast", "feed_forward", "with it, at 4 × the learning rate",
            _THINKS, _P6, 30, FAST, aside=True,
        ),
        Rung("normalization", "normalization", "norms", _NORMED, _P7, 30),
        Rung(
            "normalization_fast", "normalization", "norms, at 4 × the learning rate",
            _NORMED, _P7, 30, FAST, aside=True,
        ),
        Rung("blocks", "blocks", "two blocks", replace(_NORMED, n_layers=2), _P7, 50),
        Rung(
            "attention_alone", "blocks", "two blocks without feed-forward networks",
            replace(_NORMED, n_layers=2, feed_forward=False), (*_P5, "norm"), 40, aside=True,
        ),
        Rung(
            "no_residuals", "blocks", "four blocks without residual connections",
            replace(_NORMED, n_layers=4, residuals=False), _P7, 90, aside=True,
        ),
        Rung(
            "no_residuals_slow", "blocks", "the same, at 0.4 × the learning rate",
            replace(_NORMED, n_layers=4, residuals=False), _P7, 90, 2e-3, aside=True,
        ),
        Rung("four", "gpt", "four blocks", replace(_NORMED, n_layers=4), _P7, 90),
        Rung(
            "four_bare", "gpt", "four blocks without norms",
            replace(_NORMED, n_layers=4, norms=False), _P6, 80, aside=True,
        ),
        Rung(SHIPPED, "training", "the course’s model: wider, trained longer", replace(_NORMED, n_layers=4), (), 0),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Height:
    """Hold the result of a model: nats per token on the held-out stories, one value per seed, and the grammar's."""

    nats: tuple[float, ...]
    grammar: float
    own: tuple[str, ...] = field(default=())  # the learner's own parts
    digits: int = 2  # decimals that are shown

    @property
    def mean(self) -> float:
        """Return the mean over the seeds, in nats per token."""
        return statistics.fmean(self.nats)

    @property
    def above(self) -> float:
        """Return the nats per token above the grammar's own loss. Below 0, the model cannot be an honest predictor."""
        return self.mean - self.grammar


@cache
def _town() -> tuple[WordTokenizer, torch.Tensor, list[list[list[int]]], float]:
    """Return the tokenizer, the training text, the held-out stories by length, and the grammar's loss per token."""
    tokenizer = WordTokenizer()
    held_out = Tinytown(HELD_OUT_SEED)
    stories = held_out.sample(HELD_OUT)
    encoded = [tokenizer.encode(story) for story in stories]
    grammar = -sum(map(held_out.log_prob, stories)) / sum(len(ids) - 1 for ids in encoded)
    by_length = [list(equal) for _, equal in groupby(sorted(encoded, key=len), key=len)]
    return tokenizer, encode_stories(Tinytown(0).sample(STORIES), tokenizer), by_length, grammar


def train_rung(
    id: str, seed: int = 0, parts: Mapping[str, Callable[..., Any]] | None = None, steps: int = STEPS,
    progress: bool = False, on_step: Callable[[int, nn.Module], None] | None = None,
) -> tuple[LadderModel, Height]:  # fmt: skip
    """Train the model of a rung with the ladder's budget, and measure its loss.

    Args:
        id: a rung of RUNGS. seed: for the initial weights and the batches.
        parts: functions to use instead of the library's, by the names of the rung's parts.
        steps: number of updates. progress: show a progress bar. on_step: as in `train`.

    Errors: ValueError for an unknown rung, the shipped model's rung, or a part that this rung does not have.
    """
    rung, parts = get_rung(id), dict(parts or {})
    if not rung.seconds:
        raise ValueError(
            f"the rung {id!r} has a different budget from the other rungs: train it with `python -m course_lib train`"
        )
    if foreign := parts.keys() - set(rung.parts):
        raise ValueError(f"the rung {id!r} has no part {sorted(foreign)}: its parts are {', '.join(rung.parts)}")
    tokenizer, ids, held_out, grammar = _town()
    torch.manual_seed(seed)
    model = LadderModel(len(tokenizer), rung.shape, parts)
    generator = torch.Generator().manual_seed(seed)
    batches = Batches(ids, BATCH, MAX_SEQ_LEN, generator, start_id=tokenizer.bos_id)
    train(model, batches, steps, rung.peak, WARMUP, progress=progress, on_step=on_step)
    # Measure stories of the same length together: a model that sees every token must not see padding.
    nats = sum(story_losses(model, equal)[0].sum().item() for equal in held_out)
    tokens = sum(len(ids) - 1 for equal in held_out for ids in equal)
    return model, Height((nats / tokens,), grammar, tuple(parts))


def get_rung(id: str) -> Rung:
    """Return a rung by its id. Errors: ValueError for an unknown id; the message lists all ids."""
    if id not in RUNGS:
        raise ValueError(f"there is no rung {id!r}: choose from {', '.join(RUNGS)}")
    return RUNGS[id]


@cache
def recorded() -> dict[str, Height]:
    """Return the recorded heights by rung id."""
    record, shipped = read_json(RECORD), shipped_figures()["figures"]
    heights = {id: Height(tuple(nats), record["grammar"]) for id, nats in record["nats"].items()}
    return heights | {SHIPPED: Height((shipped["loss"],), shipped["grammar_loss"])}


def write_record(heights: Mapping[str, Height], path: Path = RECORD) -> None:
    """Write these heights to the record; other rungs keep theirs."""
    before = json.loads(path.read_text(encoding="utf-8"))["nats"] if path.exists() else {}
    found = before | {id: [round(nats, 4) for nats in height.nats] for id, height in heights.items()}
    grammar = next(iter(heights.values())).grammar
    save_json(path, {"grammar": round(grammar, 4), "nats": {id: found[id] for id in RUNGS if id in found}})
