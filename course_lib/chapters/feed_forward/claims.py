"""Chapter 6: the width of the layer, the effect of the nonlinearity, how many units fire, and which parts carry a fact.

The small models here read Tinytown letter by letter. They have to spell, so the feed-forward network has something to
do within seconds. Each model is trained at its own best learning rate.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.claims.interventions import patch
from course_lib.claims.letters import held_out_letters, train_on_letters
from course_lib.claims.rates import Best, at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.config import TransformerConfig
from course_lib.feed_forward import FeedForward, MixtureOfExperts, load_balance_loss, swiglu_width
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, WordTokenizer
from course_lib.trace import trace
from course_lib.training import train

SEEDS = (0, 1, 2)
RATES = (0.01, 0.03, 0.1)
STEPS, ROWS = 60, 8
FACT_STEPS = 300
SHAZEER = partial(Source, "Shazeer 2020", "GLU Variants Improve Transformer", "https://arxiv.org/abs/2002.05202")


def spell(rate: float, seed: int, **settings: Any) -> float:
    """Return the held-out loss of a small model that spells, in nats per letter; settings as in `train_on_letters`."""
    return train_on_letters(seed, peak=rate, rows=ROWS, **settings)[1]


@cache
def best_speller(**settings: Any) -> Best:
    """Train a small model that spells at its own best learning rate; settings as in `train_on_letters`."""
    return at_best_rate(partial(spell, **settings), RATES, SEEDS)


def active_shares(model: nn.Module, ids: Int[Tensor, "B T"]) -> list[float]:
    """Return the fraction of hidden units above 0, per layer, over all positions."""
    with evaluating(model), trace(model, "*.hidden") as seen:
        model(ids)
    return [(hidden > 0).float().mean().item() for hidden in seen.values()]


# ---------------------------------------------------------------------------------------------------------- the shape
def active_units_verdict(after: Sequence[float]) -> str:
    """Judge by the fraction of ReLU units above 0 after training, one for each seed.

    confirmed: less than a tenth of the units fire after training, for every seed
    not at this size: more of them fire; the paper's models are far larger and were trained for far longer
    """
    return "confirmed" if max(after) < 0.1 else "not at this size"


@experiment(
    "feed_forward.active_units",
    claim="In a trained Transformer very few hidden units fire for any given token.",
    source=Source(
        "Li et al. 2022",
        "The Lazy Neuron Phenomenon: On Emergence of Activation Sparsity in Transformers",
        "https://arxiv.org/abs/2210.06313",
        place="abstract",
        quote="on average very few entries (e.g., 3.0% for T5-Base and 6.3% for ViT-B16) are nonzero for each input "
        "to MLP. Moreover, larger Transformers with more layers and wider MLP hidden dimensions are sparser",
    ),
    control="the same units on the same held-out letters before training; ReLU, whose zeros are exact",
    verdict=active_units_verdict,
    seeds=SEEDS,
)
def active_units(size: Size) -> Measurement:
    """Measure the ReLU units above 0, before training and after: two layers, letters."""
    inputs, _ = held_out_letters()
    before = []

    def keep(step: int, model: nn.Module) -> None:
        if step == 0:
            before.append(fmean(active_shares(model, inputs)))

    def loss_and_share(rate: float, seed: int) -> tuple[float, float]:
        model, loss = train_on_letters(
            seed,
            steps=size.steps(STEPS),
            d_model=size.width(32),
            peak=rate,
            rows=ROWS,
            activation="relu",
            n_layers=2,
            on_step=keep,
        )
        return loss, fmean(active_shares(model, inputs))

    after = [share for _, share in at_best_rate(loss_and_share, RATES, SEEDS).results]
    return Measurement(
        measured=f"about {round(fmean(before), 1):.0%} of the units fire before training and about "
        f"{round(fmean(after), 1):.0%} after {size.steps(STEPS)} steps",
        values=after,
        figures={"after": after},
        because="An untrained unit is above 0 as often as below. Training silences units, and after 60 steps the "
        "fraction still falls (see the variations). The paper’s models trained far longer.",
    )


# Approximate ratio of d_ff to d_model -> (d_model, d_ff): 12,280 to 12,320 weights in the block, with 2 heads.
EQUAL_WEIGHTS = {1: (44, 52), 4: (32, 128), 13: (20, 267)}


def width_verdict(apart: float) -> str:
    """Compare the mean losses of three shapes with the same number of weights.

    confirmed: the largest mean loss is less than 5% above the smallest
    not at this size: they are further apart; the paper's models have up to a hundred thousand times as many weights
    """
    return "confirmed" if apart < 0.05 else "not at this size"


@experiment(
    "feed_forward.width",
    claim="At a fixed number of parameters the loss depends very weakly on the width of the feed-forward network.",
    source=Source(
        "Kaplan et al. 2020",
        "Scaling Laws for Neural Language Models",
        "https://arxiv.org/abs/2001.08361",
        place="§ 3.1",
        quote="Transformer performance depends very weakly on the shape parameters n_layer, n_heads, and d_ff when we "
        "hold the total non-embedding parameter count N fixed.",
    ),
    control="d_model falls as the ratio rises, so that each block has 12,300 weights to within 0.5%; heads, steps and "
    "batches are equal; each shape has its own best learning rate",
    verdict=width_verdict,
    seeds=SEEDS,
)
def width(size: Size) -> Measurement:
    """Measure the held-out loss with d_ff of about 1, 4 and 13 times d_model, for the same number of weights."""
    best = {
        times: best_speller(steps=size.steps(STEPS), d_model=size.width(d_model), d_ff=size.width(d_ff), n_heads=2)
        for times, (d_model, d_ff) in EQUAL_WEIGHTS.items()
    }
    means = [each.mean for each in best.values()]
    apart = max(means) / min(means) - 1
    return Measurement(
        measured=f"with the same number of weights, the worst of three shapes has a loss "
        f"{100 * apart:.0f}% above the lowest",
        rows=(
            ("d_ff over d_model", "nats per letter"),
            *((f"about {times}", f"{each.mean:.2f}") for times, each in best.items()),
        ),
        values=best[13].losses,
        figures={"apart": apart},
        because="Only the narrowest network is clearly worse: between ratios of about 4 and 13 the loss hardly "
        "changes. The paper varied the ratio in models of millions of parameters.",
    )


def leave_feed_forward_out(model: DecoderOnly) -> None:
    """Set the output of a decoder's feed-forward networks to 0."""
    for block in model.blocks:
        block.feed_forward.requires_grad_(False)
        nn.init.zeros_(block.feed_forward.down_proj.weight)
        nn.init.zeros_(block.feed_forward.down_proj.bias)


