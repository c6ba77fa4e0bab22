"""Five demonstrations; the false one could not have come out otherwise."""

import random
from functools import cache

import torch
import torch.nn.functional as F

from course_lib.attention import scaled_dot_product_attention
from course_lib.chapters.claims import audits
from course_lib.chapters.claims.audits import Finding
from course_lib.grading.exercise import Option, generator
from course_lib.masks import causal_mask
from course_lib.pretrained import load_pretrained

KINDS = {
    "animals": ("cat", "dog", "bird", "cow", "pig", "horse", "mouse"),
    "cities": ("athens", "berlin", "cairo", "london", "madrid", "paris", "rome", "vienna"),
    "first names": ("adam", "alice", "anna", "ben", "clara", "emma", "leo", "tom"),
}


@cache
def words_of_tinytown() -> tuple[torch.Tensor, dict[str, int]]:
    """Return the trained table of vectors, and the row of each word."""
    model, tokenizer = load_pretrained("tinytown")
    return model.token_embedding.weight.detach(), {word: tokenizer.id(word) for word in tokenizer.tokens}


def source(rng: random.Random) -> torch.Generator:
    """Return a torch generator seeded from a source of random numbers."""
    return generator(rng.randrange(10**6))


def scaling(rng: random.Random, false: bool) -> Finding:
    """The spread of scaled scores; the false form samples scores for one d_k only."""
    random_source, sizes = source(rng), rng.choice([(16, 64, 256), (32, 128, 512), (64, 256, 1024)])
    scores = []
    for d_k in sizes:
        q, k = torch.randn(2, 2000, d_k, generator=random_source)
        scores.append((q * k).sum(1))
    sampled = "For each d_k, we sampled 2,000 new queries and keys from N(0, 1) and computed their scores."
    if false:
        scores = [scores[0] * (d_k / sizes[0]) ** 0.5 for d_k in sizes]
        sampled = (
            f"For d_k = {sizes[0]}, we sampled 2,000 queries and keys from N(0, 1) and computed their scores. The "
            "scores "
            f"for a larger d_k are √(d_k / {sizes[0]}) times as large."
        )
    shown = (
        "The scores for larger d_k were multiplied by the factor by which the scaling then divides them. So the rows "
    )
    shown += "had to be equal."
    return Finding(
        "the scaled scores",
        f"{sampled} The control is the same without the division. So the division by √d_k makes the standard "
        "deviation of "
        "the scores independent of d_k.",
        [(f"d_k = {d_k}", made.std(), (made / d_k**0.5).std()) for d_k, made in zip(sizes, scores)],
        ("standard deviation of the scores", "not divided", "divided by √d_k"),
        {f"scores for d_k = {d_k}": made for d_k, made in zip(sizes, scores)},
        shown
        if false
        else "This could have failed: for each d_k the queries and keys are new, and the division may be "
        "too strong or too weak.",
        "construction" if false else "",
    )


def mask(rng: random.Random, false: bool) -> Finding:
    """Outputs before a changed token; the false form computes them from a text that ends before it."""
    tokens, features = rng.choice([6, 8, 10]), rng.choice([8, 16])
    x = torch.randn(tokens, features, generator=source(rng))
    changed = x.clone()
    changed[-1] = torch.randn(features, generator=source(rng))
    hidden = causal_mask(tokens)
    before, after = (scaled_dot_product_attention(each, each, each, mask=hidden)[0][:-1] for each in (x, changed))
    open_before, open_after = (scaled_dot_product_attention(each, each, each)[0][:-1] for each in (x, changed))
    measured = f"We computed the outputs of the first {tokens - 1} tokens before and after we changed token {tokens}. "
    if false:
        measured += (
            f"With the mask, we passed only the first {tokens - 1} tokens to the layer, because the mask hides the "
        )
        measured += "last one anyway. "
    else:
        measured += f"All {tokens} tokens were passed to the layer. "
    shown = (
        "With the mask, the changed token was never passed to the layer. So the outputs had to stay the same, even if "
    )
    shown += "the mask did nothing."
    moved, free = (after - before).abs().max().item(), (open_after - open_before).abs().max().item()
    return Finding(
        "the causal mask",
        measured + "The control is the layer without a mask, with all tokens. So the causal mask hides later tokens.",
        [("with the causal mask", moved), ("without a mask, the control", free)],
        ("largest change of an earlier output", "changes by"),
        {"tokens": x, "tokens with the last one changed": changed},
        shown
        if false
        else "This could have failed: the changed token was passed to the layer, and the outputs of a wrong "
        "mask would have moved.",
        "construction" if false else "",
        digits=4,
    )


