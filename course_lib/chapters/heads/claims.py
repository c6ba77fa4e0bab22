"""Chapter 4's claims: what heads cost, what they can do, and what they learn to do."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.claims.interventions import patch, swap
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.timing import best_seconds
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating, next_token_loss
from course_lib.heads import MultiHeadAttention, split_heads
from course_lib.normalization import RMSNorm
from course_lib.positions import rotary_angles
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.tinytown.world import ANIMAL_SOUNDS, CAPITALS, CLASSES, MEN, OPPOSITES
from course_lib.trace import trace
from course_lib.training import story_losses, train

SEEDS = (0, 1, 2)
VASWANI = partial(Source, "Vaswani et al. 2017", "Attention Is All You Need", "https://arxiv.org/abs/1706.03762")
OLSSON = partial(
    Source, "Olsson et al. 2022", "In-context Learning and Induction Heads", "https://arxiv.org/abs/2209.11895"
)


# ------------------------------------------------------------------------------------------------------ what they cost
def attention_parameters(n_heads: int, d_head: int, d_model: int = 768) -> int:
    """Count the parameters of an attention layer whose heads have d_head features each, on its four projections."""
    with torch.device("meta"):
        enter, leave = nn.Linear(d_model, n_heads * d_head), nn.Linear(n_heads * d_head, d_model)
    return sum(each.numel() for each in (*3 * list(enter.parameters()), *leave.parameters()))


def parameters_verdict(shared_grows: bool, fixed_grows: bool) -> str:
    """Compare the counts of 1 and 64 heads: heads that share d_model, and heads of a fixed size.

    confirmed: the count grows with both kinds of heads
    depends: it grows with only one kind
    refuted: it grows with neither kind
    """
    grows = (shared_grows, fixed_grows)
    return "confirmed" if all(grows) else "depends" if any(grows) else "refuted"


def _as_many(counts: Sequence[int]) -> str:
    return "as many" if counts[-1] == counts[0] else f"about {counts[-1] / counts[0]:.0f} times as many"


@experiment(
    "heads.parameters",
    claim="Adding more heads will add more parameters.",
    source=Source(
        "PyTorch Forums",
        "What does increasing number of heads do in the Multi-head Attention?",
        "https://discuss.pytorch.org/t/what-does-increasing-number-of-heads-do-in-the-multi-head-attention/101294",
        place="first answer, corrected by its author below it",
        quote="Adding more heads will add more parameters. … Just to note, there are other types of implementations of "
        "MultiHeadAttention where parameters amount scales with the number of heads.",
    ),
    control="d_model stays at 768; the heads share its features in one count, and have 64 features each in the other",
    verdict=parameters_verdict,
)
def parameters() -> Measurement:
    """Count the parameters of 1 to 64 heads, in the module, whose heads share d_model, and with heads of a fixed
    size."""
    heads = (1, 2, 4, 8, 16, 32, 64)
    shared = [sum(each.numel() for each in MultiHeadAttention(768, n_heads).parameters()) for n_heads in heads]
    fixed = [attention_parameters(n_heads, d_head=64) for n_heads in heads]
    shown = [heads.index(n_heads) for n_heads in (1, 8, 64)]
    return Measurement(
        measured=f"64 heads have {_as_many(shared)} parameters as one if they share 768 features, and "
        f"{_as_many(fixed)} if each has 64 features of its own",
        rows=(
            ("parameters", "1 head", "8 heads", "64 heads"),
            ("the heads share 768 features", *(f"{shared[index]:,}" for index in shown)),
            ("each has 64 features", *(f"{fixed[index]:,}" for index in shown)),
        ),
        values=tuple(map(float, shared)),
        figures={"shared_grows": shared[-1] > shared[0], "fixed_grows": fixed[-1] > fixed[0]},
        because="In the paper and in PyTorch the heads share d_model: with twice the heads, each is half as wide. Only "
        "heads of a fixed size add parameters.",
    )


def slice_verdict(moved: list[float], chunked: list[float]) -> str:
    """Compare how far the query moves with how far it would move if W_Q read only its chunk of the input.

    confirmed: the query moves by less than a tenth of its length for every seed
    refuted: it moves by more for some seed, and it would not if W_Q read chunks
    """
    return "refuted" if max(moved) > 0.1 > max(chunked) else "confirmed"


@experiment(
    "heads.slice",
    claim="We will break the embedding into `heads` chunks and feed each to a different attention head.",
    source=Source(
        "Bloem 2019",
        "former",
        "https://github.com/pbloem/former/blob/master/former/modules.py",
        place="modules.py, two comments in SelfAttention",
        quote="We will break the embedding into `heads` chunks and feed each to a different attention head … We first "
        "compute the k/q/v's on the whole embedding vectors, and then split into the different heads.",
    ),
    control="a W_Q that does read chunks (zero outside eight blocks), with the same features sampled again",
    verdict=slice_verdict,
    seeds=SEEDS,
)
def input_slice() -> Measurement:
    """Redraw every input feature outside head 0's chunk, and see how far head 0's query moves, relative to its size."""
    moved: list[float] = []
    chunked: list[float] = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        attention = MultiHeadAttention(64, 8, bias=False)
        x = torch.randn(1, 200, 64)  # (B, T, d_model)
        outside = torch.cat([x[..., :8], torch.randn(1, 200, 56)], dim=-1)
        blocks = torch.block_diag(*[torch.ones(8, 8)] * 8)
        with torch.no_grad():
            for found, kept in ((moved, 1), (chunked, blocks)):
                W_Q = attention.q_proj.weight * kept  # (d_model, d_model)
                before, after = (split_heads(each @ W_Q.T, 8)[:, 0] for each in (x, outside))  # (B, T, D)
                found.append(((after - before).norm() / before.norm()).item())
    return Measurement(
        measured="when the features outside its chunk are sampled again, head 0's query moves by "
        f"{min(moved):.1f} times its own length; if W_Q read chunks, it would move by {max(chunked):.1f}",
        values=tuple(moved),
        figures={"moved": moved, "chunked": chunked},
        because="W_Q comes before the split, as the second comment in the same file says. Each head reads all features "
        "of a token and fills its own slice of the concatenated result.",
    )


def time_verdict(kept: list[float], fused: list[float]) -> str:
    """Compare the times of 8 and of 64 heads, each divided by the time of one head, with two kernels.

    confirmed: 8 and 64 heads take at most 1.3 times as long as 1 with either kernel
    refuted: 8 heads, the paper's number, take more than 1.6 times as long with either kernel
    depends: neither holds
    """
    if max(kept + fused) <= 1.3:
        return "confirmed"
    return "refuted" if min(kept[0], fused[0]) > 1.6 else "depends"


@experiment(
    "heads.time",
    claim="Due to the reduced dimension of each head, the total computational cost is similar to that of single-head "
    "attention with full dimensionality.",
    source=VASWANI(
        place="§ 3.2.2",
        quote="Due to the reduced dimension of each head, the total computational cost is similar to that of "
        "single-head attention with full dimensionality.",
    ),
    control="the same 256 tokens, d_model and number of multiplications; timed alternately, the best of many rounds; "
    "once with the weights kept, once with the fused kernel, which keeps none",
    verdict=time_verdict,
    timed=True,
)
def time_by_heads() -> Measurement:
    x = torch.randn(1, 256, 512)
    layers = [MultiHeadAttention(512, n_heads) for n_heads in (1, 8, 64)]
    ratios: dict[str, list[float]] = {}
    with torch.no_grad():
        for way, need_weights in (("with the weights kept", True), ("fused", False)):
            one, eight, many = best_seconds([partial(layer, x, need_weights=need_weights) for layer in layers])
            ratios[way] = [eight / one, many / one]
    (kept_eight, kept_many), (eight, many) = ratios.values()
    return Measurement(
        measured=f"8 heads take at most {max(kept_eight, eight):.1f} times as long as one head, and 64 heads take "
        f"{min(kept_many, many):.1f} to {max(kept_many, many):.1f} times as long",
        rows=(
            ("time relative to one head (256 tokens, d_model = 512)", "8 heads", "64 heads"),
            ("with the weights kept", f"{kept_eight:.1f}", f"{kept_many:.1f}"),
            ("fused kernel", f"{eight:.1f}", f"{many:.1f}"),
        ),
        values=tuple(ratio for both in ratios.values() for ratio in both),
        figures=dict(zip(("kept", "fused"), ratios.values())),
        because="It depends on how many heads there are and on the kernel. The multiplications stay the same, but "
        "every head has T × T weights, and each of them requires an exp and, where it is stored, memory.",
    )


# ---------------------------------------------------------------------------------------------------- what they can do
def imitation_error(
    seed: int,
    wanted_heads: int,
    heads: int,
    T: int = 5,
    d: int = 8,
    sequences: int = 60,
    steps: int = 300,
    rate: float = 0.1,
) -> float:
    """Fit a number of heads to the sum of random heads, and return the relative error that remains.

    Each head may choose any attention weights, for each query of each sequence, and any matrix (d, d).
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    x = draw(sequences, T, d)
    mixes = [(3 * draw(sequences, T, T)).softmax(-1) for _ in range(wanted_heads)]  # (N, T, T) each
    wanted = torch.stack([mix @ x @ draw(d, d) for mix in mixes]).sum(0)  # (N, T, d)
    scores = [draw(sequences, T, T).requires_grad_() for _ in range(heads)]
    matrices = [(draw(d, d) / d**0.5).requires_grad_() for _ in range(heads)]
    optimizer = torch.optim.Adam([*scores, *matrices], lr=rate)
    for _ in range(steps):
        made = torch.stack([each.softmax(-1) @ x @ matrix for each, matrix in zip(scores, matrices)]).sum(0)
        error = (made - wanted).norm() / wanted.norm()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return error.item()


