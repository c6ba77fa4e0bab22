"""Chapter 6: how wide, what the nonlinearity gives, how many units fire, and where a fact sits.

The small models here read Tinytown letter by letter: they have to spell, which gives the feed-forward network work to
do within seconds.
"""

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.claims.interventions import patch
from course_lib.claims.letters import STEPS, held_out_letters, train_on_letters
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.config import TransformerConfig
from course_lib.feed_forward import FeedForward, swiglu_width
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, WordTokenizer
from course_lib.trace import trace
from course_lib.training import train

SEEDS = (0, 1, 2)
SHAZEER = partial(Source, "Shazeer 2020", link="https://arxiv.org/abs/2002.05202")


def active_shares(model: nn.Module, ids: Int[Tensor, "B T"]) -> list[float]:
    """Share of hidden units above 0, per layer, over all positions."""
    with evaluating(model), trace(model, "*.hidden") as seen:
        model(ids)
    return [(hidden > 0).float().mean().item() for hidden in seen.values()]


# ---------------------------------------------------------------------------------------------------------- the shape
@experiment(
    "feed_forward.active_units",
    claim="In a trained Transformer very few hidden units fire for any given token.",
    source=Source(
        "Li et al. 2022",
        "The Lazy Neuron Phenomenon: On Emergence of Activation Sparsity in Transformers, abstract",
        "https://arxiv.org/abs/2210.06313",
    ),
    control="the same units on the same held-out letters before training; ReLU, whose zeros are exact",
    threshold="confirmed if less than a tenth fire after training in every seed, depends if more than that but fewer "
    "than before, else refuted",
    seeds=SEEDS,
)
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
    fewer = all(trained < fresh for fresh, trained in zip(before, after))
    return Finding(
        measured=f"{round(10 * fmean(before))} of 10 before training, {round(10 * fmean(after))} of 10 after "
        f"{STEPS} steps",
        values=tuple(after),
        verdict="confirmed" if max(after) < 0.1 else "depends" if fewer else "refuted",
        because="An untrained unit is as often above 0 as below. Training silences units; how many depends on the "
        "model, the layer and how long it is trained. The paper's are large and trained for long.",
    )


# Ratio of d_ff to d_model -> d_model: 2 heads and 11,600 to 14,400 weights in the block, whatever the ratio.
EQUAL_PARAMETERS = {1: 44, 4: 32, 16: 20}


@experiment(
    "feed_forward.width",
    claim="At a fixed number of parameters the loss depends very weakly on the ratio of d_ff to d_model.",
    source=Source(
        "Kaplan et al. 2020", "Scaling Laws for Neural Language Models, § 3.1", "https://arxiv.org/abs/2001.08361"
    ),
    control="d_model falls as the ratio rises, so that the block keeps about 12,000 weights; heads, steps, batches "
    "equal",
    threshold="confirmed if the mean losses at 1, 4 and 16 lie within 5 % of each other, depends if within 25 %, else "
    "refuted",
    seeds=SEEDS,
)
def width() -> Finding:
    """Held-out loss with d_ff = 1, 4 and 16 times d_model at equal parameters."""
    loss = {
        times: [train_on_letters(seed, d_model=d_model, d_ff=d_model * times, n_heads=2)[1] for seed in SEEDS]
        for times, d_model in EQUAL_PARAMETERS.items()
    }
    mean = {times: fmean(losses) for times, losses in loss.items()}
    apart = max(mean.values()) / min(mean.values()) - 1
    return Finding(
        measured=f"about 12,000 weights: {mean[1]:.1f} nats per letter at 1×, {mean[4]:.1f} at 4×, {mean[16]:.1f} at "
        "16×",
        values=tuple(loss[16]),
        verdict="confirmed" if apart < 0.05 else "depends" if apart < 0.25 else "refuted",
        because="In so small a model the ratio matters: 16 times the width leaves too few features, 1 time too few "
        "units. The paper measured models of tens of millions of parameters and more.",
    )


def leave_feed_forward_out(model: DecoderOnly) -> None:
    """Hold the feed-forward networks of a decoder at 0."""
    for block in model.blocks:
        block.feed_forward.requires_grad_(False)
        nn.init.zeros_(block.feed_forward.down_proj.weight)
        nn.init.zeros_(block.feed_forward.down_proj.bias)