def nonlinearity_verdict(gain_early: float, gain_late: float) -> str:
    """Compare two attention layers with one, both without any feed-forward network, by how far the mean loss falls.

    confirmed: by less than 0.05 nats per letter, after 240 steps and after 960
    depends: by less than that only after 240 steps; it depends on the length of the training
    refuted: by more than that already after 240 steps
    """
    if gain_early >= 0.05:
        return "refuted"
    return "confirmed" if gain_late < 0.05 else "depends"


@experiment(
    "feed_forward.nonlinearity",
    claim="if we stack two self-attention layers, we get something that looks a lot like a single self-attention layer",
    source=Source(
        "Hewitt 2023",
        "CS 224N, Note 10: Self-Attention & Transformers",
        "https://web.stanford.edu/class/cs224n/readings/cs224n-self-attention-transformers-2023_draft.pdf",
        place="Elementwise nonlinearity",
        quote="In fact, if we stack two self-attention layers, we get something that looks a lot like a single "
        "self-attention layer … So, this is just a linear combination of a linear transformation of the input, much "
        "like a single layer of self-attention!",
    ),
    control="the same embeddings, residuals and norms, no feed-forward network; only the number of attention layers "
    "differs, and each has its own best learning rate",
    verdict=nonlinearity_verdict,
    seeds=SEEDS,
)
def nonlinearity(size: Size) -> Measurement:
    """Measure the held-out loss of one and of two attention layers, without any feed-forward network."""
    early, late = size.steps(240), size.steps(960)
    one, two = (
        {steps: best_speller(steps=steps, n_layers=n_layers, prepare=leave_feed_forward_out) for steps in (early, late)}
        for n_layers in (1, 2)
    )
    gains = {steps: one[steps].mean - two[steps].mean for steps in one}
    return Measurement(
        measured="without feed-forward networks, a second attention layer lowers the loss by "
        f"{gains[early]:.1f} nats per letter after {early} steps and by {gains[late]:.1f} after {late}",
        rows=(
            ("nats per letter", "one layer", "two layers"),
            *((f"after {n} steps", f"{one[n].mean:.1f}", f"{two[n].mean:.1f}") for n in one),
        ),
        values=[single - double for single, double in zip(one[late].losses, two[late].losses)],
        figures={"gain_early": gains[early], "gain_late": gains[late]},
        because="It depends on how long the models train. The second layer’s attention depends on the output of the "
        "first layer, so two layers can do more than one. But they need many steps to learn this.",
    )