def one_big_head_verdict(one: list[float], two: list[float], itself: list[float]) -> str:
    """Compare the relative errors of one head that imitates two, of two that imitate two, and of one that imitates one.

    confirmed: for every seed one head leaves more than twice the error of two, and it imitates one head to 0.05
    refuted: for every seed one head leaves no more than twice the error of two, and it imitates one head to 0.05
    depends: neither holds; it then depends on the heads that are to be imitated, or the fit fails
    """
    inhibited = [single > 2 * pair for single, pair in zip(one, two)]
    if max(itself) >= 0.05:
        return "depends"
    return "confirmed" if all(inhibited) else "depends" if any(inhibited) else "refuted"


@experiment(
    "heads.one_big_head",
    claim="With a single attention head, averaging inhibits attending to several things at once.",
    source=VASWANI(
        place="§ 3.2.2",
        quote="Multi-head attention allows the model to jointly attend to information from different representation "
        "subspaces at different positions. With a single attention head, averaging inhibits this.",
    ),
    control="the same fit with two heads in place of one, and of one head to one head; every query has free weights, "
    "and every fit its best rate",
    verdict=one_big_head_verdict,
    seeds=SEEDS,
)
def one_big_head(size: Size) -> Measurement:
    """Measure the error of one head of full width that imitates the sum of two, of two for two, and of one for one."""

    def errors(wanted_heads: int, heads: int) -> list[float]:
        def fit(rate: float, seed: int) -> float:
            return imitation_error(seed, wanted_heads, heads, steps=size.steps(300), rate=rate)

        return list(at_best_rate(fit, rates=(0.03, 0.1, 0.3), seeds=SEEDS).losses)

    one, two, itself = errors(2, 1), errors(2, 2), errors(1, 1)
    return Measurement(
        measured=f"one head with freely chosen weights that imitates two leaves an error of {min(one):.0%} of their "
        f"sum or more; two heads leave {max(two):.0%} or less",
        values=tuple(one),
        figures={"one": one, "two": two, "itself": itself},
        because="One head mixes the tokens in only one way per query; two heads mix them in two ways and keep the "
        "results apart. Whether a task needs that is another question.",
    )


# ------------------------------------------------------------------------------------------------------ what they learn
START = "once there was a king called tom . "


def _quotation(words: Sequence[str], repeated: Sequence[str], between: str = "") -> str:
    """Return tom's three words, optionally a sentence in between, and the words that anna has repeated so far."""
    parts = [f"{START}tom said :", *words, ".", between, "anna said it too :", *repeated]
    return " ".join(filter(None, parts))


def _code(said: int) -> Callable[[random.Random], tuple[str, str]]:
    def ask(rng):
        words = rng.sample(CLASSES["code"], 3)
        return _quotation(words, words[:said]), words[said]

    return ask


def _capital(rng):
    country = rng.choice(list(CAPITALS))
    return f"{START}tom went to {country} . the capital of {country} is", CAPITALS[country]


def _opposite(rng):
    quality = rng.choice(list(OPPOSITES))
    return f"{START}tom was not {quality} . he was", OPPOSITES[quality]


def _biter(rng):
    biter, bitten = rng.sample(CLASSES["creature"], 2)
    return f"{START}the {biter} bit the {bitten} . who bit the {bitten} ? it was the", biter


def _bitten(rng):
    biter, bitten = rng.sample(CLASSES["creature"], 2)
    return f"{START}the {biter} bit the {bitten} . who did the {biter} bite ? it was the", bitten


def _it(answer: int, adjectives: str) -> Callable[[random.Random], tuple[str, str]]:
    def ask(rng):
        pair = rng.choice(list(ANIMAL_SOUNDS)), rng.choice(CLASSES["thing"])
        why = rng.choice(CLASSES[adjectives])
        return f"{START}the {pair[0]} sat on the {pair[1]} because it was {why} . yes , the", pair[answer]

    return ask


def _name(rng):
    name = rng.choice(MEN)
    return f"once there was a king called {name} . the cow said moo . at last", name


# Name of a question -> a function that returns a random (beginning of a story, the only correct next word).
QUESTIONS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "copy, word 1": _code(0),
    "copy, word 2": _code(1),
    "capital": _capital,
    "opposite": _opposite,
    "who bit": _biter,
    "who was bitten": _bitten,
    "“it”: animal": _it(0, "animal_adjective"),
    "“it”: thing": _it(1, "thing_adjective"),
    "name": _name,
}


