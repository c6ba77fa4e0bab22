"""Chapter 9 measured: how a model starts, weight tying, and what each block adds to the answer."""

import math
import statistics
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.short_runs import BATCH, T, final, tinytown_ids
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig, preset
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches, Tinytown, WordTokenizer
from course_lib.trace import trace
from course_lib.training import train

SEEDS = (0, 1, 2)
HELD_OUT = tuple(HELD_OUT_SEED + i for i in range(3))  # stories of these seeds are for measuring only
STEPS = 150
STORIES = 100  # held-out stories, of one seed
FITTED = 300  # stories that a reader is fitted to, or means are taken over


# ------------------------------------------------------------------------------------------------------- how it starts
def untrained(std: float, tied: bool, seed: int = 0) -> DecoderOnly:
    """Return the tinytown preset before training, its token table drawn from N(0, std²); the rest as `initialize` has
    it."""
    torch.manual_seed(seed)
    config = preset("tinytown").to_dict() | {"tie_weights": tied}
    model = DecoderOnly(TransformerConfig.from_dict(config))
    nn.init.normal_(model.token_embedding.weight, std=std)
    return model


def first_guess(std: float, tied: bool, seed: int = 0) -> tuple[Tensor, float, float]:
    """Return what an untrained model says about random text.

    Returns: logits (B, T, V); its loss on random targets, nats per token; the share of places where the most probable
    next token is the token that it read last.
    """
    model = untrained(std, tied, seed)
    ids, targets = torch.randint(model.config.vocab_size, (2, 8, T)).unbind()
    with evaluating(model):
        logits, loss = model(ids, targets)
    return logits, loss.item(), (logits.argmax(dim=-1) == ids).float().mean().item()


@experiment(
    "gpt.initial_loss",
    claim="Initialised correctly, a model's first loss is ln V, that of an even guess.",
    source=Source(
        "Karpathy 2019", "A Recipe for Training Neural Networks, § 2", "https://karpathy.github.io/2019/04/25/recipe/"
    ),
    control="the same models and random texts with a token table from N(0, 1), as nn.Embedding draws it, tied and not",
    threshold="confirmed if the table from N(0, 0.02²) gives ln V within 0.1 nats with every seed, else refuted",
    seeds=SEEDS,
)
def initial_loss() -> Finding:
    ln_v = math.log(preset("tinytown").vocab_size)
    small, large, untied = (
        [first_guess(std, tied, seed)[1] for seed in SEEDS] for std, tied in ((0.02, True), (1.0, True), (1.0, False))
    )
    return Finding(
        f"token table from N(0, 0.02²): {statistics.fmean(small):.1f} nats, ln V is {ln_v:.1f}; from N(0, 1): "
        f"over {50 * math.floor(min(large) / 50)} if tied to the output, {statistics.fmean(untied):.1f} if not",
        tuple(small),
        "confirmed" if max(abs(loss - ln_v) for loss in small) < 0.1 else "refuted",
        "It is ln V where all logits are near 0. A tied table with large numbers makes them large from the start.",
    )


