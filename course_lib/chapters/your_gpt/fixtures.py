"""How the tests of chapter 18 use an answer if one call is not enough: see `grading/fixtures.py`."""

import functools
import inspect
import linecache
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from course_lib.config import TransformerConfig
from course_lib.grading.exercise import ArgumentChanged
from course_lib.sampling import sample_next_token


def gathered(answer, kept, exercises):
    """Return the parts and the list that the answer makes from a record with `kept`; "KeyError" if it raises a
    KeyError.

    A text stands for each part here, such as "your masks.causal" or "the library's mask".

    Errors: ArgumentChanged if the answer changes the library or the table.
    """

    def mine(exercise):
        if exercise not in exercises.values() or "no_such" in exercise:
            raise KeyError(exercise)
        if exercise not in kept:
            raise ValueError(f"no answer to {exercise!r} is kept")
        return f"your {exercise}"

    library, table = {name: f"the library's {name}" for name in exercises}, dict(exercises)
    before = dict(library)
    try:
        gathered = answer(mine, table, library)
    except KeyError:
        return "KeyError", []
    if library != before:
        raise ArgumentChanged("library")
    if table != exercises:
        raise ArgumentChanged("exercises")
    return gathered


def found_by_grammar(answer, stories, tellable):
    """Return the answer's two numbers for stories; `tellable` has ln P of those that the grammar can generate."""
    known = dict(tellable)
    return answer(stories, lambda story: known.get(story, float("-inf")))


# ----------------------------------------------------------------------------------------- my_gpt.py, stage by stage
STAGES = ("Embedding", "Positions", "Norm", "Attention", "FeedForward", "Block", "MyGPT", "training_step", "write")
PARTS = {"norm1": "Norm", "attention": "Attention", "norm2": "Norm", "feed_forward": "FeedForward"}  # of a block
LENT = "lent by the library"  # the result of a stage that calls `lent`
UNSTEADY = "has two results for one input"
lent_now: list[str] = []  # the stages that `workshop.lent` has computed since the list was cleared
PROJECTIONS = ("q_proj", "k_proj", "v_proj")


def a_stage(stage: str, config: dict, weights: dict, given: dict, alone: bool) -> SimpleNamespace:
    """A stage of my_gpt.py with the weights and inputs of one comparison.

    alone: whether other functions replace the other stages, so that their mistakes do not show in this one.
    """
    return SimpleNamespace(stage=stage, config=config, weights=weights, given=given, alone=alone)


def results_of_stage(answer, case: SimpleNamespace) -> dict | str:
    """Return the tensors that a stage of the answer computes, by name, in the order of the computation; LENT if the
    library computes them for the learner.

    answer: a module or the names in it, the class `MyGPT` of a file or a notebook, the text of a file, or its path.
    """
    found, lent = run_stage(answer, case)
    return LENT if lent else found


def run_stage(answer, case: SimpleNamespace) -> tuple[dict, bool]:
    """Return the tensors of a stage, and whether the library computes this stage for the learner."""
    names = opened(answer)
    del lent_now[:]
    found = RUNS.get(case.stage, _modules)(names, case)
    return found, case.stage in lent_now


vars(results_of_stage)["brings_the_result"] = True  # of the answer, not a verdict: stages can earn points


def opened(answer) -> Mapping[str, Any]:
    """Return the names of a my_gpt.py. Errors: ValueError if the answer is nothing that could be one."""
    answer = getattr(answer, "handed_in", answer)
    if isinstance(answer, type):
        functions = [part for each in answer.__mro__ for part in vars(each).values() if isinstance(part, FunctionType)]
        home = inspect.unwrap(functions[0]).__globals__ if functions else {}
        return {**home, "MyGPT": answer}
    if isinstance(answer, str):
        if "\n" not in answer and not Path(answer).is_file():
            raise ValueError(f"there is no file {answer!r} here: give the path of my_gpt.py")
        return _names_in(answer if "\n" in answer else Path(answer).read_text(encoding="utf-8"))
    if not isinstance(answer, Mapping | ModuleType):
        raise ValueError(
            f"your answer is of the type {type(answer).__name__}: give the class MyGPT, or the path of my_gpt.py"
        )
    return answer if isinstance(answer, Mapping) else vars(answer)


@functools.lru_cache(maxsize=4)
def _names_in(text: str) -> dict[str, Any]:
    title = "my_gpt.py"
    linecache.cache[title] = (len(text), None, text.splitlines(keepends=True), title)  # for the line in a message
    module = ModuleType("my_gpt")
    exec(compile(text, title, "exec"), vars(module))
    return vars(module)


def named(names: Mapping[str, Any], name: str) -> Any:
    """Return a class or function of the file. Errors: ValueError if it is missing."""
    if not callable(names.get(name)):
        raise ValueError(f"there is no `{name}` in your file: copy it from the skeleton")
    return names[name]


