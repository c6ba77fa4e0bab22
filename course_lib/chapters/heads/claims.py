"""Chapter 4's claims: what heads cost, what they can do, and what they learn to do."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.claims.interventions import patch, swap
from course_lib.claims.registry import Finding, Source, experiment
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
VASWANI = partial(Source, "Vaswani et al. 2017", link="https://arxiv.org/abs/1706.03762")


# ------------------------------------------------------------------------------------------------------ what they cost
def attention_parameters(n_heads: int, d_head: int, d_model: int = 768) -> int:
    """Count the parameters of an attention layer whose heads have d_head features each, on its four projections."""
    with torch.device("meta"):
        enter, leave = nn.Linear(d_model, n_heads * d_head), nn.Linear(n_heads * d_head, d_model)
    return sum(each.numel() for each in (*3 * list(enter.parameters()), *leave.parameters()))


@experiment(
    "heads.parameters",
    claim="Adding more heads will add more parameters.",
    source=Source(
        "PyTorch Forums",
        "What does increasing number of heads do in the Multi-head Attention?, first answer",
        "https://discuss.pytorch.org/t/what-does-increasing-number-of-heads-do-in-the-multi-head-attention/101294",
    ),
    control="d_model is held at 768; once the heads share its features out, once each keeps 64 of its own",
    threshold="confirmed if the count grows both ways, refuted if it grows neither way, else depends",
)
def parameters() -> Finding:
    """1 to 64 heads: counted on the module, whose heads share d_model out, and with heads of a fixed size."""
    heads = (1, 2, 4, 8, 16, 32, 64)
    shared = [sum(each.numel() for each in MultiHeadAttention(768, n_heads).parameters()) for n_heads in heads]
    fixed = [attention_parameters(n_heads, d_head=64) for n_heads in heads]
    grows = [counts[-1] > counts[0] for counts in (shared, fixed)]
    return Finding(
        measured=f"1 head and 64: {shared[0]:,} and {shared[-1]:,} parameters if they share 768 features out, "
        f"{fixed[0]:,} and {fixed[-1]:,} if each has 64 of its own",
        values=tuple(map(float, shared)),
        verdict="confirmed" if all(grows) else "depends" if any(grows) else "refuted",
        because="In the paper and in PyTorch heads share d_model out: twice the heads, each half as wide. Only heads "
        "of a fixed size add parameters.",
    )


@experiment(
    "heads.slice",
    claim="The embedding is broken into chunks, and each is fed to a different head.",
    source=Source(
        "Bloem 2019",
        "former, modules.py, comment in SelfAttention",
        "https://github.com/pbloem/former/blob/master/former/modules.py",
    ),
    control="a W_Q that does read chunk by chunk (zero outside eight blocks), with the same other features redrawn",
    threshold="refuted if the query moves by more than a tenth of its length in every seed, else confirmed",
    seeds=SEEDS,
)
def input_slice() -> Finding:
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
    return Finding(
        measured=f"other features redrawn: head 0's query moves by {min(moved):.1f} times its own length "
        f"({max(chunked):.1f} if W_Q did read chunks)",
        values=tuple(moved),
        verdict="refuted" if min(moved) > 0.1 else "confirmed",
        because="W_Q comes before the split: each head reads all features of a token and writes a slice of its own.",
    )


@experiment(
    "heads.time",
    claim="As the heads are narrower, several cost about as much as one of full width.",
    source=VASWANI("Attention Is All You Need, § 3.2.2"),
    control="the same 256 tokens, d_model and number of multiplications; timed alternately, the best of many rounds; "
    "once with the weights kept, once by the fused kernel, which keeps none",
    threshold="confirmed if 8 and 64 heads take at most 1.3 times as long as 1 both ways, refuted if 8, the paper's "
    "number, take more than 1.6 times as long both ways, else depends",
    timed=True,
)
def time_by_heads() -> Finding:
    x = torch.randn(1, 256, 512)
    layers = [MultiHeadAttention(512, n_heads) for n_heads in (1, 8, 64)]
    ratios = {}
    with torch.no_grad():
        for way, need_weights in (("with the weights kept", True), ("fused", False)):
            one, eight, many = best_seconds([partial(layer, x, need_weights=need_weights) for layer in layers])
            ratios[way] = eight / one, many / one
    told = "; ".join(f"{way} {eight:.1f} and {many:.1f}" for way, (eight, many) in ratios.items())
    return Finding(
        measured=f"256 tokens, d_model = 512; time of 8 and of 64 heads divided by that of 1: {told}",
        values=tuple(ratio for both in ratios.values() for ratio in both),
        verdict="confirmed"
        if max(map(max, ratios.values())) <= 1.3
        else "refuted"
        if min(eight for eight, _ in ratios.values()) > 1.6
        else "depends",
        because="The multiplications stay, but every head has its own T × T weights, each with an exp and room in "
        "memory. For eight heads that is little.",
    )


# ---------------------------------------------------------------------------------------------------- what they can do
def imitation_error(
    seed: int, wanted_heads: int, heads: int, T: int = 5, d: int = 8, sequences: int = 60, steps: int = 300
) -> float:
    """Fit some heads to the sum of drawn ones: return the relative error that is left.

    Each may choose any attention weights whatsoever, for each query of each sequence, and any matrix (d, d).
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    x = draw(sequences, T, d)
    mixes = [(3 * draw(sequences, T, T)).softmax(-1) for _ in range(wanted_heads)]  # (N, T, T) each
    wanted = torch.stack([mix @ x @ draw(d, d) for mix in mixes]).sum(0)  # (N, T, d)
    scores = [draw(sequences, T, T).requires_grad_() for _ in range(heads)]
    matrices = [(draw(d, d) / d**0.5).requires_grad_() for _ in range(heads)]
    optimizer = torch.optim.Adam([*scores, *matrices], lr=0.1)
    for _ in range(steps):
        made = torch.stack([each.softmax(-1) @ x @ matrix for each, matrix in zip(scores, matrices)]).sum(0)
        error = (made - wanted).norm() / wanted.norm()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return error.item()