def stream_growth(n_layers: int, scaled: bool, seed: int = 0) -> float:
    """Return the standard deviation of the sum of all branches of an untrained stack, over that of one branch alone.

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


@experiment(
    "gpt.branch_scale",
    claim="Dividing the initial weights of residual layers by √N accounts for what accumulates over N of them.",
    source=Source(
        "Radford et al. 2019",
        "Language Models are Unsupervised Multitask Learners (GPT-2), § 2.3",
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
    ),
    control="the same untrained stacks of 2 and 32 layers, tokens and seeds with the division undone",
    threshold="what all branches add, at 32 layers over 2 (mean): confirmed if under 1.5 with the division and over it "
    "without, depends if it takes a quarter off, else refuted",
    seeds=SEEDS,
)
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
def tying_losses(
    tied: bool, std: float, seed: int = 0, steps: int = STEPS, large_output: bool = False
) -> tuple[float, ...]:
    """Return the loss of every step of a small run on Tinytown, its token table drawn from N(0, std²). large_output: an
    output table of its own is drawn from N(0, std²) too, as a tied one is."""
    tokenizer = WordTokenizer()
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=len(tokenizer), d_model=64, n_heads=2, n_layers=2, max_seq_len=T, positions="rope", tie_weights=tied
    )
    model = DecoderOnly(config)
    nn.init.normal_(model.token_embedding.weight, std=std)
    if large_output:
        nn.init.normal_(model.output.weight, std=std)
    rng = torch.Generator().manual_seed(seed)
    batches = Batches(tinytown_ids(), BATCH, T, rng, start_id=tokenizer.bos_id)
    return tuple(train(model, batches, steps, 3e-3, 20, progress=False).losses)


@experiment(
    "gpt.tying",
    claim="Tying the output to the token table makes a model smaller without harming its performance.",
    source=Source(
        "Press & Wolf 2017", "Using the Output Embedding to Improve Language Models", "https://arxiv.org/abs/1608.05859"
    ),
    control="the same models, batches and steps untied, both tables drawn as the tied one is: from N(0, 0.02²), or "
    "from N(0, 1)",
    threshold="cost: tied minus untied, nats (mean); confirmed if under 0.05 from either start, depends if under 0.25 "
    "from one, else refuted",
    seeds=SEEDS,
)
def tying() -> Finding:
    costs = {
        std: tuple(
            final(tying_losses(True, std, seed, STEPS)) - final(tying_losses(False, std, seed, STEPS, True))
            for seed in SEEDS
        )
        for std in (0.02, 1.0)
    }
    small, large = (statistics.fmean(cost) for cost in costs.values())
    return Finding(
        f"{STEPS} steps, tied minus untied: {_cost(small)} from N(0, 0.02²), {_cost(large)} from N(0, 1)",
        costs[0.02],
        "confirmed" if max(small, large) < 0.05 else "depends" if min(small, large) < 0.25 else "refuted",
        "With small numbers it costs little; with large ones much, because a tied model says its own last token with "
        "conviction. The paper's gain was measured with large vocabularies, and ours is small.",
    )


def _cost(nats: float) -> str:
    """Round so far that another machine says the same."""
    if abs(nats) < 0.05:
        return "no difference"
    size = f"{abs(nats):.1f}" if abs(nats) < 0.5 else f"{round(2 * abs(nats)) / 2:g}"
    return f"about {size} nats {'worse' if nats > 0 else 'better'}"


# ------------------------------------------------------------------------------------------------ what the blocks add
def stream_names(model: DecoderOnly) -> list[str]:
    """Return the names under which `trace` records the residual stream: at its start, then after every block."""
    return ["dropout", *(f"blocks.{i}" for i in range(len(model.blocks)))]


def logit_lens(model: DecoderOnly, ids: Tensor) -> Tensor:
    """Return what the model would say if it stopped early: logits (n_layers + 1, B, T, V), from the stream at its start
    and after every block, each through the final norm and the output head.

    Source: nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    with evaluating(model):
        return torch.stack([model.output(model.final_norm(stream)) for stream in streams(model, ids)])


def streams(model: DecoderOnly, ids: Tensor) -> list[Tensor]:
    """Return the residual stream (B, T, d_model) at its start, then after every block."""
    names = stream_names(model)
    with evaluating(model), trace(model, *names) as seen:
        model(ids)
    return [seen[name] for name in names]


@cache
def encoded(stories: int, seed: int = HELD_OUT_SEED) -> list[list[int]]:
    """Return stories as ids; those of HELD_OUT the shipped model has not seen."""
    tokenizer = WordTokenizer()
    return [tokenizer.encode(story) for story in Tinytown(seed).sample(stories)]


def lens_losses(model: DecoderOnly, stories: int) -> Tensor:
    """Return −ln p of every token of held-out stories (n_layers + 1, N), through the logit lens."""
    read, targets = _streams_and_targets(model, stories)
    with evaluating(model):
        return torch.stack([_losses(model, stream, targets) for stream in read])