@experiment(
    "feed_forward.nonlinearity",
    claim="The feed-forward network is there for its nonlinearity: without one, attention only re-averages vectors.",
    source=Source(
        "Hewitt 2023",
        "CS 224N, Note 10: Self-Attention & Transformers",
        "https://web.stanford.edu/class/cs224n/readings/cs224n-self-attention-transformers-2023_draft.pdf",
    ),
    control="the same network without its GELU (as many weights), and none at all: what of its gain needs the GELU?",
    threshold="confirmed if more than 90 % of the gain needs the nonlinearity in every seed, refuted if less than 10 "
    "%, else depends",
    seeds=SEEDS,
)
def nonlinearity() -> Finding:
    """Held-out loss with GELU, with the two matrices alone, and without a feed-forward network."""
    curved = [train_on_letters(seed)[1] for seed in SEEDS]
    straight = [train_on_letters(seed, nonlinearity=False)[1] for seed in SEEDS]
    none = [train_on_letters(seed, prepare=leave_feed_forward_out)[1] for seed in SEEDS]
    needs = [(flat - full) / (without - full) for full, flat, without in zip(curved, straight, none)]
    return Finding(
        measured=f"{fmean(curved):.1f} nats per letter with GELU, {fmean(straight):.1f} with the two matrices alone, "
        f"{fmean(none):.1f} without the network",
        values=tuple(needs),
        verdict="confirmed" if min(needs) > 0.9 else "refuted" if max(needs) < 0.1 else "depends",
        because="About half of what the network gains needs its nonlinearity; the rest comes from the matrices alone. "
        "Attention's softmax and the norms are nonlinear, too.",
    )


@experiment(
    "feed_forward.swiglu_size",
    claim="SwiGLU's three matrices need two thirds of the hidden units to keep the number of parameters.",
    source=SHAZEER("GLU Variants Improve Transformer, § 2"),
    control="a standard network of width 4 · d_model, with its biases; SwiGLU at its usual width and at that width",
    threshold="confirmed if the usual width gives within 2 % of the parameters and the equal width more than 1.45 "
    "times, refuted if the equal width gives no more than 1.02 times, else depends",
)
def swiglu_size() -> Finding:
    """Counted, by the rule of LLaMA and at equal width."""
    d_model = 4096
    by_rule, equal = (3 * d_model * d_ff / _parameters_of_two(d_model) for d_ff in (swiglu_width(d_model), 4 * d_model))
    return Finding(
        measured=f"{by_rule:.2f} times at LLaMA's width ({swiglu_width(d_model):,}), {equal:.2f} times at equal width",
        values=(by_rule, equal),
        verdict="confirmed" if abs(by_rule - 1) < 0.02 and equal > 1.45 else "refuted" if equal <= 1.02 else "depends",
        because="Three matrices instead of two make 1.5 times, if the width stays; at two thirds of it they weigh as "
        "much. It is a rule, not a law: Llama 3 8B takes 14,336 units.",
    )