def draw_questions(name: str, number: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `number` questions of that name: (beginning of a story, correct next word)."""
    rng = random.Random(f"{seed} {name}")
    return [QUESTIONS[name](rng) for _ in range(number)]


def encode_questions(tokenizer: WordTokenizer, questions: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Return questions of one kind, which all have the same length, as ids (N, T) and answers (N,)."""
    ids = torch.tensor([tokenizer.encode(prompt, end=False) for prompt, _ in questions])
    return ids, torch.tensor([tokenizer.id(answer) for _, answer in questions])


def draw_misquotes(
    tokenizer: WordTokenizer, said: Sequence[int], number: int, seed: int = 0, between: str = ""
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N 3"]]:
    """Return stories in which anna repeats tom's words in another order: the words at `said`, counted from 0.

    between: a sentence between the two lists, which moves anna's words farther away from tom's.

    said = (2, 0) gives "tom said : lake sand stone . anna said it too : stone lake". Tinytown always repeats the words
    in order. Then two rules give the same next word: "what followed this word before" (induction) and "the word at this
    position of the list" (ordinal). Here they differ.

    Returns: ids (N, T), which end before anna's next word, and tom's three words (N, 3).
    """
    rng = random.Random(f"{seed} {tuple(said)}")
    listed = [rng.sample(tuple(CLASSES["code"]), 3) for _ in range(number)]
    stories = [_quotation(words, [words[index] for index in said], between) for words in listed]
    return (
        torch.tensor([tokenizer.encode(story, end=False) for story in stories]),
        torch.tensor([[tokenizer.id(word) for word in words] for words in listed]),
    )


@contextmanager
def without_heads(model: DecoderOnly, heads: Sequence[tuple[int, int]], mean: bool = False) -> Iterator[None]:
    """Remove these heads, (layer, head) each, while the block runs: zeros enter W_O instead of their results.

    mean: use the mean over these texts and positions instead of zeros.
    """
    layers = sorted({layer for layer, _ in heads})
    handles = []
    for layer in layers:
        silent = [head for at, head in heads if at == layer]

        def silence(_module, inputs, silent=silent):
            kept = inputs[0].unflatten(-1, (model.config.n_heads, -1)).clone()  # (B, T, H, D)
            kept[..., silent, :] = kept[..., silent, :].mean(dim=(0, 1)) if mean else 0
            return (kept.flatten(-2),)

        handles.append(model.blocks[layer].attention.out_proj.register_forward_pre_hook(silence))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@cache
def removal_costs(seed: int = 0, number: int = 12, stories: int = 40, mean: bool = False) -> tuple[Tensor, Tensor]:
    """Measure how much the Tinytown model loses without each of its heads, and where these heads look.

    Args:
        seed: of the stories and questions.
        number: questions of each kind.
        mean: as in `without_heads`.

    Returns: (costs, weights).
        costs: (layers, H, 1 + questions), the nats lost per token of full stories, then per answer of each question.
        weights: (layers, H, questions), the mean weight from a question's last word to its answer in the story.
    """
    model, tokenizer = load_pretrained("tinytown")
    told = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED + seed).sample(stories)]
    asked = [encode_questions(tokenizer, draw_questions(name, number, seed)) for name in QUESTIONS]

    def losses() -> Tensor:
        nats, tokens = story_losses(model, told)
        found = [(nats.sum() / tokens.sum()).item()]
        with evaluating(model):
            for ids, answers in asked:
                found.append(nn.functional.cross_entropy(model(ids)[:, -1], answers).item())
        return torch.tensor(found)

    whole, n_layers, n_heads = losses(), model.config.n_layers, model.config.n_heads
    costs = torch.zeros(n_layers, n_heads, len(whole))
    for layer in range(n_layers):
        for head in range(n_heads):
            with without_heads(model, [(layer, head)], mean):
                costs[layer, head] = losses() - whole
    weights = []
    for ids, answers in asked:
        from_last = torch.stack(model.attention_weights(ids))[..., -1, :]  # (layers, N, H, T)
        on_answer = from_last * (ids == answers[:, None])[:, None]  # (layers, N, H, T)
        weights.append(on_answer.sum(-1).mean(1))  # (layers, H)
    return costs, torch.stack(weights, dim=-1)


# A larger cost than this is harm, in nats: a tenth of the model's loss, or an answer that is a seventh less likely.
STORY_HARM, ANSWER_HARM = 0.065, 0.15


def unharmed(costs: Float[Tensor, "layers H columns"], story_harm: float = STORY_HARM) -> tuple[int, int]:
    """Count the heads that we can remove without harm to the stories, and those without harm to any question either."""
    stories = costs[..., 0] < story_harm  # (layers, H)
    return int(stories.sum()), int((stories & (costs[..., 1:] < ANSWER_HARM).all(-1)).sum())