def order(rng: random.Random, false: bool) -> Finding:
    """Attention of shuffled tokens; the false form restores the order before the layer."""
    tokens, features = rng.choice([6, 8, 12]), rng.choice([8, 16, 32])
    x = torch.randn(tokens, features, generator=source(rng))
    positions = 0.5 * torch.randn(tokens, features, generator=source(rng))
    mixed = torch.randperm(tokens, generator=source(rng))
    rows = []
    for name, added in (("without positions", torch.zeros(())), ("with positions, the control", positions)):
        plain = scaled_dot_product_attention(*3 * [x + added])[0]
        if false and name == "without positions":
            moved = scaled_dot_product_attention(*3 * [x[mixed][mixed.argsort()]])[0]
        else:
            moved = scaled_dot_product_attention(*3 * [x[mixed] + added])[0][mixed.argsort()]
        rows.append((name, (moved - plain).abs().max().item()))
    steps = "passed them to the layer, and put its outputs back into the old order. "
    if false:
        steps = (
            "put them back into the old order, and passed them to the layer. (With positions, we put only the "
            "outputs back.) "
        )
    shown = (
        "Without positions, the layer got the tokens in their old order. So its outputs had to be the same, whatever "
    )
    shown += "the layer does with the order."
    return Finding(
        "the order of the tokens",
        f"We shuffled {tokens} tokens, {steps}Then we compared each token's output with the one before. The "
        "control has "
        "vectors of positions added to the tokens in the order in which they enter the layer. So attention without "
        "positions does not know the order of its tokens.",
        rows,
        ("each token's output", "changes by"),
        {"tokens": x, "positions": positions, "order": mixed},
        shown
        if false
        else "This could have failed: the layer got the tokens in another order, and the control, which "
        "knows positions, did change.",
        "construction" if false else "",
        digits=4,
    )


def groups(rng: random.Random, false: bool) -> Finding:
    """Cosines within groups of words; the false form makes the groups from the same cosines."""
    table, ids = words_of_tinytown()
    words = [word for kind in KINDS.values() for word in rng.sample(kind, 5)]
    made = "We put 15 words into three groups by their meaning: animals, cities and first names. "
    if false:
        words = rng.sample([word for word in ids if len(word) > 2], 15)
        made = (
            "We put 15 words into three groups. Each of the first three words began a group. Each other word "
            "joined the "
        )
        made += "one with which its vector has the largest cosine. "
    vectors = F.normalize(table[[ids[word] for word in words]], dim=1)
    cosines = vectors @ vectors.T
    labels = cosines[:, :3].argmax(1) if false else torch.arange(15) // 5
    mixed = labels[torch.randperm(15, generator=source(rng))]
    shown = (
        "The groups were made from the cosines that are then compared. So cosines within groups had to be larger, as "
    )
    shown += "they are for random vectors."
    return Finding(
        "the groups of words",
        f"{made}Then we compared the mean cosine of two words of one group with that of two words of different "
        "groups. The "
        "control has the same words in random groups. So words that belong together have similar vectors.",
        [("our groups", *inside(cosines, labels)), ("random groups, the control", *inside(cosines, mixed))],
        ("mean cosine of two words", "of one group", "of different groups"),
        {"words": words, "vectors": vectors, "groups": labels},
        shown if false else "This could have failed: the groups were made by meaning, without the vectors.",
        "construction" if false else "",
    )


def inside(cosines: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Return the mean cosine of two members of one group, and of two members of different groups."""
    same = labels[:, None] == labels[None, :]
    others = ~torch.eye(len(labels), dtype=torch.bool)
    return cosines[same & others].mean().item(), cosines[~same].mean().item()


def first_loss(rng: random.Random, false: bool) -> Finding:
    """The first loss of a model; the false form measures it for equal logits."""
    tokens, small = rng.choice([100, 500, 1000, 5000]), rng.choice([0.05, 0.1, 0.2])
    targets = torch.randint(tokens, (200,), generator=source(rng))
    limit = torch.tensor(float(tokens)).log().item()
    rows, logits = [], {}
    for seed in (0, 1, 2):
        made = small * torch.randn(200, tokens, generator=source(rng))
        logits[f"logits of seed {seed}"] = made = made.mean(1, keepdim=True).expand_as(made) if false else made
        rows.append((f"small logits, seed {seed}", F.cross_entropy(made, targets).item()))
    large = 3 * torch.randn(200, tokens, generator=source(rng))
    rows.append(("large logits, the control", F.cross_entropy(large, targets).item()))
    measured = f"For three seeds, we sampled small logits over {tokens:,} tokens, and computed the loss. "
    if false:
        measured += "Because the logits are small, we replaced each by the mean of all logits of its position. "
    shown = "If all logits of a position are equal, every token has probability 1 / V. So the loss had to be "
    shown += "ln V."
    return Finding(
        "the first loss",
        f"{measured}The control has large random logits. So the first loss of a model whose logits are small is "
        "close to "
        f"ln V, here {limit:.3f}.",
        rows,
        ("loss of 200 random targets", "nats"),
        {**logits, "targets": targets},
        shown
        if false
        else "This could have failed: the logits are random, and the loss of the control is not close to ln V.",
        "construction" if false else "",
        digits=3,
    )


MAKERS = (scaling, mask, order, groups, first_loss)


def numbered(number: int, written: tuple[Option, ...]) -> list[Option]:
    """Return the options of a number."""
    return audits.options(audits.chosen(MAKERS, "claims.audit_2", number), number, written)