def take_weights(model: nn.Module, weights: Mapping[str, Tensor], parts: tuple[str, ...] = ("",)) -> None:
    """Copy weights into a model with the names of the library's. A linear layer in place of the three projections to
    queries, keys and values takes theirs, one below the other; the model's own buffers stay.

    parts: the beginnings of the names that matter. Errors: ValueError for the first name or shape that does not fit.
    """
    own = dict(model.named_parameters(remove_duplicate=False))
    given = fused(weights, own)
    given = {name: weight for name, weight in given.items() if name.startswith(parts)}
    for name, weight in given.items():
        if name == "output.weight" and name not in own:
            continue  # a model that multiplies by the table itself
        if name not in own:
            near = [each for each in own if each.rpartition(".")[0] == name.rpartition(".")[0]]
            has = f"; this layer has {', '.join(near)}" if near else ""
            raise ValueError(f"your model has no weight `{name}`{has}: keep the names and the layers of the skeleton")
        if own[name].shape != weight.shape:
            shapes = f"{tuple(own[name].shape)}, and the library's has {tuple(weight.shape)}"
            raise ValueError(f"your weight `{name}` has the shape {shapes}")
        with torch.no_grad():
            own[name].copy_(weight)
    for name, weight in given.items():
        if name in own and not torch.equal(own[name], weight):
            raise ValueError(f"your weight `{name}` is shared with another layer: each layer has its own weights")
    if extra := [name for name in own if name.startswith(parts) and name not in given]:
        raise ValueError(f"your model has a weight `{extra[0]}`, which the library's model does not have")