def _parameters_of_two(d_model: int) -> int:
    """Parameters of a FeedForward of the usual width, counted on the module itself; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in FeedForward(d_model).parameters())


@experiment(
    "feed_forward.swiglu_quality",
    claim="SwiGLU yields quality improvements over ReLU and GELU.",
    source=SHAZEER("GLU Variants Improve Transformer, abstract"),
    control="equal weights (2 · 128 = about 3 · 85 columns), steps, batches and schedule; the rate is not tuned for "
    "each",
    threshold="confirmed if SwiGLU's mean loss is the lowest by more than 0.05 nats, refuted if it is the highest by "
    "more than 0.05, else depends",
    seeds=SEEDS,
)
def swiglu_quality() -> Finding:
    """Held-out loss of three feed-forward networks with as many weights each: 2 · 128 = 3 · 85."""
    loss = {
        activation: [train_on_letters(seed, activation=activation, d_ff=d_ff)[1] for seed in SEEDS]
        for activation, d_ff in (("relu", 128), ("gelu", 128), ("swiglu", 85))
    }
    mean = {activation: fmean(losses) for activation, losses in loss.items()}
    lead, lag = min(mean["relu"], mean["gelu"]) - mean["swiglu"], mean["swiglu"] - max(mean["relu"], mean["gelu"])
    place = "the lowest" if lead > 0 else "not the lowest"
    return Finding(
        measured=f"{place} loss of the three, which lie within {max(mean.values()) - min(mean.values()):.1f} nats per "
        "letter",
        values=tuple(loss["swiglu"]),
        verdict="confirmed" if lead > 0.05 else "refuted" if lag > 0.05 else "depends",
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


@experiment(
    "feed_forward.capitals",
    claim="A fact can be erased by setting the hidden units that express it to zero.",
    source=Source(
        "Dai et al. 2022", "Knowledge Neurons in Pretrained Transformers, abstract", "https://arxiv.org/abs/2104.08696"
    ),
    control=f"the other 15 capitals without the same {UNITS_REMOVED} units; and every capital without as many units "
    "drawn at random, three times",
    threshold=f"two criteria: a capital is lost if its p falls below {LOST_BELOW}; and if it is no longer the most "
    "probable word; confirmed if nine of ten are lost by both, and nine of ten others and nine of ten without random "
    "units keep their p; refuted if fewer than one of ten is lost by either; else depends",
    seeds=SEEDS,
)
def capitals() -> Finding:
    """Trained Tinytown model: for each country the 96 units of 2,048 that contribute most are held at 0; the capital is
    then asked for in another wording than the one in which the units were found.
    """
    model, tokenizer = load_pretrained("tinytown")
    found, told = capital_questions(tokenizer, ASKED), capital_questions(tokenizer, TOLD)
    contribution = contributions(model, *found)  # (16, layers, d_ff)
    ids, answers = told
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    likely, first, others, random = [], [], [], []  # has it kept its probability, its place; the others; the control
    for i in range(len(CAPITALS)):
        p = next_words(model, ids, strongest(contribution[i], UNITS_REMOVED))  # (16, V)
        left = (p.gather(1, answers[:, None])[:, 0] > LOST_BELOW).float()  # (16,)
        likely.append(left[i].item())
        first.append(float(p[i].argmax() == answers[i]))
        others.append(((left.sum() - left[i]) / (len(CAPITALS) - 1)).item())
        for generator in generators:
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


def carried(
    model: DecoderOnly, tokenizer: WordTokenizer, at: str, apart: int, positions: list[int] | None = None
) -> float:
    """What one part carries of the change from one country to another: 1 if with the part the answer goes, 0 if not.

    In the run on each country the part's output is taken from the run on the country `apart` further in the list. The
    change is that of the lead of the other country's capital over the own one.
    """
    ids, answers = capital_questions(tokenizer, TOLD)
    source, others = ids.roll(apart, 0), answers.roll(apart, 0)
    with evaluating(model):
        whole = (model(source) - model(ids))[:, -1]
    part = patch(model, ids, source, at, positions)[:, -1]
    lead, full = (
        each.gather(1, others[:, None]) - each.gather(1, answers[:, None]) for each in (part, whole)
    )  # (16, 1)
    return (lead / full).mean().item()


@experiment(
    "feed_forward.facts_elsewhere",
    claim="Feed-forward modules have an important role in storing factual associations.",
    source=Source(
        "Meng et al. 2022",
        "Locating and Editing Factual Associations in GPT, abstract",
        "https://arxiv.org/abs/2202.05262",
    ),
    control="in the trained model each part's output exchanged for that of a text on another country; beside it, a "
    "model without feed-forward networks learns 300 random facts, as one with them does",
    threshold="confirmed if a feed-forward network carries more than half of the exchange and a model without any "
    "recalls less than half of its facts in every seed, depends if only the first, else refuted",
    seeds=SEEDS,
)
def facts_elsewhere() -> Finding:
    """What the trained model uses for a capital; and whether a model whose feed-forward networks give 0 can recall."""
    model, tokenizer = load_pretrained("tinytown")
    share = max(
        fmean(carried(model, tokenizer, f"blocks.{layer}.feed_forward", apart) for apart in (1, 5, 9))
        for layer in range(model.config.n_layers)
    )
    recalled = [learn_facts(seed, feed_forward=False) for seed in SEEDS]
    ordinary = [learn_facts(seed) for seed in SEEDS]
    return Finding(
        measured=f"one feed-forward network carries {100 * share:.0f} % of a capital; but a model without any recalls "
        f"{100 * fmean(recalled):.0f} % of 300 random facts ({100 * fmean(ordinary):.0f} % with them, 2 % by chance)",
        values=tuple(recalled),
        verdict="confirmed" if share > 0.5 > max(recalled) else "depends" if share > 0.5 else "refuted",
        because="This model does use them for its facts. It need not: embeddings and attention matrices can hold facts "
        "as well. What is used is one question, what could be is another.",
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
        block.feed_forward.requires_grad_(True)
    if not feed_forward:
        leave_feed_forward_out(model)

    def always() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield ids, targets

    train(model, always(), steps, peak=1e-2, warmup=20, progress=False)
    with evaluating(model):
        return (model(ids)[:, -1].argmax(dim=-1) == answers).float().mean().item()
