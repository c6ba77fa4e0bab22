"""Chapter 4's claims: what heads cost, what they can do, and what they learn to do."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib.claims.registry import Finding, experiment
from course_lib.claims.timing import best_seconds
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.heads import MultiHeadAttention, split_heads
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.tinytown.world import ANIMAL_SOUNDS, CAPITALS, CLASSES, MEN, OPPOSITES
from course_lib.training import story_losses, train

SEEDS = (0, 1, 2)


# ------------------------------------------------------------------------------------------------------ what they cost
@experiment("heads.parameters", claim="More heads add parameters to an attention layer.")
def parameters() -> Finding:
    counts = {
        n_heads: sum(parameter.numel() for parameter in MultiHeadAttention(512, n_heads).parameters())
        for n_heads in (1, 2, 4, 8, 16, 32, 64)
    }
    return Finding(
        measured=f"d_model = 512: {counts[1]:,} parameters with 1 head, {counts[64]:,} with 64",
        values=tuple(map(float, counts.values())),
        verdict="refuted" if len(set(counts.values())) == 1 else "confirmed",
        because="Heads share out the same d_model columns: twice the heads, each half as wide.",
    )


@experiment("heads.slice", claim="A head sees only its own slice of d_model / n_heads input features.")
def input_slice() -> Finding:
    """Redraw every input feature outside head 0's slice, and see how far head 0's query moves, relative to its size."""
    moved = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        attention = MultiHeadAttention(64, 8, bias=False)
        x = torch.randn(1, 200, 64)  # (B, T, d_model)
        outside = torch.cat([x[..., :8], torch.randn(1, 200, 56)], dim=-1)
        with torch.no_grad():
            before, after = (split_heads(attention.q_proj(each), 8)[:, 0] for each in (x, outside))  # (B, T, D)
        moved.append(((after - before).norm() / before.norm()).item())
    return Finding(
        measured=f"other features redrawn: head 0's query moves by {min(moved):.1f} times its own length",
        values=tuple(moved),
        verdict="refuted" if min(moved) > 0.1 else "confirmed",
        because="W_Q comes before the split: each head reads all features of a token and writes a slice of its own.",
    )


@experiment("heads.time", claim="The number of heads does not change the cost of attention.", timed=True)
def time_by_heads() -> Finding:
    x = torch.randn(1, 256, 512)
    layers = [MultiHeadAttention(512, n_heads) for n_heads in (1, 8, 64)]
    with torch.no_grad():
        one, eight, many = best_seconds([partial(layer, x, need_weights=True) for layer in layers])
    return Finding(
        measured=f"256 tokens, d_model = 512, weights kept: 8 heads take {eight / one:.1f} times as long as 1, 64 "
        f"{many / one:.1f} times",
        values=(eight / one, many / one),
        verdict="refuted" if eight / one > 1.6 else "depends" if many / one > 1.3 else "confirmed",
        because="The multiplications stay, but every head has its own T × T weights, each with an exp and a place.",
    )


# ---------------------------------------------------------------------------------------------------- what they can do
def best_single_head(seed: int, T: int = 5, d: int = 8, sequences: int = 60, steps: int = 300) -> float:
    """How close one head comes to the sum of two drawn ones: the relative error that is left.

    The one head may choose any attention weights whatsoever, for each query of each sequence, and any matrix (d, d).
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    x = draw(sequences, T, d)
    first, second = (3 * draw(sequences, T, T)).softmax(-1), (3 * draw(sequences, T, T)).softmax(-1)  # (N, T, T)
    wanted = first @ x @ draw(d, d) + second @ x @ draw(d, d)  # (N, T, d)
    scores = draw(sequences, T, T).requires_grad_()
    matrix = (draw(d, d) / d**0.5).requires_grad_()
    optimizer = torch.optim.Adam([scores, matrix], lr=0.1)
    for _ in range(steps):
        error = (scores.softmax(-1) @ x @ matrix - wanted).norm() / wanted.norm()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return error.item()


@experiment("heads.one_big_head", claim="One head as wide as d_model could do what several heads do.")
def one_big_head() -> Finding:
    errors = tuple(best_single_head(seed) for seed in SEEDS)
    return Finding(
        measured=f"two heads imitated by one with freely chosen weights: an error of {min(errors):.0%} or more remains",
        values=errors,
        verdict="refuted" if min(errors) > 0.05 else "confirmed",
        because="One head mixes the tokens in one way per query; two heads mix them in two ways and keep the results "
        "apart.",
    )


