"""Chapter 9's claims: how a model starts, weight tying, and what each block adds to the answer."""

import math
import statistics
from functools import cache, partial
from itertools import pairwise, product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.claims.interventions import patch
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.short_runs import BATCH, T, final, tinytown_ids
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig, preset
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches, Tinytown, WordTokenizer
from course_lib.trace import trace
from course_lib.training import train

SEEDS = (0, 1, 2)
HELD_OUT = tuple(HELD_OUT_SEED + i for i in range(3))  # seeds of stories that are only for measuring
STEPS = 100  # updates of a small training run
STORIES = 100  # held-out stories, of one seed
TEXTS = 16  # random texts for an untrained model
FITTED = 300  # stories for fitting a reader or for an average


# ------------------------------------------------------------------------------------------------------- how it starts
def untrained(std: float, tied: bool, seed: int = 0) -> DecoderOnly:
    """Return the tinytown preset before training, with its embedding table from N(0, std²) and everything else from
    `initialize`."""
    torch.manual_seed(seed)
    config = preset("tinytown").to_dict() | {"tie_weights": tied}
    model = DecoderOnly(TransformerConfig.from_dict(config))
    nn.init.normal_(model.token_embedding.weight, std=std)
    return model


def first_guess(std: float, tied: bool, seed: int = 0) -> tuple[Tensor, float, float]:
    """Return the predictions of an untrained model for random text.

    Returns: logits (B, T, V); its loss on random targets, nats per token; the fraction of positions where the most
    probable next token is the last token read.
    """
    model = untrained(std, tied, seed)
    ids, targets = torch.randint(model.config.vocab_size, (2, TEXTS, T)).unbind()
    with evaluating(model):
        logits, loss = model(ids, targets)
    return logits, loss.item(), (logits.argmax(dim=-1) == ids).float().mean().item()


def first_losses(vocab_size: int, d_model: int, std: float, tied: bool = True) -> list[float]:
    """Return for each seed the first loss of a model of one block minus ln V: nats per token of random text."""
    losses = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        config = TransformerConfig(
            vocab_size=vocab_size, d_model=d_model, n_heads=4, n_layers=1, max_seq_len=T, tie_weights=tied
        )
        model = DecoderOnly(config)
        if std != 0.02:  # the standard deviation in `initialize`
            nn.init.normal_(model.token_embedding.weight, std=std)
        ids, targets = torch.randint(vocab_size, (2, 8, T)).unbind()
        with evaluating(model):
            losses.append(model(ids, targets)[1].item() - math.log(vocab_size))
    return losses


def initial_loss_verdict(small: float, gpt2: float) -> str:
    """Compare the first loss (mean of the seeds) with ln V, at the sizes of the course's model and of GPT-2.

    confirmed: the two differ by less than 0.1 nats at both sizes
    depends: they do so at one size only
    refuted: they do so at neither size
    """
    near = [abs(gap) < 0.1 for gap in (small, gpt2)]
    return "confirmed" if all(near) else "depends" if any(near) else "refuted"


@experiment(
    "gpt.initial_loss",
    claim="If you initialize your final layer correctly you should measure -log(1/n_classes) on a softmax at "
    "initialization.",
    source=Source(
        "Karpathy 2019",
        "A Recipe for Training Neural Networks",
        "https://karpathy.github.io/2019/04/25/recipe/",
        place="§ 2, “verify loss @ init”",
        quote="Verify that your loss starts at the correct loss value. E.g. if you initialize your final layer "
        "correctly you should measure -log(1/n_classes) on a softmax at initialization.",
    ),
    control="models of one block on the same random texts, with an embedding table from N(0, 0.02²); the small one "
    "also with a table from N(0, 1), the default of nn.Embedding, tied and untied",
    verdict=initial_loss_verdict,
    seeds=SEEDS,
)
def initial_loss() -> Measurement:
    small, gpt2 = first_losses(343, 128, 0.02), first_losses(50_257, 768, 0.02)
    large, untied = (first_losses(343, 128, 1.0, tied) for tied in (True, False))
    return Measurement(
        measured=f"the first loss is {statistics.fmean(small):.2f} nats above ln V in a model as wide as ours, and "
        f"{statistics.fmean(gpt2):.1f} nats above it in one as wide as GPT-2",
        values=(*small, *gpt2),
        figures={"small": statistics.fmean(small), "gpt2": statistics.fmean(gpt2)},
        rows=(
            ("embedding table, at our width", "output", "nats above ln V"),
            ("N(0, 0.02²)", "tied", f"{statistics.fmean(small):.2f}"),
            ("N(0, 1)", "tied", f"over {50 * math.floor(min(large) / 50)}"),
            ("N(0, 1)", "its own table, N(0, 0.02²)", f"{statistics.fmean(untied):.2f}"),
        ),
        because="It depends on the width. The expected gap is about half the variance of the logits, 0.02² · d_model "
        "/ 2: 0.03 nats at our width. Random targets shift it by a few hundredths. With 4,096 features (Llama 3 8B) it "
        "would be 0.8 nats.",
    )