def fused(weights: Mapping[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """Return the weights with q, k and v joined where a model has one layer for all three."""
    found = dict(weights)
    for name in own:
        home, _, last = name.rpartition(".")
        apart = [f"{home.rpartition('.')[0]}.{each}.{last}" for each in PROJECTIONS]
        if name not in weights and all(each in weights and each not in own for each in apart):
            found = {key: weight for key, weight in found.items() if key not in apart}
            found[name] = torch.cat([weights[each] for each in apart])
    return found


def parted(weights: Mapping[str, Tensor], wanted: Collection[str]) -> dict[str, Tensor]:
    """Return the weights under the names that are wanted, with q, k and v apart again."""
    found = {name: weight for name, weight in weights.items() if name in wanted}
    for name, weight in weights.items():
        home, _, last = name.rpartition(".")
        apart = [f"{home.rpartition('.')[0]}.{each}.{last}" for each in PROJECTIONS]
        if name not in wanted and all(each in wanted and each not in weights for each in apart):
            found |= dict(zip(apart, weight.chunk(3)))
    if "output.weight" in wanted:
        found.setdefault("output.weight", found["token_embedding.weight"])
    return found


def _built(names: Mapping[str, Any], case: SimpleNamespace, parts: tuple[str, ...] = ("",)) -> Any:
    model = named(names, "MyGPT")(TransformerConfig(**case.config))
    take_weights(model, case.weights, parts)
    return model.eval()


def modules_of(stage: str, n_layers: int) -> list[str]:
    """Return the names of a stage's modules in a model, in the order of the computation."""
    found = [("token_embedding", "Embedding"), ("positions", "Positions")]
    for i in range(n_layers):
        found += [*((f"blocks.{i}.{part}", of) for part, of in PARTS.items()), (f"blocks.{i}", "Block")]
    return [name for name, of in [*found, ("final_norm", "Norm")] if of == stage]


def _modules(names: Mapping[str, Any], case: SimpleNamespace) -> dict:
    """Compute each module of a stage from its own input, and the gradient that it passes on."""
    wanted = list(case.given)
    model = _built(names, case, ("-",) if case.alone else tuple(f"{name}." for name in wanted))
    found: dict[str, Any] = {}
    for name in wanted:
        module, given = model.get_submodule(name), case.given[name]
        if case.alone:
            _stand_in(module)
        if given.is_floating_point():
            given = given.clone().requires_grad_()
        out = module(given)
        found[name] = out if _is_steady(out, functools.partial(module, given.detach())) else UNSTEADY
        if found[name] is out and isinstance(out, Tensor) and out.requires_grad and out.numel():
            source = given if given.is_floating_point() else next(module.parameters())
            ramp = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view(out.shape)
            (grad,) = torch.autograd.grad((out * ramp).sum(), source, allow_unused=True)
            found[f"gradient through {name}"] = torch.zeros_like(source) if grad is None else grad
        elif found[name] is out:
            found[f"gradient through {name}"] = "is missing: nothing can be trained through it"
    return found


def _is_steady(one: Any, again: Callable[[], Any]) -> bool:
    """Return whether further calls have the same result; a few, because dropout can spare a small tensor."""
    if not isinstance(one, Tensor):
        return True  # whatever is wrong shows in the comparison
    with torch.no_grad():
        return all(torch.equal(one.nan_to_num(), again().nan_to_num()) for _ in range(4))


KINDS = tuple(PARTS)


class StandIn(nn.Module):
    """Some function of x in place of a stage. None is the right one, but each is another one."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "norm1":
            return 0.7 * x + 0.2
        if self.kind == "norm2":
            return 1.3 * x.tanh() - 0.1
        if self.kind == "attention":
            return x.flip(-1).cumsum(1).tanh()
        return 0.5 * x.roll(1, -1) + x.square().tanh()


def _stand_in(block: nn.Module) -> None:
    for kind in PARTS:
        setattr(block, kind, StandIn(kind))


def _complete(names: Mapping[str, Any], case: SimpleNamespace) -> dict:
    """Compute the logits and the losses of a complete model, and say whether it has one table for its two uses."""
    given = case.given
    model = _built(names, case, ("token_embedding.", "output.") if case.alone else ("",))
    if case.alone:
        table = model.token_embedding.weight
        model.token_embedding.forward = lambda ids: table.roll(1, 0)[ids]
        for kind, module in zip(KINDS, (model.positions, model.final_norm)):
            module.forward = StandIn(kind).forward
        for i, block in enumerate(model.blocks):
            block.forward = StandIn(KINDS[2 + i % 2]).forward
    ids, targets, padded = given["ids"], given["targets"], given["padded"]
    logits = model(ids.clone())
    found = {"logits": logits if _is_steady(logits, lambda: model(ids.clone())) else UNSTEADY}
    both = model(ids.clone(), targets.clone())
    if not isinstance(both, (tuple, list)) or len(both) != 2:
        return {**found, "logits and loss": "are not two values: return (logits, loss) if there are targets"}
    found |= {"logits with targets": both[0], "loss": _a_tensor(both[1])}
    found["loss where some targets are -100"] = _a_tensor(model(ids.clone(), padded.clone())[1])
    table = model.token_embedding.weight
    output = getattr(getattr(model, "output", None), "weight", table)
    found["output.weight and token_embedding.weight"] = "are one table" if output is table else "are two tables"
    return found


def _a_tensor(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, (int, float)) else value


class NextOf(nn.Module):
    """A model without a Transformer: the logits depend on the last two tokens and on the number of tokens read."""

    def __init__(self, config: TransformerConfig, table: Tensor):
        super().__init__()
        self.config = config
        V = config.vocab_size
        self.table = nn.Parameter(table.flatten().repeat(3 * V * V // table.numel() + 1)[: 3 * V * V].view(3, V, V))

    def forward(self, ids: Tensor, targets: Tensor | None = None):
        before = ids.roll(1, 1)
        before[:, 0] = 0
        logits = self.table[0][ids] + self.table[1][before] + ids.shape[1] * self.table[2][0] / 10
        if targets is None:
            return logits
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _model_of(names: Mapping[str, Any], case: SimpleNamespace) -> Any:
    if not case.alone:
        return _built(names, case)
    return NextOf(TransformerConfig(**case.config), case.weights["token_embedding.weight"]).eval()


def _trained(names: Mapping[str, Any], case: SimpleNamespace) -> dict:
    """Do two updates by the file's training step, and return both losses and all weights."""
    step, model, given = named(names, "training_step"), _model_of(names, case), case.given
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # a step may put the model into training mode, and chance is no mistake
    optimizer: torch.optim.Optimizer
    if given["optimizer"] == "AdamW":
        decayed = [p for p in model.parameters() if p.dim() >= 2]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        # A gradient that is 0 but for rounding must not become a step of full length.
        optimizer = torch.optim.AdamW(groups, lr=given["lr"], betas=(0.9, 0.95), eps=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=given["lr"])
    found: dict[str, Any] = {}
    for i, (ids, targets) in enumerate(given["batches"], 1):
        loss = step(model, ids.clone(), targets.clone(), optimizer)
        found[f"loss of step {i}"] = "is None: return the loss" if loss is None else _a_tensor(loss)
    own = {name: weight.detach() for name, weight in model.named_parameters()}
    if not case.alone:
        # The gradient of the keys' bias is 0 but for rounding, which AdamW makes large.
        own = {name: part for name, part in parted(own, case.weights).items() if not name.endswith("k_proj.bias")}
    return found | {f"{name} after {len(given['batches'])} steps": weight for name, weight in own.items()}


def _multinomial(
    probabilities: Tensor, num_samples: int = 1, *rest: Any, generator: Any = None, **other: Any
) -> Tensor:
    """Sample as the library does, with one random number per row: both ways of sampling are right."""
    return sample_next_token(probabilities.log(), generator=generator)[..., None]


def _written(names: Mapping[str, Any], case: SimpleNamespace) -> dict:
    """Let the file write, and say whether the tokens that it was given stay."""
    write, model, given = named(names, "write"), _model_of(names, case), case.given
    ids, generator = given["ids"].clone(), torch.Generator().manual_seed(given["seed"])
    with mock.patch.object(torch, "multinomial", _multinomial):
        written = write(model, ids, given["n_tokens"], generator)
    kept = torch.equal(ids, given["ids"])
    return {"ids": written, "the ids that it was given": "stay" if kept else "are changed: work on a copy"}


RUNS = {"MyGPT": _complete, "training_step": _trained, "write": _written}
