"""Training compared with its peers: a full update with forward pass, backward pass, clipping and AdamW.

Each model trains in a process of its own, as its users run it: ours as `train` runs it. The same models are then
measured in one process, where all of them have the same memory settings.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from course_lib.bench.apart import apart
from course_lib.bench.machine import Matmul
from course_lib.bench.peers import same_weights
from course_lib.bench.report import Point, Row
from course_lib.bench.rounds import Contest, Spread, in_turns
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import count_parameters, forward_flops
from course_lib.training import make_optimizer
from course_lib.training_options.gradients import add_gradients, block_options, clip, require_bf16, require_compiler
from course_lib.training_options.memory import keep_freed_memory

TINYTOWN = TransformerConfig(
    vocab_size=343, d_model=128, n_heads=4, n_layers=4, max_seq_len=128, activation="gelu_tanh"
)  # the shipped model's sizes, in GPT-2's variant, which every peer supports
SHAPES = {"Tinytown's size": (TINYTOWN, 16, 128, 20), "GPT-2 small": (PRESETS["gpt2"], 2, 128, 1)}  # B, T, updates
PEERS = ("transformers", "nn.TransformerEncoder", "nanoGPT-shaped", "matmul")
GOALS = {
    "Tinytown's size": {"transformers": 1.25, "nn.TransformerEncoder": 1.15, "nanoGPT-shaped": 1.1, "matmul": 0.65},
    "GPT-2 small": {"transformers": 1.1, "nn.TransformerEncoder": 1.1, "nanoGPT-shaped": 1.05, "matmul": 0.75},
}
BF16 = {"Tinytown's size": 1.35, "GPT-2 small": 2.0}  # times as fast as in float32
RATE, MAX_NORM = 1e-4, 1.0


def a_batch(config: TransformerConfig, B: int, T: int) -> tuple[Tensor, Tensor]:
    """Return random ids and targets from the full vocabulary, (B, T) each."""
    ids = torch.randint(config.vocab_size, (B, T + 1), generator=torch.Generator().manual_seed(0))
    return ids[:, :-1], ids[:, 1:]


def updates(model: nn.Module, batch: tuple[Tensor, Tensor], n: int, precision: str = "float32") -> Callable[[], None]:
    """Return a function that makes n updates of a model in the same way as `train`."""
    optimizer = make_optimizer(model)
    for group in optimizer.param_groups:
        group["lr"] = RATE

    def run() -> None:
        for _ in range(n):
            optimizer.zero_grad(set_to_none=True)
            add_gradients(model, [batch], precision)
            clip(model, MAX_NORM)
            optimizer.step()

    return run


def training_flops(config: TransformerConfig, B: int, T: int) -> float:
    """Return the flops of one update: a forward pass, and twice that for the backward pass."""
    return 3 * B * forward_flops(config, T)


def as_used(who: str, config: TransformerConfig, B: int, T: int, n: int) -> Callable[[], object]:
    """Return the contestant `who`, set up as its users run it; for a process of its own."""
    if who == "matmul":
        return Matmul()
    if who == "ours":
        keep_freed_memory()  # as `train` does
    return updates(same_weights(config)[who].train(), a_batch(config, B, T), n)


def measure(rounds: int) -> Iterator[Row | Point]:
    """Measure both sizes, also in bfloat16 if the processor supports it."""
    for name, (config, B, T, n) in SHAPES.items():
        batch, flops = a_batch(config, B, T), training_flops(config, B, T)
        goals = GOALS.get(name, dict.fromkeys(PEERS))
        with apart({who: (as_used, who, config, B, T, n) for who in ("ours", *goals)}) as contestants:
            contest = in_turns(contestants, rounds, f"training, {name}", warm=True)
        yield from rows(name, contest, n, flops, goals)
        weights = 4 * count_parameters(config).total
        # An update reads the weights twice, writes and reads gradients, and reads and writes AdamW's state and weights.
        yield Point(f"training, {name}", flops, 9 * weights, contest.of("ours") / n)
        together = {who: updates(model.train(), batch, n) for who, model in same_weights(config).items()}
        contest = in_turns({**together, "matmul": Matmul()}, rounds, f"in one process, {name}", warm=True)
        yield from rows(f"{name}, all in one process", contest, n, flops, dict.fromkeys(PEERS))
        del together  # free the models and their optimizer states
        yield from options(name, config, batch, n, rounds)


def options(name: str, config: TransformerConfig, batch: tuple[Tensor, Tensor], n: int, rounds: int) -> Iterator[Row]:
    """Compare one size in 16 bits and compiled with the same model in float32 and eager, if this machine can."""
    model = same_weights(config)["ours"].train()
    contestants = {"float32": updates(model, batch, n)}
    try:
        require_bf16(batch[0].device)
        contestants["bf16"] = updates(copy.deepcopy(model), batch, n, "bf16")
    except ValueError as refused:
        print(f"no bf16: {refused}")
    with ExitStack() as stack:
        try:
            require_compiler(batch[0].device)
            compiled = copy.deepcopy(model)
            stack.enter_context(block_options(compiled, compiled=True, recomputed=False))
            contestants["compiled"] = updates(compiled, batch, n)
        except ValueError as refused:
            print(f"not compiled: {refused}")
        contest = in_turns(contestants, rounds, f"options of training, {name}", warm=True)
    for option in contestants.keys() - {"float32"}:
        ratio, each = contest.times_as_fast(option, "float32"), contest.of(option) / n
        least = BF16.get(name) if option == "bf16" else 1.0
        yield Row("train", f"{name}, {option}", "itself, float32 and eager", ratio, each, "per update", least)


def rows(name: str, contest: Contest, n: int, flops: float, goals: Mapping[str, float | None]) -> Iterator[Row]:
    """Return the rows of one size. n: updates per run. flops: per update. goals: the least ratio to each peer."""
    seconds = contest.of("ours") / n
    for peer, goal in goals.items():
        ratio = contest.times_as_fast("ours", peer)
        if peer != "matmul":
            yield Row("train", name, peer, ratio, seconds, "per update", least=goal)
            continue
        share = n * flops / Matmul.flops  # our flops as a fraction of the product's
        yield Row("train", name, "the matmul rate", Spread(*(share * r for r in ratio)), seconds, "per update", goal)