@experiment(
    "heads.one_big_head",
    claim="With a single attention head, averaging inhibits attending to several things at once.",
    source=VASWANI("Attention Is All You Need, § 3.2.2"),
    control="the same fit with two heads in place of the one, and of one head to one; free weights for every query",
    threshold="confirmed if one head leaves more than twice the error of two in every seed and fits one head to 0.05, "
    "else refuted",
    seeds=SEEDS,
)
def one_big_head() -> Finding:
    """What is left when one head of full width imitates the sum of two, beside two imitating two, and one one."""
    one, two, itself = ([imitation_error(seed, *sizes) for seed in SEEDS] for sizes in ((2, 1), (2, 2), (1, 1)))
    inhibits = all(single > 2 * pair for single, pair in zip(one, two)) and max(itself) < 0.05
    return Finding(
        measured=f"two heads imitated by one with freely chosen weights: an error of {min(one):.0%} or more remains, "
        f"with two {max(two):.0%} or less",
        values=tuple(one),
        verdict="confirmed" if inhibits else "refuted",
        because="One head mixes the tokens in one way per query; two mix them in two ways and keep the results apart. "
        "Whether a task needs that is another question.",
    )


# ------------------------------------------------------------------------------------------------------ what they learn
START = "once there was a king called tom . "


def _quotation(words: Sequence[str], repeated: Sequence[str], between: str = "") -> str:
    """Return tom's three words, a sentence between or none, and the words that anna has said after him so far."""
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


# What is asked -> a function that draws (the beginning of a story, the one right next word).
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
    """Return `number` questions of that name: (beginning of a story, right next word)."""
    rng = random.Random(f"{seed} {name}")
    return [QUESTIONS[name](rng) for _ in range(number)]


