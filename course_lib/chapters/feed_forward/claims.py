"""Chapter 6: how wide, how bent, how many units fire, and where a fact sits.

The small models here read Tinytown letter by letter: they have to spell, which gives the feed-forward network work to
do within seconds.
"""

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.claims.letters import STEPS, held_out_letters, train_on_letters
from course_lib.claims.registry import Finding, experiment
from course_lib.config import TransformerConfig
from course_lib.feed_forward import FeedForward, swiglu_width
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, WordTokenizer
from course_lib.trace import trace
from course_lib.training import train

SEEDS = (0, 1, 2)


def active_shares(model: nn.Module, ids: Int[Tensor, "B T"]) -> list[float]:
    """Share of hidden units above 0, per layer, over all positions."""
    with evaluating(model), trace(model, "*.hidden") as seen:
        model(ids)
    return [(hidden > 0).float().mean().item() for hidden in seen.values()]


# ---------------------------------------------------------------------------------------------------------- the shape
@experiment("feed_forward.active_units", claim="Typically 30–50 % of the hidden units fire for any given input.")
def active_units() -> Finding:
    """ReLU units above 0, before training and after: two layers, letters."""
    inputs, _ = held_out_letters()
    before, after = [], []
    for seed in SEEDS:
        model, _ = train_on_letters(
            seed,
            activation="relu",
            n_layers=2,
            on_step=lambda step, model: before.append(fmean(active_shares(model, inputs))) if step == 0 else None,
        )
        after.append(fmean(active_shares(model, inputs)))
    inside = [0.3 <= share <= 0.5 for share in (*before, *after)]
    return Finding(
        measured=f"{round(10 * fmean(before))} of 10 before training, {round(10 * fmean(after))} of 10 after "
        f"{STEPS} steps",
        values=tuple(after),
        verdict="confirmed" if all(inside) else "depends" if min(after) < min(before) else "refuted",
        because="An untrained unit is as often above 0 as below. Training silences units, and goes on doing so: the "
        "share depends on the model, the layer and how long it was trained.",
    )


@experiment("feed_forward.width", claim="Four times d_model is the right width: beyond it little is gained.")
def width() -> Finding:
    """Held-out loss with d_ff = 1, 4 and 16 times d_model."""
    loss = {times: [train_on_letters(seed, d_ff=32 * times)[1] for seed in SEEDS] for times in (1, 4, 16)}
    mean = {times: fmean(losses) for times, losses in loss.items()}
    before, beyond = mean[1] - mean[4], mean[4] - mean[16]  # what fourfold width gains, up to 4 and beyond
    return Finding(
        measured=f"{mean[1]:.1f} nats per letter at 1×, {mean[16]:.1f} at 16×; from 4× to 16× "
        + ("it still falls" if beyond > 0 else "it no longer falls"),
        values=tuple(loss[16]),
        verdict="confirmed" if beyond < 0.2 * before else "depends" if beyond < 1.5 * before else "refuted",
        because="Wider keeps helping, and nothing special happens at 4. Parameters and time grow with the width, so 4 "
        "is a habit that has paid, not a law.",
    )


@experiment("feed_forward.bend", claim="Without its activation function the feed-forward network is useless.")
def bend() -> Finding:
    """Held-out loss with GELU and without any activation."""
    bent = [train_on_letters(seed)[1] for seed in SEEDS]
    straight = [train_on_letters(seed, bend=False)[1] for seed in SEEDS]
    lost = [flat - curved for curved, flat in zip(bent, straight)]
    return Finding(
        measured=f"{fmean(bent):.1f} nats per letter with GELU, {fmean(straight):.1f} without",
        values=tuple(lost),
        verdict="depends" if min(lost) > 0 else "refuted",
        because="Without the bend the two matrices are one, and the loss is clearly higher. But the model still "
        "learns: attention's softmax and the norms bend, too.",
    )


@experiment("feed_forward.swiglu_size", claim="A SwiGLU has about 1.5 times the parameters of a standard FFN.")
def swiglu_size() -> Finding:
    """Counted, by the rule of LLaMA and at equal width."""
    d_model = 4096
    by_rule, equal = (3 * d_model * d_ff / _parameters_of_two(d_model) for d_ff in (swiglu_width(d_model), 4 * d_model))
    return Finding(
        measured=f"{by_rule:.2f} times at LLaMA's width ({swiglu_width(d_model):,}), {equal:.2f} times at equal width",
        values=(by_rule,),
        verdict="confirmed" if by_rule > 1.45 else "depends" if equal > 1.45 else "refuted",
        because="Three matrices instead of two make 1.5 times, if the width stays. The usual width is cut to two "
        "thirds so that the parameters stay about equal.",
    )