def swiglu_size_verdict() -> str:
    """Count the weights for two thirds of the width.

    by construction: three matrices with two thirds of the width have as many weights as two of the full width
    """
    return "by construction"


@experiment(
    "feed_forward.swiglu_size",
    claim="To keep the number of parameters the same, SwiGLU’s three matrices can have only two thirds of the hidden "
    "units.",
    source=SHAZEER(
        place="§ 2",
        quote="All of these layers have three weight matrices, as opposed to two for the original FFN. To keep the "
        "number of parameters and the amount of computation constant, we reduce the number of hidden units d_ff … by a "
        "factor of 2/3",
    ),
    control="a standard network of width 4 · d_model, with its biases; SwiGLU at its usual width and at that width",
    verdict=swiglu_size_verdict,
)
def swiglu_size() -> Measurement:
    """Count the parameters, by LLaMA's rule and at equal width."""
    d_model = 4096
    by_rule, equal = (3 * d_model * d_ff / _parameters_of_two(d_model) for d_ff in (swiglu_width(d_model), 4 * d_model))
    return Measurement(
        measured=f"SwiGLU has {by_rule:.2f} times the parameters of a standard network at LLaMA’s width (two thirds "
        f"of the standard width) and {equal:.2f} times at equal width",
        values=(by_rule, equal),
        figures={},
        because="Three matrices with two thirds of the width have as many weights as two of the full width. Not every "
        "model follows the rule: Llama 3 8B uses 14,336 units.",
    )


def _parameters_of_two(d_model: int) -> int:
    """Return the parameters of a FeedForward of the usual width, counted in a module that has no memory for its
    numbers."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in FeedForward(d_model).parameters())


def swiglu_quality_verdict(lead: Sequence[float]) -> str:
    """Compare SwiGLU's loss with the lower one of ReLU's and GELU's: its lead in nats, one for each seed.

    confirmed: SwiGLU's loss is lower for every seed
    not at this size: it is not; the paper reports a lead of a few hundredths of a nat, after long training
    """
    return "confirmed" if min(lead) > 0 else "not at this size"


@experiment(
    "feed_forward.swiglu_quality",
    claim="SwiGLU yields quality improvements over the typically-used ReLU or GELU activations.",
    source=SHAZEER(
        place="abstract",
        quote="We test these variants in the feed-forward sublayers of the Transformer (arXiv:1706.03762) "
        "sequence-to-sequence model, and find that some of them yield quality improvements over the typically-used "
        "ReLU or GELU activations.",
    ),
    control="equally many weights (2 · 128 = about 3 · 85 columns), steps, batches and schedule; each activation has "
    "its own best learning rate",
    verdict=swiglu_quality_verdict,
    seeds=SEEDS,
)
def swiglu_quality(size: Size) -> Measurement:
    """Measure the held-out loss of three feed-forward networks of about the same size: 2 · 128 and 3 · 85 columns."""
    relu, gelu, swiglu = (
        best_speller(
            steps=size.steps(STEPS), d_model=size.width(32), d_ff=size.width(d_ff), n_heads=2, activation=activation
        )
        for activation, d_ff in (("relu", 128), ("gelu", 128), ("swiglu", 85))
    )
    lead = [min(others) - own for *others, own in zip(relu.losses, gelu.losses, swiglu.losses)]
    return Measurement(
        measured=f"the mean loss is {swiglu.mean:.2f} nats per letter with SwiGLU, {relu.mean:.2f} with ReLU and "
        f"{gelu.mean:.2f} with GELU",
        values=swiglu.losses,
        figures={"lead": lead},
        because="In this small model SwiGLU has the highest loss when training starts from GPT-2’s small initial "
        "weights. The paper reports a lead of a few hundredths of a nat, in a larger model after long training.",
    )


# ------------------------------------------------------------------------------------------------ a mixture of experts
N_EXPERTS, D_EXPERT = 8, 32
BALANCE = 0.01  # the weight of the load-balancing loss, as in Fedus et al. 2021
MIXTURE_STEPS = 240


def larger_weights(model: DecoderOnly) -> None:
    """Draw the matrices of the feed-forward networks with Xavier's standard deviation, several times GPT-2's."""
    for block in model.blocks:
        for weight in block.feed_forward.parameters():
            if weight.dim() == 2:
                nn.init.xavier_uniform_(weight)


def balance_load(model: DecoderOnly) -> None:
    """Add the load-balancing loss of each mixture in a model to the model's own loss in training."""
    routed: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, MixtureOfExperts):
            module.router.register_forward_hook(lambda _, inputs, scores: routed.append(scores))

    def add(_: nn.Module, inputs: Any, output: Any) -> Any:
        balance = sum(load_balance_loss(scores) for scores in routed)
        routed.clear()
        return (output[0], output[1] + BALANCE * balance) if model.training else output

    model.register_forward_hook(add)


