"""The workshop of chapter 18: fetch your parts, write my_gpt.py, and compare each of its stages with the library's.

begin()                        # writes my_gpt.py from a skeleton, if there is none
my_gpt = load()                # the file as it is now
parity(my_gpt)                 # the same weights through your model and the library's, stage by stage
"""

import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib.chapters.your_gpt import comparison, fixtures
from course_lib.chapters.your_gpt.comparison import Compared, Difference, advice, cases, first_difference, same_results
from course_lib.chapters.your_gpt.fixtures import STAGES
from course_lib.config import TransformerConfig, require_config
from course_lib.course.files import ASSETS
from course_lib.gpt import DecoderOnly
from course_lib.ladder.model import PARTS as LADDER_PARTS
from course_lib.ladder.rungs import EXERCISES as RUNG_EXERCISES
from course_lib.sampling import sample_next_token
from course_lib.trace import evaluating, trace
from course_lib.training import TrainingDiverged, learning_rate, make_optimizer

try:
    from course_lib.grading.answers import mine
except ImportError:  # the exercises are hidden where a class is graded, and no record of a learner is there

    def mine(exercise_id: str = "") -> Any:
        """Find no answer: none is kept here. Errors: ValueError for every id."""
        raise ValueError(f"no answer to {exercise_id!r} is kept here")


SKELETON = ASSETS / "my_gpt.txt"
FILE = "your_gpt.file"  # the exercise whose page names the mistakes

# Name of a part -> the exercise whose answer can replace it. The list has the ladder's parts without the rotation,
# because your GPT learns its positions, and the two parts that train it and let it write.
EXERCISES = {name: exercise for name, exercise in RUNG_EXERCISES.items() if name != "rotary"} | {
    "step": "training.step",
    "draw": "sampling.next_token",
}