def encode_questions(tokenizer: WordTokenizer, questions: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Return questions of one kind, which are of equal length, as ids (N, T) and answers (N,)."""
    ids = torch.tensor([tokenizer.encode(prompt, end=False) for prompt, _ in questions])
    return ids, torch.tensor([tokenizer.id(answer) for _, answer in questions])


def draw_misquotes(
    tokenizer: WordTokenizer, said: Sequence[int], number: int, seed: int = 0, between: str = ""
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N 3"]]:
    """Return stories in which anna repeats tom's words in another order: those at `said`, counted from 0.

    between: a sentence between the two lists, which moves anna's words further away from tom's.

    said = (2, 0) draws "tom said : lake sand stone . anna said it too : stone lake". Tinytown always repeats the words
    in order, where "what followed this word before" (induction) and "what stands at this position of the list"
    (ordinal) give the same next word. Here they differ.

    Returns: ids (N, T), which end where anna's next word is due, and tom's three words (N, 3).
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
    """Silence these heads, (layer, head) each, while the block runs: zeros enter W_O instead of their results.

    mean: instead of zeros their mean over these texts and positions.
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
    """Measure what it costs the Tinytown model to lose each of its heads, and where those heads look.

    Args:
        seed: of the stories and questions. number: of each question. mean: as in `without_heads`.
    Returns: costs (layers, H, 1 + questions), nats lost per token of whole stories, then per answer of each question;
    and weights (layers, H, questions), the mean weight from the last word of a question to its answer in the story.
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


# More than this is harm, in nats: a tenth of the model's loss, or an answer made a seventh less likely.
STORY_HARM, ANSWER_HARM = 0.065, 0.15


def unharmed(costs: Float[Tensor, "layers H columns"]) -> tuple[int, int]:
    """Count the heads that can go without harm to the stories, and those without harm to any question either."""
    stories = costs[..., 0] < STORY_HARM  # (layers, H)
    return int(stories.sum()), int((stories & (costs[..., 1:] < ANSWER_HARM).all(-1)).sum())


def _span(numbers: Sequence[int]) -> str:
    return f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


@experiment(
    "heads.removal",
    claim="Most attention heads can be individually removed after training without significant harm.",
    source=Source(
        "Michel et al. 2019", "Are Sixteen Heads Really Better than One?, § 1", "https://arxiv.org/abs/1905.10650"
    ),
    control="zeros in place of a head, beside its mean in place of it; other stories and questions for each seed",
    threshold=f"harm is {STORY_HARM} nats per token of a story or {ANSWER_HARM} per answer; confirmed if more than "
    "half of the heads can go without either in every seed, depends if only without harm to the stories, else refuted",
    seeds=SEEDS,
)
def removal() -> Finding:
    """Each head of the trained Tinytown model cut out alone: the loss of whole stories and of nine kinds of answer."""
    by_loss, by_both = zip(*(unharmed(removal_costs(seed)[0]) for seed in SEEDS))
    _, gentler = unharmed(removal_costs(mean=True)[0])
    heads = removal_costs()[0][..., 0].numel()
    return Finding(
        measured=f"{_span(by_loss)} of {heads} heads by the loss over whole stories; {_span(by_both)} if every kind of "
        f"question must stand as well ({gentler} with means for zeros)",
        values=tuple(each / heads for each in by_both),
        verdict="confirmed" if min(by_both) > heads / 2 else "depends" if min(by_loss) > heads / 2 else "refuted",
        because="Averages hide what a head is for: some cost the average next to nothing and one ability everything.",
    )


@experiment(
    "heads.looking",
    claim="A confident head, which puts most of its weight on one token, is an important head.",
    source=Source(
        "Voita et al. 2019",
        "Analyzing Multi-Head Self-Attention: Specialized Heads Do the Heavy Lifting, the Rest Can Be Pruned, § 4",
        "https://arxiv.org/abs/1905.09418",
    ),
    control="the heads that do not look at the answer: how often is one of them needed?",
    threshold=f"looking is more than half of the weight on the answer, needed is a removal that costs {ANSWER_HARM} "
    "nats; confirmed if 95 % of those that look are needed in every seed, refuted if they are needed no more than "
    "twice as often as the others in some seed, else depends",
    seeds=SEEDS,
)
def looking() -> Finding:
    """Nine kinds of question: is a head that looks at the answer, when that is due, needed for it?"""
    shares, others, looked, harmed = [], [], 0, 0
    for seed in SEEDS:
        costs, weights = removal_costs(seed)
        looks, needed = weights > 0.5, costs[..., 1:] > ANSWER_HARM  # (layers, H, questions)
        shares.append(needed[looks].float().mean().item())
        others.append(needed[~looks].float().mean().item())
        looked, harmed = looked + int(looks.sum()), harmed + int((looks & needed).sum())
    return Finding(
        measured=f"three seeds together: {looked} times a head has more than half its weight on the answer, {harmed} "
        f"times its removal harms that answer; of the heads that look elsewhere {sum(others) / len(others):.0%} are "
        "needed",
        values=tuple(shares),
        verdict="confirmed"
        if min(shares) > 0.95
        else "refuted"
        if any(share <= 2 * other for share, other in zip(shares, others))
        else "depends",
        because="Looking makes it likely, not certain: another head may bring the same word. Weights show where a head "
        "reads, removal whether it is needed.",
    )


def look_statistics(model: DecoderOnly, stories: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Measure how differently the heads of each layer look, and how widely, in bits: (layers,) each, over all queries.

    Returns: the Jensen–Shannon divergence, entropy(mean of the heads' weights) − mean of the heads' entropies (0 if all
    look alike, at most log2 H); and that mean of the heads' entropies (0: each at one token).
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


SHARPENED = 36  # times these scores, random heads of GPT-2's initialisation look about as sharply as the trained ones


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
    """Return the pairs of heads of one layer, (layer, one, other), each of which is needed for what the other is not.

    Needed: its removal costs an answer more than half a nat. Not needed: less than a tenth of that.
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


@experiment(
    "heads.specialise",
    claim="Individual attention heads clearly learn to perform different tasks.",
    source=VASWANI("Attention Is All You Need, § 4"),
    control=f"where heads look, beside untrained heads whose scores are multiplied by {SHARPENED}, so that they look "
    "as sharply; what heads do, by removing each alone",
    threshold="confirmed if in every seed two heads of one layer are each needed (0.5 nats) for a kind of question to "
    "which the other's removal does nothing (0.05), and trained heads look more differently than random ones; depends "
    "if only the first, else refuted",
    seeds=SEEDS,
)
def specialise() -> Finding:
    """By looks, heads of one layer are no more different than chance; by what their removal costs, they are."""
    model, tokenizer = load_pretrained("tinytown")
    stories = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(20)]
    trained = look_statistics(model, stories)[0].mean().item()
    drawn = [look_statistics(random_heads(model.config, seed), stories)[0].mean().item() for seed in SEEDS]
    pairs = [dissociations(removal_costs(seed)[0][..., 1:]) for seed in SEEDS]
    both = set.intersection(*map(set, pairs))
    return Finding(
        measured=f"{len(both)} pairs of heads of one layer are each needed for what the other is not; but where they "
        f"look differs by {trained:.1f} bits, equally sharp random heads by {min(drawn):.1f}",
        values=tuple(float(len(each)) for each in pairs),
        verdict="refuted" if not both else "confirmed" if trained > max(drawn) else "depends",
        because="Some heads have tasks of their own, as removing them shows. That they look at different words does "
        "not show it: heads drawn at random do so even more.",
    )


COPIER = (2, 3)  # layer and head of the Tinytown model that copies lists


def exchanged_word(
    tokenizer: WordTokenizer, ids: Int[Tensor, "N T"], listed: Int[Tensor, "N 3"], seed: int
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N"]]:
    """Return the stories of `draw_misquotes` with another second word in tom's list: (ids, that word of each)."""
    rng = random.Random(seed)
    code = [tokenizer.id(word) for word in CLASSES["code"]]
    new = torch.tensor([rng.choice([word for word in code if word not in words]) for words in listed.tolist()])
    second = (ids == listed[:, 1:2]).float().argmax(dim=-1)  # (N,): where tom says it
    return ids.scatter(1, second[:, None], new[:, None]), new


@experiment(
    "heads.copying",
    claim="Copying from the context is the work of induction heads: [A][B] … [A] is completed with [B].",
    source=Source(
        "Olsson et al. 2022", "In-context Learning and Induction Heads, abstract", "https://arxiv.org/abs/2209.11895"
    ),
    control="texts in which the rules part: anna repeats tom's third word, then his first; then one word exchanged at "
    "a time, and the one head's output taken from the other text",
    threshold="confirmed if more than half of the answers are what followed the last word before, depends if more than "
    "half are copied by another rule, refuted if neither",
    seeds=SEEDS,
)
def copying() -> Finding:
    """Which word the Tinytown model gives after tom's third and first; what changes it, and what carries the change."""
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
    return Finding(
        measured=f"anna says tom's third word, then his first: the model goes on with the third in "
        f"{sum(ordinal) / len(SEEDS):.0%}, with what followed the first in {sum(induction) / len(SEEDS):.0%}; layer "
        f"{COPIER[0]}, head {COPIER[1]} carries {sum(carried) / len(SEEDS):.0%} of an exchanged word",
        values=tuple(induction),
        verdict="confirmed" if min(induction) > 0.5 else "depends" if min(ordinal) > 0.5 else "refuted",
        because="This model copies by counting: two words said, so the third is due. Tinytown's lists always come in "
        "order, so counting suffices. Large models do form induction heads.",
    )


# ------------------------------------------------------------------------------------- where induction heads do form
TOKENS, WINDOW = 64, 48  # how many tokens there are, and how many a text has


class AttentionOnly(nn.Module):
    """Attention layers of one head each, added up in the residual stream, and nothing else; positions by RoPE.

    The smallest model in which induction heads are known to form (Olsson et al. 2022).
    """

    def __init__(self, n_layers: int, d_model: int = 64):
        super().__init__()
        self.token_embedding = nn.Embedding(TOKENS, d_model)
        self.layers = nn.ModuleList(MultiHeadAttention(d_model, n_heads=1, bias=False) for _ in range(n_layers))
        self.norms = nn.ModuleList(RMSNorm(d_model) for _ in range(n_layers + 1))
        self.output = nn.Linear(d_model, TOKENS, bias=False)

    def forward(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"] | None = None):
        """Return the logits (B, T, V); with targets (logits, loss)."""
        x = self.token_embedding(ids)  # (B, T, d_model)
        angles = rotary_angles(torch.arange(ids.shape[1]), x.shape[-1])
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x), is_causal=True, rotary=angles)
        logits = self.output(self.norms[-1](x))  # (B, T, V)
        return logits if targets is None else (logits, next_token_loss(logits, targets))

    def attention_weights(self, ids: Int[Tensor, "B T"]) -> list[Float[Tensor, "B T T"]]:
        """Return what the head of each layer looks at."""
        with evaluating(self), trace(self, "*.weights") as seen:
            self(ids)
        return [seen[f"layers.{i}.weights"][:, 0] for i in range(len(self.layers))]


def random_lists(number: int, generator: torch.Generator) -> Int[Tensor, "N V"]:
    """Return every token once, in an order of its own for each text."""
    return torch.rand(number, TOKENS, generator=generator).argsort(dim=1)


def repeated_lists(number: int, generator: torch.Generator) -> tuple[Int[Tensor, "N T1"], Int[Tensor, "N"]]:
    """Return texts (N, WINDOW + 1), each a random list that is repeated until the window is full, and its length (N,).

    The length, 6 to 20, differs from text to text, so that no fixed distance leads back to the last occurrence.
    """
    lengths = torch.randint(6, 21, (number,), generator=generator)
    index = torch.arange(WINDOW + 1) % lengths[:, None]  # (N, T + 1): which of the list
    return random_lists(number, generator).gather(1, index), lengths


@cache
def learn_repeats(n_layers: int, seed: int, steps: int = 500) -> AttentionOnly:
    """Train a small model of attention alone on repeated random lists: some seconds."""
    torch.manual_seed(seed)
    model, generator = AttentionOnly(n_layers), torch.Generator().manual_seed(seed)
    texts = (repeated_lists(16, generator)[0] for _ in range(steps))
    train(model, ((ids[:, :-1], ids[:, 1:]) for ids in texts), steps, peak=1e-2, warmup=20, progress=False)
    return model


def repeats_seen(model: AttentionOnly, seed: int, number: int = 100) -> dict[str, float]:
    """Return what the last layer's head does when a list comes again.

    loss: nats per token, from the second token of the repetition on. before: weight of the first layer's head on the
    token before. followed: weight of the last layer's head on what followed the present token earlier.
    """
    ids, lengths = repeated_lists(number, torch.Generator().manual_seed(1000 + seed))
    inputs, again = ids[:, :-1], torch.arange(WINDOW) >= lengths[:, None]  # (N, T): this token has occurred before
    with evaluating(model):
        losses = F.cross_entropy(model(inputs).mT, ids[:, 1:], reduction="none")  # (N, T)
    weights = model.attention_weights(inputs)  # (N, T, T) each
    first, last = weights[0], weights[-1]
    followed = (inputs[:, :, None] == inputs[:, None, :-1]) * last[..., 1:]  # (N, T, T − 1): s − 1 holds the same as t
    return {
        "loss": losses[again].mean().item(),
        "before": first.diagonal(-1, 1, 2).mean().item(),
        "followed": (followed.tril(-1).sum(dim=-1))[again].mean().item(),
    }


def misquoted_lists(model: AttentionOnly, seed: int, number: int = 100) -> dict[str, float]:
    """Return by which rule a model copies, asked as the Tinytown model is: twelve words, then the third and the first.

    third, followed: how often it goes on with the third of the list, or with what followed the first. moves: how often
    another last word (the seventh) makes it go on with what followed that one. carried: the share of an exchanged
    second word that the last layer's head brings.
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


@experiment(
    "heads.induction",
    claim="Induction heads need two layers: the second finds what followed a token before, because the first has told "
    "each token what stands before it.",
    source=Source(
        "Olsson et al. 2022",
        "In-context Learning and Induction Heads, Key Concepts",
        "https://arxiv.org/abs/2209.11895",
    ),
    control="one layer, trained alike; the lists differ in length, so that no fixed distance helps; and one word "
    "exchanged at a time, since a head may look at the right word for another reason",
    threshold="confirmed if in every seed another last word moves more than 90 % of the answers with two layers, where "
    "the second layer's head has more than half its weight on what followed, and less than 10 % with one layer; "
    "refuted if two layers do so in no seed, or one layer in every; else depends",
    seeds=SEEDS,
)
def induction() -> Finding:
    """Random lists, given again and again, learned by attention alone; then asked as the head that copies lists was."""
    seen, asked = (
        {n_layers: [ask(learn_repeats(n_layers, seed), seed) for seed in SEEDS] for n_layers in (1, 2)}
        for ask in (repeats_seen, misquoted_lists)
    )

    def mean(rows, name):
        return sum(row[name] for row in rows) / len(rows)

    moves = {n_layers: [row["moves"] for row in rows] for n_layers, rows in asked.items()}
    forms = [moved > 0.9 and row["followed"] > 0.5 for moved, row in zip(moves[2], seen[2])]
    return Finding(
        measured=f"two layers: {mean(seen[2], 'followed'):.1f} of the weight on what followed, a loss of "
        f"{mean(seen[2], 'loss'):.1f} nats on what has occurred, another last word moves {mean(asked[2], 'moves'):.0%} "
        f"of the answers; one layer: {mean(seen[1], 'followed'):.1f}, {mean(seen[1], 'loss'):.1f} nats, "
        f"{mean(asked[1], 'moves'):.0%}",
        values=tuple(moves[2]),
        verdict="confirmed"
        if all(forms) and max(moves[1]) < 0.1
        else "refuted"
        if not any(forms) or min(moves[1]) > 0.9
        else "depends",
        because="The key of a word must know the word before it, and only an earlier layer can tell it. What is copied "
        "depends on the training: where lists come in order, as in Tinytown, counting suffices.",
    )


@cache
def _stories() -> tuple[WordTokenizer, Tensor, list[list[int]]]:
    """Return a tokenizer, stories to train on as one row of ids, and others to measure on."""
    tokenizer = WordTokenizer()
    held_out = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(100)]
    return tokenizer, encode_stories(Tinytown(0).sample(4000), tokenizer), held_out


def loss_with_heads(n_heads: int, seed: int, positions: str = "rope", steps: int = 200) -> float:
    """Return the loss on held-out stories, in nats per token, of a small model with so many heads after some steps."""
    tokenizer, ids, held_out = _stories()
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(
            vocab_size=len(tokenizer), d_model=32, n_heads=n_heads, n_layers=2, d_ff=64, max_seq_len=96,
            positions=positions,
        )
    )  # fmt: skip
    batches = Batches(ids, 8, 48, torch.Generator().manual_seed(seed), start_id=tokenizer.bos_id)
    train(model, batches, steps, peak=5e-3, warmup=steps // 10, progress=False)
    nats, tokens = story_losses(model, held_out)
    return (nats.sum() / tokens.sum()).item()


@experiment(
    "heads.how_many",
    claim="Single-head attention is worse than the best setting, and quality also drops off with too many heads.",
    source=VASWANI("Attention Is All You Need, § 6.2, Table 3 (A)"),
    control="d_model = 32, parameters, batches, steps and schedule are equal; 4 and 16 heads once more with learned "
    "positions, since RoPE needs features in pairs; the width of a head changes with the number, as in the paper",
    threshold="confirmed if 1 head and 16 end higher than 4 in every seed, 16 with either kind of positions; refuted "
    "if none of them does on average; else depends",
    seeds=SEEDS,
)
def how_many() -> Finding:
    """d_model = 32 throughout: 1 head of 32 features, 4 of 8, 16 of 2; same steps, same batches."""
    harm = {}  # loss minus that of 4 heads, seed by seed
    for positions, others in (("rope", (1, 16)), ("learned", (16,))):
        four = [loss_with_heads(4, seed, positions) for seed in SEEDS]
        for n_heads in others:
            losses = [loss_with_heads(n_heads, seed, positions) for seed in SEEDS]
            harm[positions, n_heads] = [other - alone for other, alone in zip(losses, four)]
    mean = {setting: sum(each) / len(each) for setting, each in harm.items()}
    return Finding(
        measured=f"d_model = 32, nats above 4 heads: 16 heads {mean['rope', 16]:+.2f} with RoPE and "
        f"{mean['learned', 16]:+.2f} with learned positions; 1 head {mean['rope', 1]:+.2f} with RoPE",
        values=tuple(harm["rope", 16]),
        verdict="confirmed"
        if min(map(min, harm.values())) > 0
        else "refuted"
        if max(mean.values()) <= 0
        else "depends",
        because="With RoPE a head of two features is one rotating pair, with nothing free of position, and sixteen "
        "lose a little; with learned positions they do not. It is not the many heads as such.",
    )