def stream_growth(n_layers: int, scaled: bool, seed: int = 0, std: float = 1.0) -> float:
    """Return the standard deviation of the sum of all branches of an untrained stack.

    scaled: with the division by √(2 · n_layers) in `initialize`, or with it undone. std: of the embedding table.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=64, d_model=64, n_heads=2, n_layers=n_layers, max_seq_len=T, positions="rope")
    model = DecoderOnly(config)
    nn.init.normal_(model.token_embedding.weight, std=std)
    if not scaled:
        for block in model.blocks:
            for writes in (block.attention.out_proj, block.feed_forward.down_proj):
                nn.init.normal_(writes.weight, std=0.02)
    ids = torch.randint(64, (4, T))
    with evaluating(model), trace(model, "dropout", "blocks.?", "blocks.??") as seen:
        model(ids)
    return (seen[f"blocks.{n_layers - 1}"] - seen["dropout"]).std().item()


def branch_scale_verdict(plain: list[float], divided: list[float]) -> str:
    """Measure how much larger the sum of all branches is at 32 blocks than at 2 (mean of the seeds), with an embedding
    table from N(0, 1) and with one from N(0, 0.02²).

    confirmed: with both tables it grows by a factor below 1.5 with the division, and above 1.5 without
    depends: with some table the division makes the factor at least a quarter smaller
    refuted: with both tables it makes the factor less than a quarter smaller
    """
    if max(divided) < 1.5 < min(plain):
        return "confirmed"
    return "depends" if any(one < 0.75 * other for one, other in zip(divided, plain)) else "refuted"


@experiment(
    "gpt.branch_scale",
    claim="Dividing the initial weights of N residual layers by √N accounts for the accumulation on the residual path.",
    source=Source(
        "Radford et al. 2019",
        "Language Models are Unsupervised Multitask Learners (GPT-2)",
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
        place="§ 2.3",
        quote="A modified initialization which accounts for the accumulation on the residual path with model depth is "
        "used. We scale the weights of residual layers at initialization by a factor of 1/√N where N is the number of "
        "residual layers.",
    ),
    control="the same untrained stacks of 2 and 32 blocks, tokens and seeds, without the division; all of it with an "
    "embedding table from N(0, 1), and with the usual one from N(0, 0.02²)",
    verdict=branch_scale_verdict,
    seeds=SEEDS,
)
def branch_scale() -> Measurement:
    grown = {
        (scaled, std): [stream_growth(32, scaled, seed, std) / stream_growth(2, scaled, seed, std) for seed in SEEDS]
        for scaled in (False, True)
        for std in (1.0, 0.02)
    }
    plain, divided = ([statistics.fmean(grown[scaled, std]) for std in (1.0, 0.02)] for scaled in (False, True))
    return Measurement(
        measured=f"from 2 to 32 blocks the sum of all branches grows by a factor of at least {min(plain):.1f}; "
        f"with the division the factor is {max(divided):.1f}",
        values=(*grown[True, 1.0], *grown[True, 0.02]),
        figures={"plain": plain, "divided": divided},
        rows=(
            ("growth from 2 to 32 blocks", "without the division", "with it"),
            *(
                (f"embedding table from {name}", f"{without:.1f}", f"{with_it:.1f}")
                for name, without, with_it in zip(("N(0, 1)", "N(0, 0.02²)"), plain, divided)
            ),
        ),
        because="Sixteen times as many independent branches add up to √16 = 4 times as much, and the division removes "
        "about this factor. We measured before training, in narrow models.",
    )


# --------------------------------------------------------------------------------------------------------------- tying
@cache
def tying_losses(
    tied: bool, std: float, seed: int = 0, steps: int = STEPS, large_output: bool = False, peak: float = 4e-3
) -> tuple[float, ...]:
    """Return the loss of every step of a small run on Tinytown, with an embedding table from N(0, std²).

    large_output: initialize a separate output table from N(0, std²) too, as a tied one is.
    """
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
    return tuple(train(model, batches, steps, peak, steps // 5, progress=False).losses)


def tying_verdict(small: float, large: float) -> str:
    """Compare the final losses of tied and untied models (mean of the seeds), with tables from N(0, 0.02²) and N(0, 1).

    confirmed: the tied model is at most 0.2 nats worse with either table, a tenth of the loss of these short runs
    depends: it is so with one of the two
    not at this size: it is so with neither; the authors' models are far larger
    """
    harmless = [cost <= 0.2 for cost in (small, large)]
    return "confirmed" if all(harmless) else "depends" if any(harmless) else "not at this size"


@experiment(
    "gpt.tying",
    claim="Tying the output to the embedding table does not harm a model's performance.",
    source=Source(
        "Press & Wolf 2017",
        "Using the Output Embedding to Improve Language Models",
        "https://arxiv.org/abs/1608.05859",
        place="abstract",
        quote="Finally, we show that weight tying can reduce the size of neural translation models to less than half "
        "of their original size without harming their performance.",
    ),
    control="the same models, batches and steps, untied, with both tables from the same distribution as the tied one: "
    "N(0, 0.02²) or N(0, 1); each of the four at its best learning rate",
    verdict=tying_verdict,
    seeds=SEEDS,
)
def tying(size: Size) -> Measurement:
    steps = size.steps(STEPS)

    def loss(tied: bool, std: float, rate: float, seed: int) -> float:
        return final(tying_losses(tied, std, seed, steps, not tied, rate))

    best = {
        arm: at_best_rate(partial(loss, *arm), rates=(0.001, 0.004, 0.016), seeds=SEEDS)
        for arm in product((True, False), (0.02, 1.0))
    }
    small, large = (best[True, std].mean - best[False, std].mean for std in (0.02, 1.0))
    return Measurement(
        measured=f"with small initial weights, {_cost(small)} after {steps} steps; with large ones, {_cost(large)}",
        values=tuple(loss for each in best.values() for loss in each.losses),
        figures={"small": small, "large": large},
        because="It depends on the initial weights and on the length of training. With large weights a tied model "
        "starts far above ln V; after four times the steps it is only about 0.1 nats worse.",
    )


def _cost(nats: float) -> str:
    """Round a number so that other machines print the same."""
    if abs(nats) < 0.1:
        return "the two losses differ by less than 0.1 nats"
    size = f"{abs(nats):.1f}" if abs(nats) < 0.5 else f"{round(2 * abs(nats)) / 2:g}"
    unit = "nat" if size == "1" else "nats"
    return f"the tied model’s loss is about {size} {unit} {'higher' if nats > 0 else 'lower'}"


# ------------------------------------------------------------------------------------------------ what the blocks add
def stream_names(model: DecoderOnly) -> list[str]:
    """Return the names under which `trace` records the residual stream: at its start, then after every block."""
    return ["dropout", *(f"blocks.{i}" for i in range(len(model.blocks)))]


def direct_attribution(model: DecoderOnly, ids: Tensor, direction: Tensor) -> dict[str, float]:
    """Return what each part adds to the last position's stream in a direction (d_model,), through the final norm.

    The norm divides by the standard deviation of the whole stream, which is held fixed. Its bias is a part as well.
    """
    with evaluating(model), trace(model) as seen:
        model(ids)
    written = {"embedding": seen["dropout"][0, -1]}  # (d_model,)
    for i in range(model.config.n_layers):
        written[f"block {i + 1}, attention"] = seen[f"blocks.{i}.attention"][0, -1]
        written[f"block {i + 1}, feed-forward"] = seen[f"blocks.{i}.feed_forward"][0, -1]
    stream = seen[f"blocks.{model.config.n_layers - 1}"][0, -1]
    torch.testing.assert_close(torch.stack(list(written.values())).sum(dim=0), stream, atol=1e-3, rtol=1e-4)
    divisor = (stream.var(unbiased=False) + model.config.norm_eps).sqrt()
    weight, bias = (model.get_parameter(f"final_norm.{name}") for name in ("weight", "bias"))
    with torch.no_grad():
        shares = {name: ((x - x.mean()) / divisor * weight @ direction).item() for name, x in written.items()}
        return shares | {"bias of the final norm": (bias @ direction).item()}


PAIRS = (("dog", "cow"), ("cat", "pig"), ("lion", "frog"), ("wolf", "hen"), ("owl", "goat"))


def asked(tokenizer: WordTokenizer, one: str, other: str) -> Tensor:
    """Return the ids (1, T) of a story in which one animal chased the other, followed by the question who did."""
    story = f"once there was a king called tom . the {one} chased the {other} . who chased the {other} ? it was the"
    return torch.tensor([tokenizer.encode(story, end=False)])


def total_effect(model: DecoderOnly, tokenizer: WordTokenizer, at: str) -> float:
    """Return how far the answer changes if the part `at` is taken from the swapped story: the mean over five pairs.

    0: no change; 1/2: a tie; 1: the same as in the swapped story.
    """
    shares = []
    for one, other in PAIRS:
        this, exchanged = asked(tokenizer, one, other), asked(tokenizer, other, one)
        right, wrong = tokenizer.id(one), tokenizer.id(other)
        with torch.no_grad():
            whole = (model(exchanged) - model(this))[0, -1]  # (V,)
        part = patch(model, this, exchanged, at, positions=[-1])[0, -1]  # (V,)
        shares.append(((part[right] - part[wrong]) / (whole[right] - whole[wrong])).item())
    return statistics.fmean(shares)


def logit_lens(model: DecoderOnly, ids: Tensor) -> Tensor:
    """Return logits (n_layers + 1, B, T, V): the stream at its start and after every block, each through the final norm
    and the output head.

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
    """Return stories as ids; the shipped model has not seen those of HELD_OUT."""
    tokenizer = WordTokenizer()
    return [tokenizer.encode(story) for story in Tinytown(seed).sample(stories)]