def _step(model: Any, ids: Tensor, targets: Tensor, optimizer: torch.optim.Optimizer, max_norm: float) -> float:
    optimizer.zero_grad()
    _, loss = model(ids, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return float(loss.item())


LENT: dict[str, Callable[..., Any]] = {
    **{name: LADDER_PARTS[name] for name in EXERCISES if name in LADDER_PARTS},
    "step": _step,
    "draw": lambda logits, temperature, top_k, top_p, generator: sample_next_token(
        logits, temperature, top_k, top_p, generator=generator
    ),
}


class Parts:
    """The parts of a model by name, `P.norm(…)`: yours if you handed one in, otherwise lent by the library.

    Fields: yours and lent, the names of the parts of each kind. As text it lists every part and where it comes from.
    """

    def __init__(self, own: dict[str, Callable[..., Any]]):
        self.yours = tuple(name for name in EXERCISES if name in own)
        self.lent = tuple(name for name in EXERCISES if name not in own)
        self._all = LENT | own

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in EXERCISES:
            raise AttributeError(f"there is no part {name!r}: the parts are {', '.join(EXERCISES)}")
        return self._all[name]

    def draw(self, logits: Tensor, generator: torch.Generator) -> Int[Tensor, "B"]:
        """Sample the next token of each row from logits (B, V), at temperature 1 and without a filter."""
        return self._all["draw"](logits, 1.0, None, None, generator)

    def __repr__(self) -> str:
        lines = [f"{len(self.yours)} of {len(EXERCISES)} parts are yours"]
        for name, exercise in EXERCISES.items():
            lines.append(f"  {name:<13} {exercise:<29} {'yours' if name in self.yours else 'lent by the library'}")
        return "\n".join(lines)


def parts() -> Parts:
    """Fetch every part by `mine`; the library lends those that you have not handed in yet, and lists them as lent."""
    own = {}
    for name, exercise in EXERCISES.items():
        try:
            own[name] = mine(exercise)
        except ValueError:  # no answer is stored; an unknown exercise would be a KeyError, which is our bug
            continue
    return Parts(own)


def begin(folder: str | Path = ".") -> Path:
    """Write my_gpt.py into a folder from the skeleton, and return its path. An existing file does not change."""
    path = Path(folder) / "my_gpt.py"
    with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
        file.write(SKELETON.read_text(encoding="utf-8"))
    lent_yet = re.search(r"^\s+return lent\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    to_do = "open it, and replace each `return lent(…)` with your own lines" if lent_yet else "nothing in it is lent"
    print(f"{path.name} is here: {to_do}")
    return path


def load(path: str | Path = "my_gpt.py") -> ModuleType:
    """Import the file as it is now; call it again after every change.

    Errors: ValueError if there is no such file, or if it lacks a class or function of the skeleton.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: `begin()` writes one from the skeleton")
    module = ModuleType("my_gpt")
    # We compile it here: Python uses a cached .pyc for a second after a change, and you may be faster.
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    if missing := [name for name in STAGES[-3:] if not hasattr(module, name)]:
        raise ValueError(f"{path.name} has no {', '.join(missing)}: copy it from the skeleton")
    return module


def lent(stage: Any, *args: Any) -> Any:
    """Compute a stage of my_gpt.py as the library does, until you have written it.

    stage: the module whose forward is missing, or the name of a function of the file.
    """
    name = stage if isinstance(stage, str) else type(stage).__name__
    if name not in _STAGES:
        raise ValueError(f"the library has no stage {name!r} to lend: choose from {', '.join(STAGES)}")
    fixtures.lent_now.append(name)
    return _STAGES[name](*args) if isinstance(stage, str) else _STAGES[name](stage, *args)


def _attend(w: Any, x: Tensor) -> Tensor:
    q, k, v = (LENT["split"](project(x), w.n_heads) for project in (w.q_proj, w.k_proj, w.v_proj))  # (B, H, T, D)
    return w.out_proj(LENT["merge"](F.scaled_dot_product_attention(q, k, v, is_causal=True)))


def _think(w: Any, x: Tensor) -> Tensor:
    tanh = getattr(w, "activation", "gelu") == "gelu_tanh"
    return w.down_proj(F.gelu(w.up_proj(x), approximate="tanh" if tanh else "none"))


def _logits(w: Any, ids: Tensor, targets: Tensor | None = None) -> Any:
    x = w.positions(w.token_embedding(ids))
    for block in w.blocks:
        x = block(x)
    logits = w.output(w.final_norm(x))
    return logits if targets is None else (logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def _write(model: Any, ids: Tensor, n_tokens: int, generator: torch.Generator, draw: Any = None) -> Tensor:
    for _ in range(n_tokens):
        with torch.no_grad():
            logits = model(ids[:, -model.config.max_seq_len :])[:, -1]
        drawn = sample_next_token(logits, generator=generator) if draw is None else draw(logits, generator)
        ids = torch.cat([ids, drawn[:, None]], dim=1)
    return ids


_STAGES: dict[str, Callable[..., Any]] = {
    "Embedding": lambda w, ids: w.weight[ids],
    "Positions": lambda w, x: x + w.weight[: x.shape[1]],
    "Norm": lambda w, x: F.layer_norm(x, w.weight.shape, w.weight, w.bias, w.eps),
    "Attention": _attend,
    "FeedForward": _think,
    "Block": lambda w, x: LENT["block"](x, w.attention, w.feed_forward, w.norm1, w.norm2),
    "MyGPT": _logits,
    "training_step": lambda model, ids, targets, optimizer: _step(model, ids, targets, optimizer, 1.0),
    "write": _write,
}


def still_lent(my_gpt: ModuleType) -> tuple[str, ...]:
    """Return the stages of the file that the library still computes for you."""
    found = ((name, getattr(my_gpt, name)) for name in STAGES if hasattr(my_gpt, name))
    return tuple(name for name, own in found if "lent" in _names(getattr(own, "forward", own)))


def _names(function: Any) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_names if code else ()


SMALL = TransformerConfig(vocab_size=11, d_model=12, n_heads=3, n_layers=2, max_seq_len=8)


@dataclass(frozen=True)
class Parity:
    """The result of `parity`: the equal stages in order, the lent stages, and the first difference."""

    equal: dict[str, float]
    lent: tuple[str, ...]
    first: Difference | None

    def __repr__(self) -> str:
        lines = []
        for stage in STAGES:
            by = "lent by the library" if stage in self.lent else "yours"
            if stage in self.equal:
                lines.append(f"  {stage:<14} {by:<20} equal")
            elif self.first and stage == self.first.stage:
                lines.append(f"  {stage:<14} {by:<20} DIFFERS")
        if self.first and self.first.stage != STAGES[-1]:
            lines.append("  The comparison stopped here; the remaining stages were not compared.")
        return "\n".join([self._head(), *lines])

    def _head(self) -> str:
        yours = len(STAGES) - len(self.lent)
        if self.first is not None:
            return f"The first difference is in {self.first}"
        if not yours:
            return f"Nothing of yours to compare yet: all {len(STAGES)} stages are lent"
        return f"Your {yours} stages equal the library's" if yours > 1 else "Your stage equals the library's"


def parity(my_gpt: ModuleType, config: TransformerConfig = SMALL) -> Parity:
    """Send the same weights and inputs through your stages and the library's, and find the first difference.

    Every stage gets an input of its own, so a fault shows where it occurs: 1, 3 and max_seq_len tokens, in 1 row and in
    4. The norms' weights are not 1 and the biases not 0; some gradients are longer than a training step allows, and
    some shorter; both models write, beyond max_seq_len, too. Equal means to 1e-5 in float32.
    """
    require_config(config)
    equal: dict[str, float] = {}
    absent = still_lent(my_gpt)
    for stage in STAGES:
        if found := difference_at(stage, my_gpt, config):
            return Parity(equal, absent, found)
        equal[stage] = 0.0
    return Parity(equal, absent, None)


def difference_at(stage: str, my_gpt: Any, config: TransformerConfig = SMALL) -> Difference | None:
    """Return the first tensor of a stage that differs from the library's, explained; None if all are equal."""
    own = getattr(my_gpt, "P", None)
    draw = own.draw if isinstance(own, Parts) and "draw" in own.yours and stage == "write" else None
    library = of_the_library(stage, config, draw)
    compared = [case for case, _ in library]
    sizes: list[str] = []
    for case, right in library:
        got = _results(my_gpt, case)
        failed = isinstance(got, str) and Difference(stage, next(iter(right)), 0.0, got)
        if found := failed or first_difference(stage, right, got):
            return _explained(found, my_gpt, compared, case, sizes)
        sizes.append(case.where)
    return None


@functools.lru_cache(maxsize=32)
def of_the_library(stage: str, config: TransformerConfig, draw: Any = None) -> list[tuple[Compared, Any]]:
    """Return the comparisons of a stage with the results of the library's model and of its two functions.

    draw: how to sample, instead of the library's way.
    """
    library = {
        "MyGPT": _library_gpt,
        "training_step": _STAGES["training_step"],
        # The library's loop runs with the library's model, because with yours it would share your model's faults.
        "write": functools.partial(_write, draw=draw),
    }
    return [(case, _results(library, case)) for case in cases(stage, config, seed=17)]


def _library_gpt(config: TransformerConfig) -> DecoderOnly:
    model = DecoderOnly(config)

    def causal(module: nn.Module, args: tuple, kwargs: dict) -> tuple:
        return args, {"is_causal": True} | kwargs

    for block in model.blocks:  # so that its attention, called alone, is causal as in its block
        block.attention.register_forward_pre_hook(causal, with_kwargs=True)
    return model


def _results(answer: Any, case: Compared) -> Any:
    """Return the tensors of a stage by name, or the error in words."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(17)
        try:
            return fixtures.run_stage(answer, fixtures.a_stage(*case.data))[0]
        except Exception as error:
            return f"raises {type(error).__name__}: {error}"


def _explained(
    found: Difference, my_gpt: Any, compared: list[Compared], case: Compared, sizes: list[str]
) -> Difference:
    """Return the difference with its sizes, and with the name of the mistake, or else with what to look at."""
    from course_lib.grading.page.catalogue import EXERCISES  # importing it reads all pages

    found = replace(found, where=case.where)
    if FILE in EXERCISES:
        ordered = [case, *(each for each in compared if each is not case)]
        own = [_results(my_gpt, each) for each in ordered]
        for mistake in EXERCISES[FILE].misconceptions:
            for wrong in mistake.variants if found.stage in mistake.changes else ():
                if all(same_results(mine_, _results(wrong, each)) for mine_, each in zip(own, ordered)):
                    return replace(found, look=mistake.sentence, mistake=mistake.name)
    return replace(found, look=advice(found.stage, found, case, sizes))


def tensors_after_a_fault(model: DecoderOnly, ids: Tensor) -> tuple[list[str], list[str]]:
    """Let block 0 return F(x) instead of x + F(x). Return the names of all tensors from its output on, in the order of
    the computation, and the names of those that differ by more than 1e-5.
    """

    def tensors() -> dict[str, Tensor]:
        with evaluating(model), trace(model) as seen:
            model(ids)
        return dict(seen)

    right = tensors()
    fault = model.blocks[0].register_forward_hook(lambda block, inputs, output: output - inputs[0])
    wrong = tensors()
    fault.remove()
    later = list(right)[list(right).index("blocks.0") :]
    return later, [name for name in later if (wrong[name] - right[name]).abs().max() > comparison.TOLERANCE]


def random_gpt2(activation: str) -> Any:
    """Return a small GPT-2 of Hugging Face's `transformers` with random weights.

    activation: "gelu", the exact form, or "gelu_new", GPT-2's own.
    """
    from transformers import GPT2Config, GPT2LMHeadModel  # takes seconds

    config = GPT2Config(
        vocab_size=101,
        n_positions=32,
        n_embd=48,
        n_head=4,
        n_layer=3,
        activation_function=activation,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.15, generator=generator)
    return model


def learn(my_gpt: Any, model: Any, batches: Iterator, steps: int, peak: float = 5e-3, warmup: int = 50) -> list[float]:
    """Train your model with your own `training_step`, at chapter 12's rates; return the loss of every step.

    my_gpt: your file as a module, or anything else with a `training_step` of that form.
    More than 200 steps show a progress bar. Errors: TrainingDiverged as soon as a loss is not finite.
    """
    optimizer, losses = make_optimizer(model), []
    for step in tqdm(range(1, steps + 1), disable=steps <= 200, desc="training"):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, peak, min(warmup, steps // 5), steps)
        losses.append(float(my_gpt.training_step(model, *next(batches), optimizer)))
        if not math.isfinite(losses[-1]):
            raise TrainingDiverged(f"at step {step} your training_step returns {losses[-1]}: try a peak below {peak}")
    return losses


def to_library(model: Any) -> DecoderOnly:
    """Return the library's DecoderOnly with the weights of your model, for example for the glass model."""
    theirs = DecoderOnly(model.config)
    theirs.load_state_dict(fixtures.parted(model.state_dict(), theirs.state_dict()))
    return theirs.eval()


def from_library(my_gpt: ModuleType, theirs: DecoderOnly) -> Any:
    """Return your model with the weights of a DecoderOnly of GPT-2's shape.

    Errors: ValueError for a model whose shape differs from my_gpt.py, with the first difference.
    """
    wanted = {"norm": "layer", "norm_position": "pre", "positions": "learned", "bias": True, "tie_weights": True}
    wanted |= {"head_dim": None, "window": None, "qk_norm": False, "parallel": False, "output_bias": False}
    for field, value in wanted.items():
        if (found := getattr(theirs.config, field)) != value:
            raise ValueError(f"this model has {field}={found!r}, but my_gpt.py is written for {value!r}")
    if theirs.config.activation not in ("gelu", "gelu_tanh"):  # two forms of one curve, at most 0.0005 apart
        raise ValueError(f"this model has activation={theirs.config.activation!r}, but my_gpt.py needs 'gelu'")
    if theirs.config.n_kv_heads != theirs.config.n_heads:
        raise ValueError(f"this model's heads share keys (n_kv_heads={theirs.config.n_kv_heads}); my_gpt.py's do not")
    own = my_gpt.MyGPT(theirs.config)
    fixtures.take_weights(own, theirs.state_dict())
    return own.eval()
