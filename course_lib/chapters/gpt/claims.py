"""Chapter 9 measured: how a model starts, weight tying, and what each block adds to the answer."""

import math
import statistics
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.registry import Finding, experiment
from course_lib.claims.short_runs import BATCH, T, final, tinytown_ids
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig, preset
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches, Tinytown, WordTokenizer
from course_lib.trace import trace
from course_lib.training import train

SEEDS = (0, 1, 2)
STEPS = 150
STORIES = 100


# ------------------------------------------------------------------------------------------------------- how it starts
def untrained(std: float, tied: bool, seed: int = 0) -> DecoderOnly:
    """The tinytown preset before training, its token table drawn from N(0, std²); the rest as `initialize` has it."""
    torch.manual_seed(seed)
    config = preset("tinytown").to_dict() | {"tie_weights": tied}
    model = DecoderOnly(TransformerConfig.from_dict(config))
    nn.init.normal_(model.token_embedding.weight, std=std)
    return model


def first_guess(std: float, tied: bool, seed: int = 0) -> tuple[Tensor, float, float]:
    """What an untrained model says about random text.

    Returns: logits (B, T, V); its loss on random targets, nats per token; the share of places where the most probable
    next token is the token that it just read.
    """
    model = untrained(std, tied, seed)
    ids, targets = torch.randint(model.config.vocab_size, (2, 8, T)).unbind()
    with evaluating(model):
        logits, loss = model(ids, targets)
    return logits, loss.item(), (logits.argmax(dim=-1) == ids).float().mean().item()


@experiment("gpt.initial_loss", claim="The loss of an untrained model is ln V.")
def initial_loss() -> Finding:
    ln_v = math.log(preset("tinytown").vocab_size)
    small, large = ([first_guess(std, tied=True, seed=seed)[1] for seed in SEEDS] for std in (0.02, 1.0))
    near = [abs(statistics.fmean(losses) - ln_v) < 0.1 for losses in (small, large)]
    return Finding(
        f"token table from N(0, 0.02²): {statistics.fmean(small):.1f} nats, ln V is {ln_v:.1f}; "
        f"from N(0, 1): over {50 * math.floor(min(large) / 50)}",
        tuple(small),
        "confirmed" if all(near) else "depends" if any(near) else "refuted",
        "It is ln V where all logits are near 0. A tied table with large numbers makes them large from the start.",
    )


def stream_growth(n_layers: int, scaled: bool, seed: int = 0) -> float:
    """Standard deviation of the sum of all branches of an untrained stack, over that of one branch alone.

    scaled: with the division by √(2 · n_layers) that `initialize` makes, or with it undone.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=64, d_model=64, n_heads=2, n_layers=n_layers, max_seq_len=T, positions="rope")
    model = DecoderOnly(config)
    nn.init.normal_(model.token_embedding.weight)
    if not scaled:
        for block in model.blocks:
            for writes in (block.attention.out_proj, block.feed_forward.down_proj):
                nn.init.normal_(writes.weight, std=0.02)
    ids = torch.randint(64, (4, T))
    with evaluating(model), trace(model, "dropout", "blocks.?", "blocks.??") as seen:
        model(ids)
    return (seen[f"blocks.{n_layers - 1}"] - seen["dropout"]).std().item()


@experiment("gpt.branch_scale", claim="Starting branches smaller by √(2 · layers) takes the depth out of it.")
def branch_scale() -> Finding:
    grown, held = (
        tuple(stream_growth(32, scaled, seed) / stream_growth(2, scaled, seed) for seed in SEEDS)
        for scaled in (False, True)
    )
    plain, steady = statistics.fmean(grown), statistics.fmean(held)
    return Finding(
        f"what all branches add, at 32 layers over 2: {plain:.0f} times without the division, {steady:.0f} with it",
        held,
        "confirmed" if steady < 1.5 < plain else "depends" if steady < 0.75 * plain else "refuted",
        "Sixteen times as many branches add up to √16 = 4 times the size; the division takes exactly that out.",
    )


# --------------------------------------------------------------------------------------------------------------- tying
@cache
def tying_losses(tied: bool, std: float, seed: int = 0, steps: int = STEPS) -> tuple[float, ...]:
    """Loss of every step of a small run on Tinytown, its token table drawn from N(0, std²)."""
    tokenizer = WordTokenizer()
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=len(tokenizer), d_model=64, n_heads=2, n_layers=2, max_seq_len=T, positions="rope", tie_weights=tied
    )
    model = DecoderOnly(config)
    nn.init.normal_(model.token_embedding.weight, std=std)
    rng = torch.Generator().manual_seed(seed)
    batches = Batches(tinytown_ids(), BATCH, T, rng, start_id=tokenizer.bos_id)
    return tuple(train(model, batches, steps, 3e-3, 20, progress=False).losses)


@experiment("gpt.tying", claim="Tying the output to the token table helps, or does no harm.")
def tying() -> Finding:
    costs = {
        std: tuple(
            final(tying_losses(True, std, seed, STEPS)) - final(tying_losses(False, std, seed, STEPS)) for seed in SEEDS
        )
        for std in (0.02, 1.0)
    }
    small, large = (statistics.fmean(cost) for cost in costs.values())
    return Finding(
        f"{STEPS} steps, tied minus untied: {_cost(small)} from N(0, 0.02²), {_cost(large)} from N(0, 1)",
        costs[0.02],
        "confirmed" if max(small, large) < 0.05 else "depends" if min(small, large) < 0.25 else "refuted",
        "With small numbers it costs little or nothing; the N(0, 1) of nn.Embedding makes the first logits huge.",
    )


def _cost(nats: float) -> str:
    """Rounded so far that another machine says the same."""
    if abs(nats) < 0.05:
        return "no difference"
    size = f"{abs(nats):.1f}" if abs(nats) < 0.5 else f"{round(2 * abs(nats)) / 2:g}"
    return f"about {size} nats {'worse' if nats > 0 else 'better'}"


# ------------------------------------------------------------------------------------------------ what the blocks add
def stream_names(model: DecoderOnly) -> list[str]:
    """The names under which `trace` records the residual stream: at its start, then behind every block."""
    return ["dropout", *(f"blocks.{i}" for i in range(len(model.blocks)))]


def logit_lens(model: DecoderOnly, ids: Tensor) -> Tensor:
    """What the model would say if it stopped early: logits (n_layers + 1, B, T, V), from the stream at its start and
    behind every block, each through the final norm and the output head.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    names = stream_names(model)
    with evaluating(model), trace(model, *names) as seen:
        model(ids)
        return torch.stack([model.output(model.final_norm(seen[name])) for name in names])