def lens_losses(model: DecoderOnly, stories: int) -> Tensor:
    """Return −ln p of every token of held-out stories (n_layers + 1, N), by the logit lens."""
    read, targets = _streams_and_targets(model, stories)
    with evaluating(model):
        return torch.stack([_losses(model, stream, targets) for stream in read])


def _streams_and_targets(model: DecoderOnly, stories: int, seed: int = HELD_OUT_SEED) -> tuple[list[Tensor], Tensor]:
    """Return the stream of every token of these stories, (N, d_model) at each depth, and the next tokens."""
    told = encoded(stories, seed)
    targets = torch.cat([torch.tensor(story[1:]) for story in told])  # (N,)
    heights = [_of_many(model, [story[:-1] for story in told[i : i + 50]]) for i in range(0, len(told), 50)]
    return [torch.cat(each) for each in zip(*heights)], targets


def _of_many(model: DecoderOnly, told: list[list[int]]) -> list[Tensor]:
    """Return the stream of every token of many texts, (N, d_model) at each depth. All texts are read at once, with the
    padding of shorter ones at their end."""
    lengths = torch.tensor([len(ids) for ids in told])
    filled = torch.tensor([ids + [0] * (int(lengths.max()) - len(ids)) for ids in told])  # (B, T)
    counts = torch.arange(filled.shape[1]) < lengths[:, None]  # (B, T)
    return [height[counts] for height in streams(model, filled)]