def _span(numbers: Sequence[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def removal_verdict(by_loss: list[int], by_both: list[int], strictly: list[int], heads: int) -> str:
    """Count the heads that can be removed one at a time, by the stories' loss, and by every kind of question as well.

    Harm is a tenth of the loss of a story (0.065 nats per token), or 0.15 nats per answer to a question. In the strict
    count it is a hundredth of the loss.

    confirmed: more than half of the heads can go for every seed, by all three counts
    depends: more than half can go for every seed if a tenth of the stories' loss counts, but not by all three counts
    not at this size: no more than half can go even then; the paper is about larger models
    """
    most = [min(count) > heads / 2 for count in (by_loss, by_both, strictly)]
    return "confirmed" if all(most) else "depends" if most[0] else "not at this size"


@experiment(
    "heads.removal",
    claim="most attention heads can be individually removed after training without any significant downside in terms "
    "of test performance",
    source=Source(
        "Michel et al. 2019",
        "Are Sixteen Heads Really Better than One?",
        "https://arxiv.org/abs/1905.10650",
        place="§ 1",
        quote="most attention heads can be individually removed after training without any significant downside in "
        "terms of test performance",
    ),
    control="zeros in place of a head, compared with its mean in place of it; other stories and questions for each "
    "seed",
    verdict=removal_verdict,
    seeds=SEEDS,
)
def removal() -> Measurement:
    """Remove each head of the trained Tinytown model separately, and measure the loss of full stories and of nine kinds
    of answers."""
    by_loss, by_both = zip(*(unharmed(removal_costs(seed)[0]) for seed in SEEDS))
    strictly = [unharmed(removal_costs(seed)[0], STORY_HARM / 10)[0] for seed in SEEDS]
    _, gentler = unharmed(removal_costs(mean=True)[0])
    heads = removal_costs()[0][..., 0].numel()
    return Measurement(
        measured=f"{_span(by_loss)} of {heads} heads can be removed if only the loss over whole stories counts, and "
        f"{_span(by_both)} if the answers to every kind of question count as well",
        rows=(
            ("what counts as harm", f"removable heads of {heads}"),
            ("a tenth of the loss over stories", _span(by_loss)),
            ("a hundredth of the loss over stories", _span(strictly)),
            ("a tenth, or worse answers to some kind of question", _span(by_both)),
            ("the same, with the head's average instead of zeros (one seed)", f"{gentler}"),
        ),
        values=tuple(each / heads for each in by_both),
        figures={"by_loss": list(by_loss), "by_both": list(by_both), "strictly": strictly, "heads": heads},
        because="It depends on what counts as performance. An average hides what a head is for: removing some heads "
        "hardly changes it, and yet one ability is lost.",
    )


@cache
def head_confidence(seed: int = 0, stories: int = 40, without: str = "") -> Float[Tensor, "layers H"]:
    """Return the confidence of each head: the mean over all tokens of its largest weight.

    The end of a story does not count, as in Voita et al. The first token does not count either, because it can only
    attend to itself.

    without: a word whose weights do not count.
    """
    model, tokenizer = load_pretrained("tinytown")
    largest = []
    for story in Tinytown(HELD_OUT_SEED + seed).sample(stories):
        ids = torch.tensor([tokenizer.encode(story, end=False)])  # (1, T)
        weights = torch.cat(model.attention_weights(ids))  # (layers, H, T, T)
        if without:
            weights = weights.masked_fill(ids[0] == tokenizer.id(without), 0)
        largest.append(weights[:, :, 1:].amax(dim=-1))  # (layers, H, T − 1)
    return torch.cat(largest, dim=-1).mean(dim=-1)


CONFIDENT = 0.5  # a head with a larger confidence is called confident


def needed_heads(costs: Float[Tensor, "layers H columns"]) -> Bool[Tensor, "layers H"]:
    """Return which heads are needed: removing one harms the stories or the answers to some kind of question."""
    return (costs[..., 0] >= STORY_HARM) | (costs[..., 1:] >= ANSWER_HARM).any(-1)


def looking_verdict(confident: list[float], others: list[float], above: list[float]) -> str:
    """Compare the proportions of needed heads among the confident heads and among the others, seed by seed.

    A head is confident if its largest weight is above 0.5 on average. It is needed if removing it costs 0.065 nats
    per token of a story, or 0.15 per answer to some kind of question. No confident head is in layer 0, so the others
    are counted without layer 0 as well.

    confirmed: confident heads are needed more than twice as often as the others, by either count and for every seed
    not at this size: they are not; one small language model cannot decide what holds in translation models
    """
    twice = [sure > 2 * other for each in (others, above) for sure, other in zip(confident, each)]
    return "confirmed" if all(twice) else "not at this size"


@experiment(
    "heads.looking",
    claim="We might expect confident heads to be the important ones.",
    source=Source(
        "Voita et al. 2019",
        "Analyzing Multi-Head Self-Attention: Specialized Heads Do the Heavy Lifting, the Rest Can Be Pruned",
        "https://arxiv.org/abs/1905.09418",
        place="§ 4",
        quote="A confident head is one that usually assigns a high proportion of its attention to a single token. "
        "Intuitively, we might expect confident heads to be important to the translation task.",
    ),
    control="the heads that are not confident: how many of them are needed, with layer 0 and without it? Other stories "
    "and questions for each seed",
    verdict=looking_verdict,
    seeds=SEEDS,
)
def looking() -> Measurement:
    """Compare the confidence of each head, as Voita et al. define it, with the cost of its removal."""
    confident, others, above = [], [], []
    counts: list[list[int]] = []
    for seed in SEEDS:
        sure, needed = head_confidence(seed) > CONFIDENT, needed_heads(removal_costs(seed)[0])  # (layers, H) each
        confident.append(needed[sure].float().mean().item())
        others.append(needed[~sure].float().mean().item())
        above.append(needed[1:][~sure[1:]].float().mean().item())
        counts.append([int(each.sum()) for each in (needed[sure], needed[~sure], needed[1:][~sure[1:]])])
    spans = [_span(each) for each in zip(*counts)]
    totals = (int(sure.sum()), int((~sure).sum()), int((~sure[1:]).sum()))
    return Measurement(
        measured=f"the model needs {spans[0]} of its {totals[0]} confident heads, and {spans[1]} of the other "
        f"{totals[1]}",
        rows=(
            ("heads", "largest weight, on average", "needed"),
            *(
                (name, f"{CONFIDENT} or less" if name.startswith("other") else f"above {CONFIDENT}", part)
                for name, part in zip(
                    ("confident", "other", "other, above layer 0"),
                    (f"{span} of {total}" for span, total in zip(spans, totals)),
                )
            ),
        ),
        values=tuple(confident),
        figures={"confident": confident, "others": others, "above": above},
        because="A large weight shows where a head reads; removing the head shows whether the model needs it. Voita et "
        "al. studied translation models, where most confident heads were important, but this is not a general rule.",
    )


def look_statistics(model: DecoderOnly, stories: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Measure how differently the heads of each layer look, and how widely, in bits: (layers,) each, over all queries.

    Returns: the Jensen–Shannon divergence and the mean of the heads' entropies. The divergence is entropy(mean of the
    heads' weights) − that mean: 0 if all heads look alike, at most log2 H. An entropy of 0 means that a head looks at
    one token.
    """

    def entropy(p: Tensor) -> Tensor:
        return -torch.xlogy(p, p).sum(-1) / torch.log(torch.tensor(2.0))

    difference, width = [], []
    for ids in stories:
        weights = torch.cat(model.attention_weights(torch.tensor([ids])))[:, :, 1:]  # (layers, H, T − 1, T)
        alone = entropy(weights).mean(1)  # (layers, T − 1)
        difference.append((entropy(weights.mean(1)) - alone).mean(-1))
        width.append(alone.mean(-1))
    return torch.stack(difference).mean(0), torch.stack(width).mean(0)


SHARPENED = 36  # with scores times this, heads of GPT-2's initialization look about as sharply as trained ones


def random_heads(config: TransformerConfig, seed: int, sharpened: float = SHARPENED) -> DecoderOnly:
    """Return an untrained model whose scores are multiplied by a factor."""
    torch.manual_seed(seed)
    model = DecoderOnly(config)
    with torch.no_grad():
        for block in model.blocks:
            for parameter in block.attention.q_proj.parameters():
                parameter.mul_(sharpened)
    return model


def dissociations(costs: Float[Tensor, "layers H questions"]) -> list[tuple[int, int, int]]:
    """Return the pairs of heads of one layer, (layer, one, other), in which each head is needed for something the other
    is not.

    A head is needed if its removal costs an answer more than half a nat. It is not needed if the cost is below a tenth
    of that.
    """
    needed, spared = costs > 0.5, costs < 0.05
    layers, n_heads, _ = costs.shape
    return [
        (layer, one, other)
        for layer in range(layers)
        for one in range(n_heads)
        for other in range(one + 1, n_heads)
        if (needed[layer, one] & spared[layer, other]).any() and (needed[layer, other] & spared[layer, one]).any()
    ]


def specialize_verdict(pairs: list[int], always: int) -> str:
    """Count the pairs of heads of one layer that are each needed (0.5 nats) for something the other is not (0.05 nats).

    confirmed: at least one pair of heads is such a pair for every seed
    depends: there is such a pair for some seeds, but never the same pair in all
    refuted: there is no such pair for any seed
    """
    return "confirmed" if always else "depends" if any(pairs) else "refuted"


@experiment(
    "heads.specialise",
    claim="individual attention heads clearly learn to perform different tasks",
    source=VASWANI(
        place="§ 4",
        quote="Not only do individual attention heads clearly learn to perform different tasks, many appear to exhibit "
        "behavior related to the syntactic and semantic structure of the sentences.",
    ),
    control="two heads of the same layer, removed one at a time, with the same questions; other questions for each "
    "seed",
    verdict=specialize_verdict,
    seeds=SEEDS,
)
def specialise() -> Measurement:
    """Find pairs of heads in one layer of the Tinytown model that are needed for different kinds of questions."""
    pairs = [dissociations(removal_costs(seed)[0][..., 1:]) for seed in SEEDS]
    always = set.intersection(*map(set, pairs))
    return Measurement(
        measured=f"{len(always)} pairs of heads, each in one layer and the same for every seed, divide the work: each "
        "head is needed for a kind of question that can do without the other",
        values=tuple(float(len(each)) for each in pairs),
        figures={"pairs": [len(each) for each in pairs], "always": len(always)},
        because="Removing one head of such a pair costs one kind of answer, and removing the other costs another kind.",
    )


def mean_weight_on(
    weights: Float[Tensor, "B layers H T S"], attended: Bool[Tensor, "B T S"]
) -> Float[Tensor, "layers H"]:
    """Return the weight that each head puts on these tokens, averaged over the queries that see such a token."""
    on_them = (weights * attended[:, None, None]).sum(dim=-1)  # (B, layers, H, T)
    return on_them.sum(dim=(0, -1)) / attended.any(dim=-1).sum()


COPIER = (2, 3)  # layer and head of the Tinytown model that copies lists


def exchanged_word(
    tokenizer: WordTokenizer, ids: Int[Tensor, "N T"], listed: Int[Tensor, "N 3"], seed: int, index: int = 1
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N"]]:
    """Return the stories of `draw_misquotes` with another word at that index of tom's list: (ids, the new words)."""
    rng = random.Random(seed)
    code = [tokenizer.id(word) for word in CLASSES["code"]]
    new = torch.tensor([rng.choice([word for word in code if word not in words]) for words in listed.tolist()])
    place = (ids == listed[:, index, None]).float().argmax(dim=-1)  # (N,): the position where tom says it
    return ids.scatter(1, place[:, None], new[:, None]), new


def copying_verdict(induction: list[float], ordinal: list[float]) -> str:
    """Compare how often the model copies by each of two rules where they differ: what followed before, or counting.

    confirmed: more than half of the answers are what followed the last word before, for every seed
    depends: more than half are copied by counting instead, for every seed
    refuted: neither
    """
    if min(induction) > 0.5:
        return "confirmed"
    return "depends" if min(ordinal) > 0.5 else "refuted"


@experiment(
    "heads.copying",
    claim="induction heads may be the mechanistic source of general in-context learning in transformer models of any "
    "size",
    source=OLSSON(
        place="abstract",
        quote="“Induction heads” are attention heads that implement a simple algorithm to complete token sequences "
        "like [A][B] ... [A] -> [B]. … We present six complementary lines of evidence, arguing that induction heads "
        "may be the mechanistic source of general in-context learning in transformer models of any size.",
    ),
    control="texts in which the rules differ: anna repeats tom's third word, then his first; then one word is "
    "exchanged at a time, and the output of one head is taken from the other text",
    verdict=copying_verdict,
    seeds=SEEDS,
)
def copying() -> Measurement:
    """Find the word that the Tinytown model gives after tom's third and first, what changes it, and what carries the
    change."""
    model, tokenizer = load_pretrained("tinytown")
    ordinal, induction, unmoved, carried = [], [], [], []
    for seed in SEEDS:
        ids, listed = draw_misquotes(tokenizer, (2, 0), 60, seed)  # … stone lake: by induction sand, third is stone
        with evaluating(model):
            answers = model(ids)[:, -1].argmax(dim=-1)  # (60,)
        ordinal.append((answers == listed[:, 2]).float().mean().item())
        induction.append((answers == listed[:, 1]).float().mean().item())

        ids, listed = draw_misquotes(tokenizer, (0,), 60, seed)  # … lake: both rules say sand
        with evaluating(model):
            logits = model(ids)[:, -1]  # (60, V)
        swapped = [swap(model, row[None], -1, words[2].item())[0, -1] for row, words in zip(ids, listed)]
        unmoved.append(((logits + torch.stack(swapped)).argmax(dim=-1) == listed[:, 1]).float().mean().item())

        source, new = exchanged_word(tokenizer, ids, listed, seed)
        with evaluating(model):
            whole = model(source)[:, -1] - logits
        by_head = patch(model, ids, source, "blocks.{}.attention.head.{}".format(*COPIER))[:, -1]
        leads = [(each.gather(1, new[:, None]) - each.gather(1, listed[:, 1:2])).mean() for each in (by_head, whole)]
        carried.append((leads[0] / leads[1]).item())
    return Measurement(
        measured=f"where the rules disagree, the model copies by counting in {sum(ordinal) / len(SEEDS):.0%} of the "
        f"texts and by induction in {sum(induction) / len(SEEDS):.0%}; head {COPIER[0]}.{COPIER[1]} carries "
        f"{sum(carried) / len(SEEDS):.0%} of the effect of an exchanged word",
        values=tuple(induction),
        figures={"induction": induction, "ordinal": ordinal},
        because="It depends on the training text. Tinytown's lists always come in order, so counting is enough, and "
        "this model counts: after two words it predicts the third.",
    )


# ------------------------------------------------------------------------------------- where induction heads do form
INDUCTION_STEPS = 400
TOKENS, WINDOW = 64, 48  # number of tokens, and length of a text


class SmearedKeys(nn.Linear):
    """A projection to keys that mixes each key with the key of the token before, feature by feature."""

    def __init__(self, d_model: int):
        super().__init__(d_model, d_model, bias=False)
        self.mix = nn.Parameter(torch.zeros(d_model))  # the initial mix is half of each

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        keys = super().forward(x)
        before = F.pad(keys, (0, 0, 1, 0))[:, :-1]  # (B, T, d_model)
        return torch.lerp(before, keys, torch.sigmoid(self.mix))


class AttentionOnly(nn.Module):
    """Add up attention layers of one head each in the residual stream, with RoPE and nothing else.

    This is the smallest model in which induction heads are known to form (Olsson et al. 2022).
    smeared: mix each key with the key of the token before, as in their argument 2.
    """

    def __init__(self, n_layers: int, d_model: int = 64, smeared: bool = False):
        super().__init__()
        self.token_embedding = nn.Embedding(TOKENS, d_model)
        self.layers = nn.ModuleList(MultiHeadAttention(d_model, n_heads=1, bias=False) for _ in range(n_layers))
        if smeared:
            for layer in self.layers:
                layer.k_proj = SmearedKeys(d_model)
        self.norms = nn.ModuleList(RMSNorm(d_model) for _ in range(n_layers + 1))
        self.output = nn.Linear(d_model, TOKENS, bias=False)

    def forward(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"] | None = None):
        """Return the logits (B, T, V); with targets, (logits, loss)."""
        x = self.token_embedding(ids)  # (B, T, d_model)
        angles = rotary_angles(torch.arange(ids.shape[1]), x.shape[-1])
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x), is_causal=True, rotary=angles)
        logits = self.output(self.norms[-1](x))  # (B, T, V)
        return logits if targets is None else (logits, next_token_loss(logits, targets))

    def attention_weights(self, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B T T"]]:
        """Return the weights of each layer's head."""
        with evaluating(self), trace(self, "*.weights") as seen:
            self(ids)
        return [seen[f"layers.{i}.weights"][:, 0] for i in range(len(self.layers))]


def random_lists(number: int, generator: torch.Generator) -> Int[Tensor, "N V"]:
    """Return every token once, in a new random order for each text."""
    return torch.rand(number, TOKENS, generator=generator).argsort(dim=1)


def repeated_lists(number: int, generator: torch.Generator) -> tuple[Int[Tensor, "N T1"], Int[Tensor, "N"]]:
    """Return texts (N, WINDOW + 1), each a random list that is repeated until the window is full, and its length (N,).

    The length, 6 to 20, differs from text to text, so the last occurrence is never at a fixed distance.
    """
    lengths = torch.randint(6, 21, (number,), generator=generator)
    index = torch.arange(WINDOW + 1) % lengths[:, None]  # (N, T + 1): index in the list
    return random_lists(number, generator).gather(1, index), lengths


@cache
def learn_repeats(
    n_layers: int, seed: int, smeared: bool = False, rate: float = 1e-2, steps: int = 500
) -> AttentionOnly:
    """Train a small model that has only attention on repeated random lists, in a few seconds."""
    torch.manual_seed(seed)
    model, generator = AttentionOnly(n_layers, smeared=smeared), torch.Generator().manual_seed(seed)
    texts = (repeated_lists(16, generator)[0] for _ in range(steps))
    train(model, ((ids[:, :-1], ids[:, 1:]) for ids in texts), steps, peak=rate, warmup=20, progress=False)
    return model


def repeats_seen(model: AttentionOnly, seed: int, number: int = 100) -> dict[str, float]:
    """Return what the last layer's head does when a list is repeated.

    loss: nats per token, from the second token of the repetition on.
    before: weight of the first layer's head on the token before.
    followed: weight of the last layer's head on the token that followed the present token earlier.
    """
    ids, lengths = repeated_lists(number, torch.Generator().manual_seed(1000 + seed))
    inputs, again = ids[:, :-1], torch.arange(WINDOW) >= lengths[:, None]  # (N, T): this token has occurred before
    with evaluating(model):
        losses = F.cross_entropy(model(inputs).mT, ids[:, 1:], reduction="none")  # (N, T)
    weights = model.attention_weights(inputs)  # (N, T, T) each
    first, last = weights[0], weights[-1]
    followed = (inputs[:, :, None] == inputs[:, None, :-1]) * last[..., 1:]  # (N, T, T − 1): the same token at s − 1
    return {
        "loss": losses[again].mean().item(),
        "before": first.diagonal(-1, 1, 2).mean().item(),
        "followed": (followed.tril(-1).sum(dim=-1))[again].mean().item(),
    }


def misquoted_lists(model: AttentionOnly, seed: int, number: int = 100) -> dict[str, float]:
    """Return which rule a model copies by, after the same test as for the Tinytown model: twelve words, then the third
    and the first.

    third, followed: how often it continues with the third word of the list, or with what followed the first.
    moves: how often another last word (the seventh) makes it continue with what followed that one.
    carried: the fraction of the change of a swapped second word that comes from the last layer's head.
    """
    words = random_lists(number, torch.Generator().manual_seed(2000 + seed))
    listed, new = words[:, :12], words[:, 12]  # (N, 12), (N,)
    ids, other = (torch.cat([listed, listed[:, said]], dim=1) for said in ([2, 0], [2, 6]))  # (N, 14) each
    source = ids.clone()
    source[:, 1] = new
    with evaluating(model):
        logits, moved, whole = (model(each)[:, -1] for each in (ids, other, source))  # (N, V)
    part = patch(model, ids, source, f"layers.{len(model.layers) - 1}.head.0")[:, -1]
    leads = [each.gather(1, new[:, None]) - each.gather(1, listed[:, 1:2]) for each in (part, whole - logits)]
    answers = logits.argmax(dim=-1)
    return {
        "third": (answers == listed[:, 2]).float().mean().item(),
        "followed": (answers == listed[:, 1]).float().mean().item(),
        "moves": (moved.argmax(dim=-1) == listed[:, 7]).float().mean().item(),
        "carried": (leads[0].sum() / leads[1].sum()).item(),
    }


def copier_panels(
    tinytown: DecoderOnly, tokenizer: WordTokenizer, copier: AttentionOnly
) -> list[tuple[str, list[str], np.ndarray, int, int]]:
    """Return two panels of `figures.two_copiers`, one for each model. Their texts repeat the third word, then another
    word.

    Tinytown's text is shown from tom's sentence on.
    """
    quoted, listed = draw_misquotes(tokenizer, (2, 0), 1, seed=1)  # (1, T), (1, 3)
    told = [tokenizer.tokens[id] for id in quoted[0].tolist()][9:]
    followed, third = (told.index(tokenizer.tokens[word]) for word in listed[0, 1:].tolist())
    layer, head = COPIER
    counted = tinytown.attention_weights(quoted)[layer][0, head, -1, 9:]  # (T − 9,)

    drawn = repeated_lists(1, torch.Generator().manual_seed(5))[0][0].unique()[:12]
    drawn = drawn[torch.randperm(12, generator=torch.Generator().manual_seed(5))]
    text = torch.cat([drawn, drawn[[2, 6]]])[None]  # (1, 14): then the third and the seventh again
    looked_up = copier.attention_weights(text)[-1][0, -1]  # (14,)
    return [
        (f"Tinytown, head {layer}.{head}", told, counted.cpu().numpy(), third, followed),
        ("random lists, layer 1", [str(id) for id in text[0].tolist()], looked_up.cpu().numpy(), 2, 7),
    ]


def induction_verdict(plain_one: list[bool], plain_two: list[bool], smeared_one: list[bool]) -> str:
    """Return whether an induction head forms for each seed: in one plain layer, in two, in one with smeared keys.

    An induction head has more than half of its weight on the token that followed the current token earlier. In
    addition, another last word changes more than 90% of the answers as it should.

    confirmed: it forms in two plain layers for every seed, and in a single layer of either kind for none
    depends: it forms in two plain layers for every seed, in one plain layer for none, and in a single layer with
        smeared keys for some
    refuted: it forms in a single plain layer for every seed
    not at this size: anything else
    """
    if all(plain_one):
        return "refuted"
    if not all(plain_two) or any(plain_one):
        return "not at this size"
    return "depends" if any(smeared_one) else "confirmed"


@experiment(
    "heads.induction",
    claim="One layer cannot solve the induction heads task at a size at which two layers can.",
    source=Source(
        "Sanford et al. 2024",
        "One-layer transformers fail to solve the induction heads task",
        "https://arxiv.org/abs/2408.14332",
        place="abstract",
        quote="A simple communication complexity argument proves that no one-layer transformer can solve the induction "
        "heads task unless its size is exponentially larger than the size sufficient for a two-layer transformer.",
    ),
    control="the same width, lists and steps, and each kind of model at its best rate; the lists differ in length, so "
    "that no fixed distance helps; a third kind has one layer whose keys are mixed with those of the token before "
    "(smeared keys, Olsson et al. 2022, argument 2)",
    verdict=induction_verdict,
    seeds=SEEDS,
)
def induction(size: Size) -> Measurement:
    """Train models that have only attention on repeated random lists, and test which rule they copy by."""

    def trained(n_layers: int, smeared: bool) -> tuple[tuple[float, float, float], ...]:
        def run(rate: float, seed: int) -> tuple[float, float, float]:
            model = learn_repeats(n_layers, seed, smeared, rate, size.steps(INDUCTION_STEPS))
            seen = repeats_seen(model, seed)
            return seen["loss"], seen["followed"], misquoted_lists(model, seed)["moves"]

        return at_best_rate(run, rates=(0.003, 0.01, 0.03), seeds=SEEDS).results

    kinds = {
        "one plain layer": trained(1, smeared=False),
        "two plain layers": trained(2, smeared=False),
        "one layer with smeared keys": trained(1, smeared=True),
    }
    forms = [[followed > 0.5 and moves > 0.9 for _, followed, moves in runs] for runs in kinds.values()]
    losses = {kind: sum(loss for loss, *_ in runs) / len(SEEDS) for kind, runs in kinds.items()}
    return Measurement(
        measured="an induction head forms in {} of {} runs with one plain layer, in {} with two, and in {} with one "
        "layer with smeared keys".format(sum(forms[0]), len(SEEDS), *map(sum, forms[1:])),
        rows=(
            ("model", "runs with an induction head", "mean loss on repeated tokens, in nats"),
            *(
                (kind, f"{sum(formed)} of {len(SEEDS)}", f"{loss:.1f}")
                for formed, (kind, loss) in zip(forms, losses.items())
            ),
        ),
        values=[moves for *_, moves in kinds["two plain layers"]],
        figures=dict(zip(("plain_one", "plain_two", "smeared_one"), forms)),
        because="It depends on the keys. The key of a token must contain the token before it. In a plain Transformer "
        "only an earlier layer can write it there; smeared keys contain it from the start.",
    )


# ------------------------------------------------------------------------------------------- heads with nothing to do
IDLE_STEPS = 400
FIRST, AGAIN = 0, 1  # a token that begins every text, and one after which the word before it is repeated


class GatedHeads(MultiHeadAttention):
    """Multiply the output of each head by a gate between 0 and 1 that reads the query's token.

    y = concat(g_1 head_1 … g_H head_H) W_O   with   g = sigmoid(x W_G)

    reads_token: if False, the gate reads ones instead, so that it is the same for every token.
    Parameters: as in MultiHeadAttention, and `gate` (d_model, n_heads).
    Source: Qiu et al. 2025, "Gated Attention for Large Language Models".
    """

    def __init__(self, d_model: int, n_heads: int, reads_token: bool = True):
        super().__init__(d_model, n_heads, bias=False)
        self.gate = nn.Linear(d_model, n_heads, bias=False)
        self.reads_token = reads_token

    def forward(self, x, *args, **options):
        """Compute the gates, then attend as usual."""
        read = x if self.reads_token else torch.ones_like(x)
        self.opening = torch.sigmoid(self.gate(read)).mT[..., None]  # (B, T, H) -> (B, H, T, 1)
        return super().forward(x, *args, **options)

    def attend(self, *args, **options):
        """Return the heads times their gates, and the weights."""
        heads, weights = super().attend(*args, **options)
        return heads * self.opening, weights


def again_texts(number: int, generator: torch.Generator) -> Int[Tensor, "N T1"]:
    """Return texts (N, WINDOW + 1) in which a head has work only at AGAIN: there the word before it is repeated.

    All other words follow by a fixed table of probabilities, for which the current token is enough. FIRST begins every
    text, and one token in nine or so is AGAIN.
    """
    likely = torch.rand(TOKENS, TOKENS, generator=torch.Generator().manual_seed(0)) ** 8
    likely[:, [FIRST, AGAIN]] = 0
    ids = torch.full((number, WINDOW + 1), FIRST)
    word, said = ids[:, 0], torch.zeros(number, dtype=torch.bool)  # the last word; whether AGAIN was the last token
    for t in range(1, WINDOW + 1):
        new = likely[word].multinomial(1, generator=generator)[:, 0]
        says = (torch.rand(number, generator=generator) < 1 / 8) & ~said & (t > 1)
        new = torch.where(said, word, new)
        ids[:, t] = torch.where(says, AGAIN, new)
        word, said = torch.where(says, word, new), says
    return ids


@cache
def learn_again(gate: str, seed: int, rate: float = 0.01, steps: int = IDLE_STEPS) -> AttentionOnly:
    """Train one attention layer with one head on `again_texts`: without a gate (""), or with one that reads the "token"
    or "nothing"."""
    torch.manual_seed(seed)
    model, generator = AttentionOnly(n_layers=1), torch.Generator().manual_seed(seed)
    if gate:
        model.layers[0] = GatedHeads(64, n_heads=1, reads_token=gate == "token")
    texts = again_texts(16 * steps, generator).split(16)
    train(model, ((ids[:, :-1], ids[:, 1:]) for ids in texts), steps, peak=rate, warmup=20, progress=False)
    return model


def sink_seen(model: AttentionOnly, seed: int, number: int = 200) -> dict[str, float]:
    """Return what the head does on new texts.

    loss: nats per token.
    first: the weight on the first token, from tokens at which the head has nothing to do. uniform: the same for uniform
    weights. length: the mean length of the first token's value divided by that of words.
    """
    ids = again_texts(number, torch.Generator().manual_seed(1000 + seed))
    inputs, again = ids[:, :-1], ids[:, :-1] == AGAIN  # (N, T)
    with evaluating(model), trace(model, "*.value") as seen:
        losses = F.cross_entropy(model(inputs).mT, ids[:, 1:], reduction="none")  # (N, T)
    on_first = model.attention_weights(inputs)[0][..., 0]  # (N, T)
    idle = ~again & (torch.arange(WINDOW) > 1)  # (N, T)
    lengths = seen["layers.0.value"][:, 0].norm(dim=-1)  # (N, T)
    return {
        "loss": losses.mean().item(),
        "first": on_first[idle].mean().item(),
        "uniform": (1 / torch.arange(1, WINDOW + 1)).expand_as(on_first)[idle].mean().item(),
        "length": (lengths[:, 0].mean() / lengths[inputs > AGAIN].mean()).item(),
    }


def gate_verdict(plain: list[float], gated: list[float], constant: list[float], uniform: float) -> str:
    """Compare the weights on the first token, seed by seed: without a gate, with one, and with a gate that is the same
    for every token.

    confirmed: without a gate the weight is more than twice the uniform weight; the gate leaves less than half of it,
        and the constant gate more than half; all for every seed
    depends: the gate leaves less than half for every seed, but so does the constant gate for some seed
    not at this size: no sink forms without a gate for some seed, or the gate leaves half of it or more
    """
    sinks = min(plain) > 2 * uniform
    halved, constant_halved = ([each < weight / 2 for each, weight in zip(arm, plain)] for arm in (gated, constant))
    if not sinks or not all(halved):
        return "not at this size"
    return "depends" if any(constant_halved) else "confirmed"


@experiment(
    "heads.gate",
    claim="A sigmoid gate on the output of each head mitigates attention sinks.",
    source=Source(
        "Qiu et al. 2025",
        "Gated Attention for Large Language Models: Non-linearity, Sparsity, and Attention-Sink-Free",
        "https://arxiv.org/abs/2505.06708",
        place="abstract",
        quote="applying a head-specific sigmoid gate after the Scaled Dot-Product Attention (SDPA) … Notably, we find "
        "this sparse gating mechanism mitigates massive activation, attention sink and enhances long-context "
        "extrapolation performance.",
    ),
    control="the same texts and steps, and each kind of model at its best rate; a third kind has a gate with as many "
    "parameters that is the same for every token",
    verdict=gate_verdict,
    seeds=SEEDS,
)
def gate(size: Size) -> Measurement:
    """Train one head that has work at one token in nine, and measure its weight on the first token at the others."""

    def trained(kind: str) -> list[dict[str, float]]:
        def run(rate: float, seed: int) -> tuple[float, dict[str, float]]:
            seen = sink_seen(learn_again(kind, seed, rate, size.steps(IDLE_STEPS)), seed)
            return seen["loss"], seen

        return [seen for _, seen in at_best_rate(run, rates=(0.003, 0.01, 0.03), seeds=SEEDS).results]

    kinds = {
        "without a gate": trained(""),
        "with a gate that reads the token": trained("token"),
        "with a gate that is the same for all": trained("nothing"),
    }
    plain, gated, constant = ([seen["first"] for seen in runs] for runs in kinds.values())
    uniform = kinds["without a gate"][0]["uniform"]
    return Measurement(
        measured=f"where the head has nothing to do, it puts {min(plain):.2f} to {max(plain):.2f} of its weight on the "
        f"first token, with a gate {min(gated):.2f} to {max(gated):.2f} (uniform: {uniform:.2f})",
        rows=(
            ("head", "weight on the first token", "length of its value ÷ that of words"),
            *(
                (
                    name,
                    *(
                        f"{min(found):.2f} to {max(found):.2f}"
                        for found in ([seen[key] for seen in runs] for key in ("first", "length"))
                    ),
                )
                for name, runs in kinds.items()
            ),
        ),
        values=gated,
        figures={"plain": plain, "gated": gated, "constant": constant, "uniform": uniform},
        because="The gate lowers the weight for every seed, though not always to less than half, our limit. After four "
        "times the steps, it does.",
    )


@cache
def _stories() -> tuple[WordTokenizer, Tensor, list[list[int]]]:
    """Return a tokenizer, stories to train on as one row of ids, and other stories to measure on."""
    tokenizer = WordTokenizer()
    held_out = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(100)]
    return tokenizer, encode_stories(Tinytown(0).sample(4000), tokenizer), held_out


def loss_with_heads(n_heads: int, seed: int, steps: int = 60, rate: float = 0.03) -> float:
    """Return the held-out loss, in nats per token, of a small model with this number of heads after a few steps."""
    tokenizer, ids, held_out = _stories()
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(
            vocab_size=len(tokenizer),
            d_model=32,
            n_heads=n_heads,
            n_layers=2,
            d_ff=64,
            max_seq_len=96,
            positions="rope",
        )
    )
    batches = Batches(ids, 8, 48, torch.Generator().manual_seed(seed), start_id=tokenizer.bos_id)
    train(model, batches, steps, peak=rate, warmup=steps // 10, progress=False)
    nats, tokens = story_losses(model, held_out)
    return (nats.sum() / tokens.sum()).item()


def how_many_verdict(one: list[float], sixteen: list[float]) -> str:
    """Compare 1 and 16 heads with 4: how much higher is the loss, in nats, seed by seed?

    confirmed: 1 head and 16 heads both end more than 0.01 nats higher than 4 for every seed
    depends: only one of the two does
    not at this size: neither does; a model this small cannot decide for large ones
    """
    higher = [min(each) > 0.01 for each in (one, sixteen)]
    return "confirmed" if all(higher) else "depends" if any(higher) else "not at this size"


def _apart(differences: Sequence[float]) -> str:
    mean = sum(differences) / len(differences)
    return f"{abs(mean):.2f} nats {'above' if mean > 0 else 'below'}"


@experiment(
    "heads.how_many",
    claim="While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too many "
    "heads.",
    source=VASWANI(
        place="§ 6.2 and Table 3 (A)",
        quote="While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off with too "
        "many heads.",
    ),
    control="d_model (32), parameters, batches and steps are equal, and each number of heads has its best rate; the "
    "width of a head changes with the number, as in the paper",
    verdict=how_many_verdict,
    seeds=SEEDS,
)
def how_many(size: Size) -> Measurement:
    """Train models with d_model = 32 on the same batches: 1 head of 32 features, 4 heads of 8, and 16 heads of 2."""

    def losses(n_heads: int) -> tuple[float, ...]:
        def run(rate: float, seed: int) -> float:
            return loss_with_heads(n_heads, seed, size.steps(240), rate)

        return at_best_rate(run, rates=(0.01, 0.03, 0.1), seeds=SEEDS).losses

    four = losses(4)
    one, sixteen = ([other - each for other, each in zip(losses(n_heads), four)] for n_heads in (1, 16))
    return Measurement(
        measured=f"on average 16 heads end {_apart(sixteen)} the loss of 4 heads, and one head ends {_apart(one)} it",
        rows=(
            ("loss minus that of 4 heads, in nats", "lowest of the seeds", "highest of the seeds"),
            *(
                (name, f"{min(each):+.2f}", f"{max(each):+.2f}")
                for name, each in (("1 head", one), ("16 heads", sixteen))
            ),
        ),
        values=tuple(sixteen),
        figures={"one": one, "sixteen": sixteen},
        because="It depends on the number of heads and on the length of training: after four times the steps, 16 heads "
        "reach the loss of 4. One head does no harm in this small model. Large translation models may differ.",
    )