def _streams_and_targets(model: DecoderOnly, stories: int, seed: int = HELD_OUT_SEED) -> tuple[list[Tensor], Tensor]:
    """Return the stream of every token of these stories, (N, d_model) at each height, and the tokens that come next."""
    told = encoded(stories, seed)
    targets = torch.cat([torch.tensor(story[1:]) for story in told])  # (N,)
    heights = [_of_many(model, [story[:-1] for story in told[i : i + 50]]) for i in range(0, len(told), 50)]
    return [torch.cat(each) for each in zip(*heights)], targets


def _of_many(model: DecoderOnly, told: list[list[int]]) -> list[Tensor]:
    """Return the stream of every token of many texts, (N, d_model) at each height, read at once: what fills up the
    shorter ones stands after everything that counts."""
    lengths = torch.tensor([len(ids) for ids in told])
    filled = torch.tensor([ids + [0] * (int(lengths.max()) - len(ids)) for ids in told])  # (B, T)
    counts = torch.arange(filled.shape[1]) < lengths[:, None]  # (B, T)
    return [height[counts] for height in streams(model, filled)]


def _losses(model: DecoderOnly, stream: Tensor, targets: Tensor) -> Tensor:
    """Return −ln p of every target, read off the stream."""
    return F.cross_entropy(model.output(model.final_norm(stream)), targets, reduction="none")