def _losses(model: DecoderOnly, stream: Tensor, targets: Tensor) -> Tensor:
    """Return −ln p of every target, predicted from the stream."""
    return F.cross_entropy(model.output(model.final_norm(stream)), targets, reduction="none")


def fitted_losses(model: DecoderOnly, stories: int, seed: int = 0, steps: int = 100, rate: float = 1e-2) -> Tensor:
    """Return −ln p of every token of held-out stories (n_layers + 1, N), with a separate reader for each depth.

    A reader is one matrix and a bias before the final norm, trained for some steps to predict the next token of other
    stories. The model does not change. The reader may find information that the logit lens misses, because a block
    keeps it in other directions.

    Source: Belrose et al. 2023, "Eliciting Latent Predictions from Transformers with the Tuned Lens". Their reader
        learns to predict the output of the last block.
    """
    known, answers = _streams_and_targets(model, FITTED, seed)
    held_out, targets = _streams_and_targets(model, stories)
    rng = torch.Generator().manual_seed(seed)
    losses = []
    for stream, test in zip(known, held_out):
        reader = nn.Linear(stream.shape[1], stream.shape[1])
        nn.init.eye_(reader.weight)
        nn.init.zeros_(reader.bias)
        optimizer = torch.optim.Adam(reader.parameters(), lr=rate)
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