# ------------------------------------------------------------------------------------------------------ what they learn
START = "once there was a king called tom . "


def _quotation(words: Sequence[str], repeated: Sequence[str], between: str = "") -> str:
    """Tom's three words, a sentence between or none, and the words that anna has said after him so far."""
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
    """`number` questions of that name: (beginning of a story, right next word)."""
    rng = random.Random(f"{seed} {name}")
    return [QUESTIONS[name](rng) for _ in range(number)]


def encode_questions(tokenizer: WordTokenizer, questions: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Questions of one kind, which are of equal length, as ids (N, T) and answers (N,)."""
    ids = torch.tensor([tokenizer.encode(prompt, end=False) for prompt, _ in questions])
    return ids, torch.tensor([tokenizer.id(answer) for _, answer in questions])


def draw_misquotes(
    tokenizer: WordTokenizer, said: Sequence[int], number: int, seed: int = 0, between: str = ""
) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N 3"]]:
    """Stories in which anna repeats tom's words in another order: those at `said`, counted from 0.

    between: a sentence between the two lists, which moves anna's words further away from tom's.

    said = (2, 0) draws "tom said : lake sand stone . anna said it too : stone lake". Tinytown always repeats the words
    in order, where "what followed this word before" (induction) and "what stands at this position of the list"
    (ordinal) give the same next word. Here they differ.

    Returns: ids (N, T), which end where anna's next word is due, and tom's three words (N, 3).
    """
    rng = random.Random(f"{seed} {tuple(said)}")
    listed = [rng.sample(tuple(CLASSES["code"]), 3) for _ in range(number)]
    stories = [_quotation(words, [words[place] for place in said], between) for words in listed]
    return (
        torch.tensor([tokenizer.encode(story, end=False) for story in stories]),
        torch.tensor([[tokenizer.id(word) for word in words] for words in listed]),
    )


@contextmanager
def without_heads(model: DecoderOnly, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """The model with these heads, (layer, head) each, saying nothing: zeros enter W_O in their place."""
    layers = sorted({layer for layer, _ in heads})
    handles = []
    for layer in layers:
        silent = [head for at, head in heads if at == layer]

        def silence(_module, inputs, silent=silent):
            kept = inputs[0].unflatten(-1, (model.config.n_heads, -1)).clone()  # (B, T, H, D)
            kept[..., silent, :] = 0
            return (kept.flatten(-2),)

        handles.append(model.blocks[layer].attention.out_proj.register_forward_pre_hook(silence))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@cache
def removal_costs(number: int = 12, stories: int = 40) -> tuple[Tensor, Tensor]:
    """What it costs the Tinytown model to lose each of its heads, and where those heads look.

    Returns: costs (layers, H, 1 + questions), nats lost per token of whole stories, then per answer of each question;
    and weights (layers, H, questions), the mean weight from the last word of a question to its answer in the story.
    """
    model, tokenizer = load_pretrained("tinytown")
    told = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(stories)]
    asked = [encode_questions(tokenizer, draw_questions(name, number)) for name in QUESTIONS]

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
            with without_heads(model, [(layer, head)]):
                costs[layer, head] = losses() - whole
    weights = []
    for ids, answers in asked:
        from_last = torch.stack(model.attention_weights(ids))[..., -1, :]  # (layers, N, H, T)
        on_answer = from_last * (ids == answers[:, None])[:, None]  # (layers, N, H, T)
        weights.append(on_answer.sum(-1).mean(1))  # (layers, H)
    return costs, torch.stack(weights, dim=-1)


# More than this is harm, in nats: a tenth of the model's loss, or an answer made a seventh less likely.
STORY_HARM, ANSWER_HARM = 0.065, 0.15


@experiment("heads.removal", claim="Most heads of a trained model can be removed, one at a time, unharmed.")
def removal() -> Finding:
    costs, _ = removal_costs()
    stories_unharmed = costs[..., 0] < STORY_HARM  # (layers, H)
    answers_unharmed = (costs[..., 1:] < ANSWER_HARM).all(-1)
    heads = stories_unharmed.numel()
    by_loss, by_both = stories_unharmed.sum().item(), (stories_unharmed & answers_unharmed).sum().item()
    most = heads / 2
    return Finding(
        measured=f"{by_loss} of {heads} heads by the loss over whole stories; {by_both} if every kind of question must "
        "stand as well",
        values=(by_loss / heads,),
        verdict="confirmed" if by_both > most else "depends" if by_loss > most else "refuted",
        because="Averages hide what a head is for: some cost the average next to nothing and one ability everything.",
    )


@experiment("heads.looking", claim="If a head looks at the answer, the answer needs that head.")
def looking() -> Finding:
    costs, weights = removal_costs()
    looks = weights > 0.5  # (layers, H, questions): most of the weight is on the answer
    needed = costs[..., 1:] > ANSWER_HARM
    share = needed[looks].float().mean().item()
    return Finding(
        measured=f"{int(looks.sum())} times a head has more than half its weight on the answer; "
        f"{int((looks & needed).sum())} times its removal harms that answer",
        values=(share,),
        verdict="confirmed" if share > 0.95 else "refuted" if share < 0.5 else "depends",
        because="Another head may bring the same word: weights show where a head reads, not whether it is needed.",
    )


def head_difference(model: DecoderOnly, stories: Sequence[Sequence[int]]) -> Tensor:
    """How differently the heads of each layer look, (layers,): Jensen–Shannon divergence in bits, mean over queries.

    JS = entropy(mean of the heads' weights) − mean of the heads' entropies: 0 if all look alike, at most log2 H.
    """

    def entropy(p: Tensor) -> Tensor:
        return -torch.xlogy(p, p).sum(-1) / torch.log(torch.tensor(2.0))

    per_story = []
    for ids in stories:
        weights = torch.cat(model.attention_weights(torch.tensor([ids])))[:, :, 1:]  # (layers, H, T − 1, T)
        per_story.append((entropy(weights.mean(1)) - entropy(weights).mean(1)).mean(-1))
    return torch.stack(per_story).mean(0)


@experiment("heads.specialise", claim="Training makes the heads of a layer look at different things.")
def specialise() -> Finding:
    model, tokenizer = load_pretrained("tinytown")
    stories = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(20)]
    trained = head_difference(model, stories).mean().item()
    untrained = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        untrained.append(head_difference(DecoderOnly(model.config), stories).mean().item())
    return Finding(
        measured=f"difference between the heads of a layer: {trained:.1f} bits trained, "
        f"{'under 0.01' if max(untrained) < 0.01 else f'{max(untrained):.2f}'} before",
        values=tuple(trained - each for each in untrained),
        verdict="confirmed" if trained > 10 * max(untrained) else "depends" if trained > max(untrained) else "refuted",
        because="At the start all heads look nearly evenly; the gradient pushes them to different words.",
    )


@cache
def _stories() -> tuple[WordTokenizer, Tensor, list[list[int]]]:
    """A tokenizer, stories to train on as one row of ids, and others to measure on."""
    tokenizer = WordTokenizer()
    held_out = [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(100)]
    return tokenizer, encode_stories(Tinytown(0).sample(4000), tokenizer), held_out


def loss_with_heads(n_heads: int, seed: int, steps: int = 300) -> float:
    """Loss on held-out stories, in nats per token, of a small model with that many heads after so many steps."""
    tokenizer, ids, held_out = _stories()
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(
            vocab_size=len(tokenizer), d_model=32, n_heads=n_heads, n_layers=2, d_ff=64, max_seq_len=96,
            positions="rope",
        )
    )  # fmt: skip
    batches = Batches(ids, 8, 48, torch.Generator().manual_seed(seed), start_id=tokenizer.bos_id)
    train(model, batches, steps, peak=5e-3, warmup=steps // 10, progress=False)
    nats, tokens = story_losses(model, held_out)
    return (nats.sum() / tokens.sum()).item()


@experiment("heads.how_many", claim="At the same width, more heads are always better.")
def how_many() -> Finding:
    """d_model = 32 throughout: 4 heads of 8 features against 16 heads of 2, same steps, same batches."""
    losses = {n_heads: [loss_with_heads(n_heads, seed) for seed in SEEDS] for n_heads in (1, 4, 16)}
    harm = tuple(many - few for many, few in zip(losses[16], losses[4]))
    mean, alone = sum(harm) / len(harm), sum(losses[1]) / len(SEEDS)
    return Finding(
        measured=f"d_model = 32: 16 heads end {mean:+.2f} nats from 4 (4 heads: {sum(losses[4]) / len(SEEDS):.2f}, "
        f"1 head: {alone:.2f})",
        values=harm,
        verdict="confirmed" if max(harm) < 0 else "refuted" if mean > 0 else "depends",
        because="Each head gets d_model / n_heads features: with two of them it can hardly tell the tokens apart.",
    )