def fitted_losses(model: DecoderOnly, stories: int, seed: int = 0, steps: int = 100) -> Tensor:
    """Return −ln p of every token of held-out stories (n_layers + 1, N), read off through a reader of its own for each
    height.

    A reader is one matrix and a bias before the final norm, trained for some steps to predict the next token of other
    stories; the model stays as it is. What the logit lens cannot read, because a block keeps it in directions of its
    own, such a reader may. Source: Belrose et al. 2023, "Eliciting Latent Predictions from Transformers with the Tuned
    Lens"; theirs learns to say what the last block will say.
    """
    known, answers = _streams_and_targets(model, FITTED, seed)
    held_out, targets = _streams_and_targets(model, stories)
    rng = torch.Generator().manual_seed(seed)
    losses = []
    for stream, test in zip(known, held_out):
        reader = nn.Linear(stream.shape[1], stream.shape[1])
        nn.init.eye_(reader.weight)
        nn.init.zeros_(reader.bias)
        optimizer = torch.optim.Adam(reader.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        for _ in range(steps):
            drawn = torch.randint(len(answers), (512,), generator=rng)
            loss = _losses(model, reader(stream[drawn]), answers[drawn]).mean()
            loss.backward(inputs=list(reader.parameters()))
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        with torch.no_grad():
            losses.append(_losses(model, reader(test), targets))
    return torch.stack(losses)


@experiment(
    "gpt.lens",
    claim="Layer by layer a model gradually refines an initial guess.",
    source=Source(
        "nostalgebraist 2020",
        "interpreting GPT: the logit lens",
        "https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens",
    ),
    control="the same streams read through a matrix fitted to each block (Belrose et al. 2023), with three seeds",
    threshold="worse: a token that costs over 0.1 nats more after a block than before it; confirmed if the mean loss "
    "falls with every block and at most 5 % of the tokens get worse, both with either reader; depends if the mean loss "
    "falls; else refuted",
    seeds=SEEDS,
)
def lens() -> Finding:
    model = load_pretrained("tinytown")[0]
    lensed = lens_losses(model, STORIES)
    fitted = torch.stack([fitted_losses(model, STORIES, seed) for seed in SEEDS]).mean(dim=0)
    means, readable = (losses.mean(dim=1).tolist() for losses in (lensed, fitted))
    falls = all(after < before for values in (means, readable) for before, after in pairwise(values))
    worse = [(each[1:] > each[:-1] + 0.1).float().mean(dim=1).max().item() for each in (lensed, fitted)]
    said = (", ".join(f"{mean:.1f}" for mean in values) for values in (means[1:], readable[1:]))
    return Finding(
        "nats after blocks 1 to {}: {} through the lens, {} through a reader fitted to each; a block makes it worse "
        "for up to {} % and {} % of the tokens".format(
            len(means) - 1, *said, *(5 * round(20 * share) for share in worse)
        ),
        (*means, *readable),
        "refuted" if not falls else "depends" if max(worse) > 0.05 else "confirmed",
        "On average each block brings the answer nearer, and the first brings most of it: the lens reads early blocks "
        "badly. For a single token a block may undo what an earlier one said.",
    )


def mean_writes(model: DecoderOnly, block: int) -> Tensor:
    """Return what a block writes to the stream after each token of the vocabulary (V, d_model), on average over stories
    that are not held out; for tokens that do not occur, the average over all."""
    total = torch.zeros(model.config.vocab_size, model.config.d_model)
    count = torch.zeros(model.config.vocab_size, 1)
    told = [story[:-1] for story in encoded(FITTED, seed=1)]
    for some in (told[i : i + 50] for i in range(0, len(told), 50)):
        ids, heights = torch.cat([torch.tensor(ids) for ids in some]), _of_many(model, some)
        total.index_add_(0, ids, heights[block + 1] - heights[block])
        count.index_add_(0, ids, torch.ones(len(ids), 1))
    return torch.where(count > 0, total / count.clamp(min=1), total.sum(dim=0) / count.sum())


def without_block(
    model: DecoderOnly, block: int | None, stories: int, seed: int = HELD_OUT_SEED, instead: Tensor | None = None
) -> tuple[float, float]:
    """Return loss in nats per token, and the share of tokens that the model's first guess is, with one block left out.

    instead: what is written in its place after each token (V, d_model); nothing unless given.
    """
    losses, right = [], []
    for story in encoded(stories, seed):
        ids, targets = torch.tensor([story[:-1]]), torch.tensor(story[1:])

        def pass_by(_module: nn.Module, inputs: tuple, _output: Tensor, ids: Tensor = ids) -> Tensor:
            return inputs[0] if instead is None else inputs[0] + instead[ids]

        hooks = [model.blocks[block].register_forward_hook(pass_by)] if block is not None else []
        try:
            with evaluating(model):
                logits = model(ids)[0]  # (T, V)
        finally:
            for hook in hooks:
                hook.remove()
        losses.append(F.cross_entropy(logits, targets, reduction="none"))
        right.append((logits.argmax(dim=-1) == targets).float())
    return torch.cat(losses).mean().item(), torch.cat(right).mean().item()


@experiment(
    "gpt.one_block_less",
    claim="With one layer deleted a trained model keeps 72 to 95 % of its first guesses.",
    source=Source(
        "Lad et al. 2024", "The Remarkable Robustness of LLMs: Stages of Inference?", "https://arxiv.org/abs/2406.19384"
    ),
    control="the first block replaced by what it writes on average after the same token, which it needs no context for",
    threshold="right first guesses on held-out stories, over those of the whole model: confirmed if at least 72 % "
    "without any block, depends if without some, refuted if without none",
    seeds=HELD_OUT,
)
def one_block_less() -> Finding:
    model, _ = load_pretrained("tinytown")
    instead = mean_writes(model, 0)
    whole = [without_block(model, None, STORIES // 2, seed) for seed in HELD_OUT]

    def kept_and_cost(block: int, instead: Tensor | None = None) -> tuple[float, float]:
        runs = [without_block(model, block, STORIES // 2, seed, instead) for seed in HELD_OUT]
        kept = statistics.fmean(right / all_right for (_, right), (_, all_right) in zip(runs, whole))
        return kept, statistics.fmean(loss - least for (loss, _), (least, _) in zip(runs, whole))

    blocks, costs = zip(*map(kept_and_cost, range(len(model.blocks))))
    enough = [share >= 0.72 for share in blocks]
    return Finding(
        f"kept without block 1 to {len(blocks)}: {', '.join(f'{share:.0%}' for share in blocks)}, at "
        f"{', '.join(f'{cost:.1f}' for cost in costs)} nats more per token; with the first replaced by its average for "
        f"each token: {kept_and_cost(0, instead)[0]:.0%}",
        (*blocks, *costs),
        "confirmed" if all(enough) else "depends" if any(enough) else "refuted",
        "Most first guesses are easy words, so they hide a loss: no block is spare. The first is missed most, mainly "
        "for what it adds to each token by itself, which all others build on.",
    )