def lens_verdict(lens: list[float], fitted: list[float]) -> str:
    """Read the stream before the first block and after each block, with the lens and with fitted readers (mean loss).

    confirmed: the loss falls with every block for both ways of reading
    depends: it does so for one of the two
    refuted: it does so for neither
    """
    falls = [all(after < before for before, after in pairwise(losses)) for losses in (lens, fitted)]
    return "confirmed" if all(falls) else "depends" if any(falls) else "refuted"


@experiment(
    "gpt.lens",
    claim="Model predictions are refined layer by layer.",
    source=Source(
        "Belrose et al. 2023",
        "Eliciting Latent Predictions from Transformers with the Tuned Lens",
        "https://arxiv.org/abs/2303.08112",
        place="abstract",
        quote="We analyze transformers from the perspective of iterative inference, seeking to understand how model "
        "predictions are refined layer by layer.",
    ),
    control="the same streams of one trained model, read with its own last step and through a matrix fitted to each "
    "block at its best learning rate; the seeds draw the stories on which the matrices are fitted",
    verdict=lens_verdict,
    seeds=SEEDS,
)
def lens(size: Size) -> Measurement:
    model = load_pretrained("tinytown")[0]
    steps = size.steps(100)
    lensed = lens_losses(model, STORIES)

    def fit(rate: float, seed: int) -> tuple[float, Tensor]:
        losses = fitted_losses(model, STORIES, seed, steps, rate)
        return losses.mean().item(), losses

    best = at_best_rate(fit, rates=(0.003, 0.01, 0.03), seeds=SEEDS)
    fitted = torch.stack([losses for _, losses in best.results]).mean(dim=0)
    means, readable = (losses.mean(dim=1).tolist() for losses in (lensed, fitted))
    often = "with every block" if lens_verdict(means, readable) == "confirmed" else "on the whole"
    worse = [(each[1:] > each[:-1] + 0.1).float().mean(dim=1).max().item() for each in (lensed, fitted)]
    return Measurement(
        measured=f"the loss falls {often}, from {means[1]:.1f} nats after the first to {means[-1]:.1f} after the last "
        f"with the lens, and from {readable[1]:.1f} to {readable[-1]:.1f} with fitted readers",
        values=(*means, *readable),
        figures={"lens": means, "fitted": readable},
        rows=(
            ("loss of single tokens", "logit lens", "fitted reader"),
            (
                "tokens whose loss the worst block raises by over 0.1 nats",
                *(f"{5 * round(20 * share)}%" for share in worse),
            ),
        ),
        because="In this one model (seeds choose the readers’ training stories) each block improves the prediction on "
        "average, the first most. The lens reads early blocks badly. For a single token a block may undo what an "
        "earlier one wrote.",
    )