@cache
def held_out(stories: int) -> list[list[int]]:
    """Stories that the shipped model has not seen, as ids."""
    tokenizer = WordTokenizer()
    return [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(stories)]


def lens_losses(model: DecoderOnly, stories: int) -> Tensor:
    """−ln p of every token of held-out stories (n_layers + 1, N), through the logit lens."""
    losses = []
    for story in held_out(stories):
        logits = logit_lens(model, torch.tensor([story[:-1]]))[:, 0]  # (n_layers + 1, T, V)
        targets = torch.tensor(story[1:]).expand(len(logits), -1)  # (n_layers + 1, T)
        losses.append(F.cross_entropy(logits.transpose(1, 2), targets, reduction="none"))
    return torch.cat(losses, dim=1)


@experiment("gpt.lens", claim="Every block brings the answer nearer.")
def lens() -> Finding:
    losses = lens_losses(load_pretrained("tinytown")[0], STORIES)
    means = losses.mean(dim=1).tolist()
    falls = all(after < before for before, after in pairwise(means))
    worse = (losses[1:] > losses[:-1] + 0.1).float().mean(dim=1).tolist()  # of the tokens, behind each block
    return Finding(
        f"loss read off behind blocks 1 to {len(means) - 1}: {', '.join(f'{mean:.1f}' for mean in means[1:])} nats; "
        f"but a block makes it worse for up to {5 * round(20 * max(worse))} % of the tokens",
        tuple(means),
        "refuted" if not falls else "depends" if max(worse) > 0.05 else "confirmed",
        "On average yes. For a single token a block may undo what an earlier one said, and a later one mend it.",
    )


def loss_without_block(model: DecoderOnly, left_out: int | None, stories: int) -> float:
    """Loss in nats per token on held-out stories with one block left out: the stream passes it by."""
    blocks = model.blocks
    model.add_module("blocks", nn.ModuleList(block for i, block in enumerate(blocks) if i != left_out))
    try:
        losses = []
        for story in held_out(stories):
            with evaluating(model):
                logits = model(torch.tensor([story[:-1]]))[0]  # (T, V)
            losses.append(F.cross_entropy(logits, torch.tensor(story[1:]), reduction="none"))
    finally:
        model.blocks = blocks
    return torch.cat(losses).mean().item()


@experiment("gpt.one_block_less", claim="A trained model bears the loss of any one block.")
def one_block_less() -> Finding:
    model, _ = load_pretrained("tinytown")
    whole = loss_without_block(model, None, STORIES)
    rises = tuple(loss_without_block(model, i, STORIES) - whole for i in range(len(model.blocks)))
    return Finding(
        f"of {len(rises)} blocks, the cheapest costs {_nats(min(rises))} per token, the dearest {_nats(max(rises))}",
        rises,
        "confirmed" if max(rises) < 0.2 else "depends" if min(rises) < 0.2 else "refuted",
        "Some blocks are nearly spare, others are not: without the first one the rest read a stream they never met.",
    )


def _nats(number: float) -> str:
    return f"{number:.1f} nats" if number < 1 else f"about {number:.0f} nat{'s' * (round(number) > 1)}"