def expert_load(model: DecoderOnly, ids: Int[Tensor, "B T"]) -> list[float]:
    """Return the fraction of the tokens that each expert of the first block processes, the busiest expert first."""
    with evaluating(model), trace(model, "blocks.0.feed_forward.router") as seen:
        model(ids)
    (scores,) = seen.values()
    counts = scores.flatten(0, -2).argmax(dim=-1).bincount(minlength=scores.shape[-1])
    return (counts / counts.sum()).sort(descending=True).values.tolist()


# The feed-forward networks that are compared. A mixture sends each token to one of its experts; three hidden units more
# give a dense network as many weights as the router has.
NETWORKS: dict[str, dict[str, Any]] = {
    "dense": {"d_ff": D_EXPERT + 3},  # as many parameters as one token uses in the mixture
    "wide": {"d_ff": N_EXPERTS * D_EXPERT + 3},  # as many as the mixture has in all
    "mixture": {"d_ff": D_EXPERT, "n_experts": N_EXPERTS, "experts_per_token": 1, "norm_topk_prob": False},
}
NETWORKS["balanced"] = NETWORKS["mixture"]  # with the load-balancing loss


def train_network(name: str, seed: int, peak: float, **settings: Any) -> tuple[DecoderOnly, float]:
    """Train a small model that spells, with one of NETWORKS; return it and its held-out loss, in nats per letter.

    peak: the learning rate. settings: as in `train_on_letters`.
    """

    def prepare(model: DecoderOnly) -> None:
        larger_weights(model)
        if name == "balanced":
            balance_load(model)

    both = NETWORKS[name] | settings
    return train_on_letters(seed, peak=peak, rows=ROWS, activation="swiglu", bias=False, prepare=prepare, **both)


@cache
def best_network(name: str, steps: int) -> tuple[tuple[float, list[float]], ...]:
    """Train one of NETWORKS at its own best learning rate, with the lowest mean loss over all seeds; return (loss, the
    load of its experts) for each seed."""

    def over_seeds(rate: float, _: int) -> tuple[float, list[tuple[float, list[float]]]]:
        results = [loss_and_load(name, seed, rate, steps) for seed in SEEDS]
        return fmean(loss for loss, _ in results), results

    ((_, results),) = at_best_rate(over_seeds, RATES, SEEDS[:1]).results
    return tuple(results)


def loss_and_load(name: str, seed: int, rate: float, steps: int) -> tuple[float, list[float]]:
    """Train one of NETWORKS. Return its held-out loss, and the load of its experts if it has any."""
    model, loss = train_network(name, seed, rate, steps=steps)
    return loss, expert_load(model, held_out_letters()[0]) if "n_experts" in NETWORKS[name] else []


def parameters_of(name: str) -> tuple[int, int]:
    """Return the parameters of one of NETWORKS: those that a token uses, and all."""
    model, _ = train_network(name, seed=0, peak=0.01, steps=1)
    network: nn.Module = model.blocks[0].feed_forward
    every = sum(parameter.numel() for parameter in network.parameters())
    if not isinstance(network, MixtureOfExperts):
        return every, every
    one = sum(parameter.numel() for parameter in network.experts[0].parameters())
    return every - (N_EXPERTS - 1) * one, every


def experts_verdict(lead: Sequence[float]) -> str:
    """Compare a mixture of experts with a dense network of equal active parameters: its lead in nats, one for each
    seed.

    confirmed: the mixture's loss is lower for every seed
    not at this size: it is not; the paper's models are up to ten million times as large
    """
    return "confirmed" if min(lead) > 0 else "not at this size"