def _parameters_of_two(d_model: int) -> int:
    """Parameters of a FeedForward of the usual width, counted on the module itself; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in FeedForward(d_model).parameters())


@experiment("feed_forward.swiglu_quality", claim="SwiGLU is better than ReLU or GELU at equal parameters.")
def swiglu_quality() -> Finding:
    """Held-out loss of three feed-forward networks with as many weights each: 2 · 128 = 3 · 85."""
    loss = {
        activation: [train_on_letters(seed, activation=activation, d_ff=d_ff)[1] for seed in SEEDS]
        for activation, d_ff in (("relu", 128), ("gelu", 128), ("swiglu", 85))
    }
    mean = {activation: fmean(losses) for activation, losses in loss.items()}
    lead = min(mean["relu"], mean["gelu"]) - mean["swiglu"]
    place = "the lowest" if lead > 0 else "not the lowest"
    return Finding(
        measured=f"{place} loss of the three, which lie within {max(mean.values()) - min(mean.values()):.1f} nats per "
        "letter",
        values=tuple(loss["swiglu"]),
        verdict="confirmed" if lead > 0.05 else "depends",
        because="In a small model after a few hundred steps SwiGLU does not lead. Larger models trained longer report "
        "a lead: the order of activations is empirical, and the differences are small.",
    )


# ------------------------------------------------------------------------------------------------- where a fact sits
ASKED = "what is the capital of {country} ? it is"
TOLD = "tom went to {country} . the capital of {country} is"
UNITS_REMOVED = 96


def capital_questions(tokenizer: WordTokenizer, wording: str = ASKED) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N"]]:
    """One beginning of a story per country, whose next word is the capital: (ids, the capitals' ids)."""
    stories = [f"once there was a king called tom . {wording.format(country=country)}" for country in CAPITALS]
    ids = torch.tensor([tokenizer.encode(story, end=False) for story in stories])
    return ids, torch.tensor([tokenizer.id(capital) for capital in CAPITALS.values()])


def contributions(
    model: DecoderOnly, ids: Int[Tensor, "N T"], answers: Int[Tensor, "N"]
) -> Float[Tensor, "N layers d_ff"]:
    """How far each hidden unit raises the logit of a story's answer above the mean of all the answers.

    activation × gradient, summed over positions: to first order, what the lead would lose if the unit fell silent.
    """
    hidden: list[Tensor] = []
    handles = [
        block.feed_forward.down_proj.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
        for block in model.blocks
    ]
    logits = model(ids)[:, -1]  # (N, V)
    for handle in handles:
        handle.remove()
    lead = logits.gather(1, answers[:, None])[:, 0] - logits[:, answers].mean(dim=1)
    gradients = torch.autograd.grad(lead.sum(), hidden)
    return torch.stack([(h * g).sum(dim=1).detach() for h, g in zip(hidden, gradients)], dim=1)


def strongest(contribution: Float[Tensor, "layers d_ff"], n_units: int) -> Bool[Tensor, "layers d_ff"]:
    """True at the n_units units that contribute most, over all layers."""
    chosen = torch.zeros(contribution.numel(), dtype=torch.bool)
    chosen[contribution.flatten().topk(n_units).indices] = True
    return chosen.view_as(contribution)


def next_words(
    model: DecoderOnly, ids: Int[Tensor, "N T"], removed: Bool[Tensor, "layers d_ff"] | None = None
) -> Float[Tensor, "N V"]:
    """The probability of every next word of each story while the removed hidden units are held at 0."""
    handles = []
    if removed is not None:
        for block, out in zip(model.blocks, removed):
            handles.append(
                block.feed_forward.down_proj.register_forward_pre_hook(
                    lambda _, inputs, out=out: (inputs[0].masked_fill(out, 0.0),)
                )
            )
    with evaluating(model):
        probabilities = model(ids)[:, -1].softmax(dim=-1)
    for handle in handles:
        handle.remove()
    return probabilities


def answer_chances(
    model: DecoderOnly,
    ids: Int[Tensor, "N T"],
    answers: Int[Tensor, "N"],
    removed: Bool[Tensor, "layers d_ff"] | None = None,
) -> Float[Tensor, "N"]:
    """The probability of each story's answer while the removed hidden units are held at 0."""
    return next_words(model, ids, removed).gather(1, answers[:, None])[:, 0]


LOST_BELOW = 0.5  # a capital counts as lost when its probability falls below this


@experiment("feed_forward.capitals", claim="Delete the hidden units of one fact, and only that fact is gone.")
def capitals() -> Finding:
    """Trained Tinytown model: for each country the 96 units of 2,048 that contribute most are held at 0; the capital is
    then asked for in another wording than the one in which the units were found.

    Two criteria, for they can differ: is the capital's probability below LOST_BELOW, and is another word more probable?
    """
    model, tokenizer = load_pretrained("tinytown")
    found, told = capital_questions(tokenizer, ASKED), capital_questions(tokenizer, TOLD)
    contribution = contributions(model, *found)  # (16, layers, d_ff)
    ids, answers = told
    generator = torch.Generator().manual_seed(0)
    likely, first, others, random = [], [], [], []  # has it kept its probability, its place; the others; the control
    for i in range(len(CAPITALS)):
        p = next_words(model, ids, strongest(contribution[i], UNITS_REMOVED))  # (16, V)
        left = (p.gather(1, answers[:, None])[:, 0] > LOST_BELOW).float()  # (16,)
        likely.append(left[i].item())
        first.append(float(p[i].argmax() == answers[i]))
        others.append(((left.sum() - left[i]) / (len(CAPITALS) - 1)).item())
        drawn = strongest(torch.rand(contribution[i].shape, generator=generator), UNITS_REMOVED)
        random.append((answer_chances(model, ids, answers, drawn) > LOST_BELOW).float().mean().item())
    kept, still_first, rest, control = map(fmean, (likely, first, others, random))
    gone, passed = (len(CAPITALS) - round(sum(each)) for each in (likely, first))
    spared = rest > 0.9 < control
    return Finding(
        measured=f"{UNITS_REMOVED} of {contribution[0].numel():,} units removed: {gone} of {len(CAPITALS)} capitals "
        f"fall below p = {LOST_BELOW}, {passed} are no longer the most probable word; of the others {100 * rest:.0f} % "
        f"keep p > {LOST_BELOW} (random units: {100 * control:.0f} %)",
        values=(kept, still_first),
        verdict="confirmed"
        if max(kept, still_first) < 0.1 and spared
        else "refuted"
        if min(kept, still_first) > 0.9
        else "depends",
        because="A few units carry the answer from a country to its capital, whatever the wording. That shows that "
        "this model uses them, not that a fact can only be kept there.",
    )


@experiment("feed_forward.facts_elsewhere", claim="Without its feed-forward networks a model could not store facts.")
def facts_elsewhere() -> Finding:
    """300 random facts, (subject, relation) → object, learnt by a model whose feed-forward networks give 0."""
    recalled = [learn_facts(seed, feed_forward=False) for seed in SEEDS]
    return Finding(
        measured=f"without them it recalls {100 * fmean(recalled):.0f} % of 300 random facts (guessing: 2 %)",
        values=tuple(recalled),
        verdict="refuted" if min(recalled) > 0.95 else "confirmed" if max(recalled) < 0.5 else "depends",
        because="The embeddings and the attention matrices can hold facts as well. What a trained model uses is one "
        "question, what it could use is another.",
    )


def learn_facts(seed: int, feed_forward: bool = True, elsewhere: bool = True, steps: int = 150) -> float:
    """Share of 300 random facts that a model of two blocks recalls after training on exactly them.

    Args:
        feed_forward: False: the feed-forward networks give 0. elsewhere: False: only they are trained.
    """
    n_subjects, n_relations, n_objects = 100, 3, 60
    torch.manual_seed(seed)
    subjects = torch.arange(n_subjects).repeat_interleave(n_relations)
    relations = torch.arange(n_relations).repeat(n_subjects)
    objects = torch.randint(n_objects, (len(subjects),))
    ids = torch.stack([subjects, n_subjects + relations], dim=1)  # (300, 2)
    answers = n_subjects + n_relations + objects
    targets = torch.stack([torch.full_like(answers, -100), answers], dim=1)  # the first token predicts nothing
    sizes: dict[str, Any] = {
        "vocab_size": n_subjects + n_relations + n_objects,
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
    }
    model = DecoderOnly(TransformerConfig(**sizes, max_seq_len=2, activation="relu", tie_weights=False))
    model.requires_grad_(elsewhere)
    for block in model.blocks:
        block.feed_forward.requires_grad_(feed_forward)
        if not feed_forward:
            nn.init.zeros_(block.feed_forward.down_proj.weight)
            nn.init.zeros_(block.feed_forward.down_proj.bias)

    def always() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield ids, targets

    train(model, always(), steps, peak=1e-2, warmup=20, progress=False)
    with evaluating(model):
        return (model(ids)[:, -1].argmax(dim=-1) == answers).float().mean().item()