def mean_writes(model: DecoderOnly, block: int, by_word: bool = True) -> Tensor:
    """Return what a block adds to the stream for each token of the vocabulary (V, d_model), averaged over stories that
    are not held out. Tokens that do not occur get the average over all tokens, and so do all tokens if not by_word."""
    total = torch.zeros(model.config.vocab_size, model.config.d_model)
    count = torch.zeros(model.config.vocab_size, 1)
    told = [story[:-1] for story in encoded(FITTED, seed=1)]
    for some in (told[i : i + 50] for i in range(0, len(told), 50)):
        ids, heights = torch.cat([torch.tensor(ids) for ids in some]), _of_many(model, some)
        total.index_add_(0, ids, heights[block + 1] - heights[block])
        count.index_add_(0, ids, torch.ones(len(ids), 1))
    average = (total.sum(dim=0) / count.sum()).expand_as(total)
    return torch.where(count > 0, total / count.clamp(min=1), average) if by_word else average


def without_block(
    model: DecoderOnly, block: int | None, stories: int, seed: int = HELD_OUT_SEED, instead: Tensor | None = None
) -> tuple[float, float]:
    """Return the loss in nats per token, and the fraction of correct most probable words, with one block left out.

    instead: vectors that replace the block's contribution for each token (V, d_model); by default nothing does.
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


def one_block_verdict(kept: list[float], costs: list[float]) -> str:
    """Leave out each block in turn. kept: the fraction of the full model's correct first guesses that stay correct.
    costs: the increase of the loss in nats. The ends are the first and the last block.

    confirmed: both ends keep fewer first guesses and cost more nats than any middle block, each of which keeps 72%
    depends: so by one of the two measures, or for one of the two ends
    not at this size: neither end stands out
    """
    middle = range(1, len(kept) - 1)
    worst = [[kept[end] < min(kept[i] for i in middle), costs[end] > max(costs[i] for i in middle)] for end in (0, -1)]
    robust = min(kept[i] for i in middle) >= 0.72
    if robust and all(map(all, worst)):
        return "confirmed"
    return "depends" if any(map(any, worst)) else "not at this size"


@experiment(
    "gpt.one_block_less",
    claim="Interventions to the early and final layers cause the most degradation, while the model is remarkably "
    "robust to dropping middle layers.",
    source=Source(
        "Lad et al. 2024",
        "The Remarkable Robustness of LLMs: Stages of Inference?",
        "https://arxiv.org/abs/2406.19384",
        place="abstract of the third version, 2025",
        quote="Surprisingly, models retain 72-95% of their original top-1 prediction accuracy without any "
        "fine-tuning. We find that performance degradation is not uniform across layers: interventions to the early "
        "and final layers cause the most degradation, while the model is remarkably robust to dropping middle layers.",
    ),
    control="each block removed in turn, on the same held-out stories; the first block also replaced by its average "
    "output for each token, which needs no context",
    verdict=one_block_verdict,
    seeds=HELD_OUT,
)
def one_block_less() -> Measurement:
    model, _ = load_pretrained("tinytown")
    instead = mean_writes(model, 0)
    whole = [without_block(model, None, STORIES // 2, seed) for seed in HELD_OUT]

    def kept_and_cost(block: int, instead: Tensor | None = None) -> tuple[float, float]:
        runs = [without_block(model, block, STORIES // 2, seed, instead) for seed in HELD_OUT]
        kept = statistics.fmean(right / all_right for (_, right), (_, all_right) in zip(runs, whole))
        return kept, statistics.fmean(loss - least for (loss, _), (least, _) in zip(runs, whole))

    kept, costs = zip(*map(kept_and_cost, range(len(model.blocks))))
    averaged = kept_and_cost(0, instead)
    return Measurement(
        measured=f"without block 1 the model keeps {kept[0]:.0%} of its correct first guesses; without one of "
        f"the other blocks it keeps at least {min(kept[1:]):.0%}",
        values=(*kept, *costs),
        figures={"kept": list(kept), "costs": list(costs)},
        rows=(
            ("removed", "correct first guesses kept", "nats lost per token"),
            *((f"block {i}", f"{part:.0%}", f"{cost:.1f}") for i, (part, cost) in enumerate(zip(kept, costs), start=1)),
            ("block 1, replaced by its average", f"{averaged[0]:.0%}", f"{averaged[1]:.1f}"),
        ),
        because="As in the models of Lad et al., the first block is needed most, mainly for the part of its output "
        "that depends on the current token only. Whether the last block stands out depends on the measure. Four blocks "
        "hardly have a middle.",
    )