@experiment(
    "feed_forward.experts",
    claim="the parameter count, independent of total computation performed, is a separately important axis on which to "
    "scale",
    source=Source(
        "Fedus et al. 2021",
        "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
        "https://arxiv.org/abs/2101.03961",
        place="§ 2",
        quote="Our hypothesis is that the parameter count, independent of total computation performed, is a separately "
        "important axis on which to scale.",
    ),
    control="a dense network with as many parameters as one token uses in the mixture, router included; equal standard "
    "deviations of the initial weights, steps and batches; each network has its own best learning rate (by the mean "
    "over the seeds)",
    verdict=experts_verdict,
    seeds=SEEDS,
)
def experts(size: Size) -> Measurement:
    """Measure the held-out loss of eight experts, one for each token, and of dense networks of equal active and of
    equal total size."""
    names = {"dense": "dense", "balanced": "eight experts", "wide": "dense, wide"}
    losses = {name: [loss for loss, _ in best_network(name, size.steps(MIXTURE_STEPS))] for name in names}
    lead = [dense - mixture for dense, mixture in zip(losses["dense"], losses["balanced"])]
    return Measurement(
        measured="with equal active parameters, the mean loss is "
        f"{fmean(losses['balanced']):.1f} nats per letter for a mixture of eight experts and "
        f"{fmean(losses['dense']):.1f} for a dense network, after {size.steps(MIXTURE_STEPS)} steps",
        rows=(
            ("feed-forward network", "active parameters", "all parameters", "nats per letter"),
            *(
                (told, *(f"{count:,}" for count in parameters_of(name)), f"{fmean(losses[name]):.1f}")
                for name, told in names.items()
            ),
        ),
        values=lead,
        figures={"lead": lead},
        because="A likely reason is that each expert trains on only some of the letters. After four times the steps "
        "the two are about equal (see the variations). The paper’s models are far larger and trained far "
        "longer.",
    )


def few_experts_verdict(without: Sequence[float], with_loss: Sequence[float]) -> str:
    """Judge by the fraction of the letters that the two busiest of eight experts process, one for each seed.

    confirmed: more than half without the load-balancing loss and less than half with it, for every seed
    depends: this holds for only some of the seeds
    not at this size: it holds for none; the paper's models have up to 131,072 experts
    """
    held = [alone > 0.5 > helped for alone, helped in zip(without, with_loss)]
    return "confirmed" if all(held) else "depends" if any(held) else "not at this size"


@experiment(
    "feed_forward.few_experts",
    claim="the gating network tends to converge to a state where it always produces large weights for the same few "
    "experts",
    source=Source(
        "Shazeer et al. 2017",
        "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
        "https://arxiv.org/abs/1701.06538",
        place="§ 4",
        quote="We have observed that the gating network tends to converge to a state where it always produces large "
        "weights for the same few experts.",
    ),
    control="the same mixture with the load-balancing loss of Fedus et al. 2021, at its own best learning rate; an "
    "equal load would be 25% for two of eight experts",
    verdict=few_experts_verdict,
    seeds=SEEDS,
)
def few_experts(size: Size) -> Measurement:
    """Count the held-out letters that each of eight experts processes, without and with the load-balancing loss."""
    loads = [
        torch.tensor([load for _, load in best_network(name, size.steps(MIXTURE_STEPS))])
        for name in ("mixture", "balanced")
    ]  # (seeds, experts) each
    without, with_loss = ([load[:2].sum().item() for load in each] for each in loads)
    return Measurement(
        measured=f"the two busiest of eight experts process {100 * fmean(without):.0f}% of the letters without the "
        f"load-balancing loss and {100 * fmean(with_loss):.0f}% with it",
        rows=(
            ("fraction of the letters", "without the loss", "with the loss"),
            ("busiest expert", *(f"{each[:, 0].mean():.0%}" for each in loads)),
            ("two busiest", *(f"{each[:, :2].sum(dim=1).mean():.0%}" for each in loads)),
            ("two least busy", *(f"{each[:, -2:].sum(dim=1).mean():.0%}" for each in loads)),
        ),
        values=without,
        figures={"without": without, "with_loss": with_loss},
        because="It depends on the initial weights. Some routers prefer two experts, but the other six still get "
        "about half of the letters. The loss makes the loads more equal.",
    )


# --------------------------------------------------------------------------------------------------- where a fact is
ASKED = "what is the capital of {country} ? it is"
TOLD = "tom went to {country} . the capital of {country} is"
UNITS_REMOVED = 96


def capital_questions(tokenizer: WordTokenizer, wording: str = ASKED) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N"]]:
    """Return one beginning of a story per country, whose next word is the capital: (ids, the capitals' ids)."""
    stories = [f"once there was a king called tom . {wording.format(country=country)}" for country in CAPITALS]
    ids = torch.tensor([tokenizer.encode(story, end=False) for story in stories])
    return ids, torch.tensor([tokenizer.id(capital) for capital in CAPITALS.values()])


# The criteria for choosing units: how far a unit raises this number. (logits (N, V), answers (N,)) -> (N,).
CRITERIA = {
    "the capital’s lead over all capitals": lambda logits, answers: _own(logits, answers) - logits[:, answers].mean(1),
    "the capital’s own logit": lambda logits, answers: _own(logits, answers),
    "the capital’s log-probability": lambda logits, answers: _own(logits.log_softmax(dim=-1), answers),
}
LEAD, *_ = CRITERIA


def _own(values: Float[Tensor, "N V"], answers: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    return values.gather(1, answers[:, None])[:, 0]


def contributions(
    model: DecoderOnly, ids: Int[Tensor, "N T"], answers: Int[Tensor, "N"], criterion: str = LEAD
) -> Float[Tensor, "N layers d_ff"]:
    """Return how far each hidden unit raises a story's answer; criterion: a key of CRITERIA.

    The value is activation × gradient, summed over positions. To first order, it is the loss of the criterion if the
    unit is set to 0.
    """
    hidden: list[Tensor] = []
    handles = [
        block.feed_forward.down_proj.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
        for block in model.blocks
    ]
    logits = model(ids)[:, -1]  # (N, V)
    for handle in handles:
        handle.remove()
    gradients = torch.autograd.grad(CRITERIA[criterion](logits, answers).sum(), hidden)
    return torch.stack([(h * g).sum(dim=1).detach() for h, g in zip(hidden, gradients)], dim=1)


def strongest(contribution: Float[Tensor, "layers d_ff"], n_units: int) -> Bool[Tensor, "layers d_ff"]:
    """Return a mask that is True at the n_units units that contribute most, over all layers."""
    chosen = torch.zeros(contribution.numel(), dtype=torch.bool)
    chosen[contribution.flatten().topk(n_units).indices] = True
    return chosen.view_as(contribution)


def next_words(
    model: DecoderOnly, ids: Int[Tensor, "N T"], removed: Bool[Tensor, "layers d_ff"] | None = None
) -> Float[Tensor, "N V"]:
    """Return the probability of every next word of each story while the removed hidden units are set to 0."""
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
    """Return the probability of each story's answer while the removed hidden units are set to 0."""
    return _own(next_words(model, ids, removed), answers)


LOST_BELOW = 0.5  # a capital with a smaller probability counts as lost


def without_its_units(model: DecoderOnly, tokenizer: WordTokenizer, criterion: str) -> tuple[float, float]:
    """Remove each country's strongest units by a criterion. Return (fraction of capitals lost, fraction of the others
    kept).

    The units are found with one wording of the question, and the capitals are tested with another.
    """
    contribution = contributions(model, *capital_questions(tokenizer, ASKED), criterion)  # (16, layers, d_ff)
    asked = capital_questions(tokenizer, TOLD)
    kept = torch.stack([answer_chances(model, *asked, strongest(each, UNITS_REMOVED)) for each in contribution])
    kept = (kept > LOST_BELOW).float()  # (16 removals, 16 capitals)
    own, n = kept.diagonal(), len(CAPITALS)
    return 1 - own.mean().item(), ((kept.sum() - own.sum()) / (n * n - n)).item()


def kept_without_random_units(model: DecoderOnly, tokenizer: WordTokenizer, seed: int) -> float:
    """Return the fraction of capitals kept when the same number of units is removed at random, for 16 random
    choices."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (model.config.n_layers, model.blocks[0].feed_forward.down_proj.in_features)
    asked = capital_questions(tokenizer, TOLD)
    drawn = [strongest(torch.rand(sizes, generator=generator), UNITS_REMOVED) for _ in CAPITALS]
    return fmean((answer_chances(model, *asked, each) > LOST_BELOW).float().mean().item() for each in drawn)


def capitals_verdict(lost: Sequence[float], others_kept: Sequence[float], random_kept: float) -> str:
    """Judge by three criteria that choose the units: fractions of capitals lost (p below 0.5), and of the others kept.

    confirmed: by each criterion nine of ten capitals fall below p = 0.5 and nine of ten others stay above it, and nine
        of ten stay above it when random units are removed
    depends: this holds for only some of the criteria
    refuted: this holds for none of them
    """
    erased = [gone > 0.9 and kept > 0.9 and random_kept > 0.9 for gone, kept in zip(lost, others_kept)]
    return "confirmed" if all(erased) else "depends" if any(erased) else "refuted"


@experiment(
    "feed_forward.capitals",
    claim="One fact can be erased, and only that one, by setting the hidden units that express it to zero.",
    source=Source(
        "Dai et al. 2022",
        "Knowledge Neurons in Pretrained Transformers",
        "https://arxiv.org/abs/2104.08696",
        place="abstract",
        quote="Given a relational fact, we propose a knowledge attribution method to identify the neurons that express "
        "the fact. … In our case studies, we attempt to leverage knowledge neurons to edit (such as update, and erase) "
        "specific factual knowledge without fine-tuning.",
    ),
    control=f"the other 15 capitals with the same {UNITS_REMOVED} units removed; all of them with the same number of "
    "random units removed; three criteria by which the units are chosen",
    verdict=capitals_verdict,
    seeds=SEEDS,
)
def capitals() -> Measurement:
    """Set the 96 units of 2,048 that contribute most to 0, for each country, in the trained Tinytown model."""
    model, tokenizer = load_pretrained("tinytown")
    lost, others_kept = zip(*(without_its_units(model, tokenizer, criterion) for criterion in CRITERIA))
    random_kept = fmean(kept_without_random_units(model, tokenizer, seed) for seed in SEEDS)
    return Measurement(
        measured=f"by every criterion, removing a capital’s units loses it in {round(len(CAPITALS) * min(lost))} of "
        f"{len(CAPITALS)} cases and keeps {100 * min(others_kept):.0f}% to {100 * max(others_kept):.0f}% of the other "
        f"capitals; removing as many random units keeps {100 * random_kept:.0f}% of all capitals",
        values=others_kept,
        figures={"lost": list(lost), "others_kept": list(others_kept), "random_kept": random_kept},
        because="It depends on the criterion. Units chosen by the capital’s own logit include those that raise every "
        "capital; a criterion that compares the capital with other words leaves these out.",
    )


def carried(
    model: DecoderOnly, tokenizer: WordTokenizer, at: str, apart: int, positions: list[int] | None = None
) -> float:
    """Return how much of the change from one country to another a part carries: 1 if the answer changes with it, 0 if
    not.

    In the run on each country, the part's output is taken from the run on the country that is `apart` places later in
    the list. We measure the change in the lead of the other country's capital over the own one.
    """
    ids, answers = capital_questions(tokenizer, TOLD)
    source, others = ids.roll(apart, 0), answers.roll(apart, 0)
    with evaluating(model):
        whole = (model(source) - model(ids))[:, -1]
    part = patch(model, ids, source, at, positions)[:, -1]
    lead, full = (_own(each, others) - _own(each, answers) for each in (part, whole))  # (16,)
    return (lead / full).mean().item()


def facts_verdict(by_layer: Sequence[float]) -> str:
    """Judge by how much of a change of country each layer's feed-forward network carries, first layer first.

    confirmed: a network of a middle layer carries most, and more than half
    depends: the first or the last one does, so that the layer depends on the model
    not at this size: none carries more than half; a small model may keep its facts elsewhere
    """
    most = max(by_layer)
    if most <= 0.5:
        return "not at this size"
    return "depends" if most in (by_layer[0], by_layer[-1]) else "confirmed"


@experiment(
    "feed_forward.facts",
    claim="Mid-layer feed-forward modules have an important role in storing factual associations.",
    source=Source(
        "Meng et al. 2022",
        "Locating and Editing Factual Associations in GPT",
        "https://arxiv.org/abs/2202.05262",
        place="abstract",
        quote="Our results confirm an important role for mid-layer feed-forward modules in storing factual "
        "associations",
    ),
    control="each part's output is replaced by its output for another country, 1, 5 and 9 places later in the list; "
    "everything else stays the same",
    verdict=facts_verdict,
)
def facts() -> Measurement:
    """Measure how much of a change of country each feed-forward network carries, in the trained Tinytown model."""
    model, tokenizer = load_pretrained("tinytown")
    by_layer = [
        fmean(carried(model, tokenizer, f"blocks.{layer}.feed_forward", apart) for apart in (1, 5, 9))
        for layer in range(model.config.n_layers)
    ]
    first, *later = by_layer
    return Measurement(
        measured=f"the first feed-forward network carries {100 * first:.0f}% of a change of country, and each later "
        f"one at most {100 * max(later):.0f}%",
        values=by_layer,
        figures={"by_layer": by_layer},
        because="A feed-forward network does carry the fact. Which layer carries it depends on the model: in ours, "
        "which has four layers, the first layer does.",
    )


def facts_elsewhere_verdict(attention: Sequence[float], feed_forward: Sequence[float]) -> str:
    """Judge by the fraction of random facts recalled when only one kind of part is trained, one for each seed.

    confirmed: attention recalls more than half of the facts for every seed, and so do the feed-forward networks
    depends: only one of the two does, for every seed
    not at this size: neither does; a larger one might
    """
    enough = [min(recalled) > 0.5 for recalled in (attention, feed_forward)]
    return "confirmed" if all(enough) else "depends" if any(enough) else "not at this size"


@experiment(
    "feed_forward.facts_elsewhere",
    claim="A Transformer can store facts in its feed-forward networks or in its attention.",
    source=Source(
        "Nichani et al. 2024",
        "Understanding Factual Recall in Transformers via Associative Memories",
        "https://arxiv.org/abs/2412.06538",
        place="abstract",
        quote="the transformer can trade off between using the value matrices or the MLP as an associative memory to "
        "store the dataset of facts",
    ),
    control="150 random facts, so that nothing can be guessed; only attention is trained, with feed-forward networks "
    "that output 0, or only the feed-forward networks; each at its own best learning rate",
    verdict=facts_elsewhere_verdict,
    seeds=SEEDS,
)
def facts_elsewhere(size: Size) -> Measurement:
    """Let attention or the feed-forward networks learn 150 random facts."""

    def recalled(part: str) -> list[float]:
        def missed(rate: float, seed: int) -> float:
            return 1 - learn_facts(seed, part, size.steps(FACT_STEPS), rate, size.width(32))

        return [1 - missing for missing in at_best_rate(missed, (0.01, 0.03, 0.1), SEEDS).losses]

    attention, feed_forward = recalled("attention"), recalled("feed_forward")
    return Measurement(
        measured=f"attention recalls {100 * fmean(attention):.0f}% of 150 random facts and feed-forward networks "
        f"{100 * fmean(feed_forward):.0f}%, where guessing gives 2%",
        values=attention,
        figures={"attention": attention, "feed_forward": feed_forward},
        because="Here either part can hold facts when it is the part that is trained. Which part a model uses is one "
        "question; which part could hold them is another.",
    )


def learn_facts(seed: int, part: str = "all", steps: int = FACT_STEPS, peak: float = 0.03, d_model: int = 32) -> float:
    """Train a model of one block on 150 random facts, and return the fraction of these facts that it recalls.

    Args:
        part: the part that is trained: "attention" (the feed-forward networks return 0), "feed_forward", or "all".
    """
    n_subjects, n_relations, n_objects = 50, 3, 60
    torch.manual_seed(seed)
    subjects = torch.arange(n_subjects).repeat_interleave(n_relations)
    relations = torch.arange(n_relations).repeat(n_subjects)
    objects = torch.randint(n_objects, (len(subjects),))
    ids = torch.stack([subjects, n_subjects + relations], dim=1)  # (150, 2)
    answers = n_subjects + n_relations + objects
    targets = torch.stack([torch.full_like(answers, -100), answers], dim=1)  # the first token predicts nothing
    vocab_size = n_subjects + n_relations + n_objects
    model = DecoderOnly(
        TransformerConfig(
            vocab_size, d_model, n_heads=4, n_layers=1, max_seq_len=2, activation="relu", tie_weights=False
        )
    )
    if part == "attention":
        leave_feed_forward_out(model)
    if part != "all":
        model.requires_grad_(False)
        for block in model.blocks:
            getattr(block, part).requires_grad_(True)

    def always() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield ids, targets

    train(model, always(), steps, peak=peak, warmup=20, progress=False)
    with evaluating(model):
        return (model(ids)[:, -1].argmax(dim=-1) == answers).float().mean().item()
