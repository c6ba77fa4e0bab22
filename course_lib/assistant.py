"""Assistant: what turns a model that continues text into one that answers.

Chapter 16. Fine-tuning learns from the answers alone (`answer_targets`). To improve the answers, we need a reward, and
a price for each nat by which the new model diverges from its base. `best_policy` is the exact optimum of reward minus
price. `dpo_loss` and `group_advantages` help a model to approach it.
"""

import copy
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib import checks
from course_lib.config import TransformerConfig
from course_lib.gpt import IGNORED, DecoderOnly

TEMPLATE, USER, ASSISTANT = 0, 1, 2  # who wrote a token: the chat template, the user or the assistant


def add_tokens(model: DecoderOnly, n: int) -> DecoderOnly:
    """Return a copy of the model with n more tokens at the end of its vocabulary, such as <user> and <assistant>.

    The new rows of the embedding table are the mean of the old ones, so at first a new token is no word in particular.

    Errors: ValueError if n < 1 or the output head is not tied. Source: Hewitt 2021 (the mean as initialization).
    """
    checks.require_at_least_one(n=n)
    config = _require_tied(model).config
    wider = DecoderOnly(TransformerConfig.from_dict(config.to_dict() | {"vocab_size": config.vocab_size + n}))
    table = model.token_embedding.weight.detach()  # (V, d_model)
    state = dict(copy.deepcopy(model.state_dict()))
    for name in ("token_embedding.weight", "output.weight"):
        state[name] = torch.cat([table, table.mean(dim=0, keepdim=True).expand(n, -1)])  # (V + n, d_model)
    wider.load_state_dict(state)
    return wider.to(table.device, table.dtype).train(model.training)


def answer_targets(ids: Int[Tensor, "B T"], roles: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return the targets of fine-tuning: the next id where the assistant wrote it, and −100 everywhere else.

    Args:
        ids: (B, T), dialogues with their template. roles: (B, T), who wrote each token: TEMPLATE, USER or ASSISTANT.
    Returns: (B, T); targets[b, t] is ids[b, t + 1] or −100. The last position has no next token.
    Errors: ValueError if the shapes differ or a role is unknown.
    """
    _require_roles(ids, roles)
    following = F.pad(ids[:, 1:], (0, 1), value=IGNORED)  # (B, T)
    spoken = F.pad(roles[:, 1:] == ASSISTANT, (0, 1), value=False)  # (B, T)
    return following.masked_fill(~spoken, IGNORED)


def log_probs_of(model: nn.Module, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, "B"]:
    """Return ln p of each row's targets under the model, summed over the tokens that are not −100: (B,).

    Errors: ValueError if the model does not take the ids, or a target is no token of its vocabulary.
    """
    checks.require_module(model=model)
    checks.require_tensors(ids=ids, targets=targets)
    logits = checks.require_called(model, (ids,))  # (B, T, V)
    _require_targets(logits, targets)
    loss = F.cross_entropy(logits.transpose(1, 2), targets.long(), ignore_index=IGNORED, reduction="none")  # (B, T)
    return -loss.sum(dim=-1)


def best_policy(base: Float[Tensor, "V"], reward: Float[Tensor, "V"], beta: float) -> Float[Tensor, "V"]:
    """Return the distribution with the highest E[reward] − β · divergence from the base distribution.

    p(x) = base(x) · e^(reward(x) / β) / Z

    Args:
        base: (V,), probabilities. reward: (V,), of each outcome. beta: β > 0, the price of one nat of divergence.
    Errors: ValueError unless base is a distribution, all rewards are finite, and β is positive.
    Source: Korbak et al. 2022; Rafailov et al. 2023, equation 4.
    """
    _require_alike(base=base, reward=reward)
    _require_distribution(base=base)
    _require_price(beta, base.dtype)
    possible = reward.masked_fill(base == 0, -torch.inf)
    # e^(reward / β) overflows for a small β. Subtracting the largest reward first changes only Z.
    return (base.log() + (possible - possible.max()) / beta).softmax(dim=-1)


def divergence(p: Float[Tensor, "V"], base: Float[Tensor, "V"]) -> Float[Tensor, ""]:
    """Return the Kullback–Leibler divergence Σ p ln(p / base) in nats: infinite if p needs what base never does."""
    _require_alike(p=p, base=base)
    _require_distribution(p=p, base=base)
    return torch.where(p > 0, p * (p.log() - base.log()), 0.0).sum()


def best_of_n_divergence(n: int) -> float:
    """Return ln n − (n − 1) / n in nats: how far best-of-n is from its base, at most.

    It is exact if no two samples have the same reward, and too high if many do.

    Errors: ValueError if n < 1. Source: Stiennon et al. 2020; Beirami et al. 2024 (that it is an upper bound).
    """
    checks.require_at_least_one(n=n)
    return math.log(n) - (n - 1) / n


def dpo_loss(
    chosen: Float[Tensor, "B"],
    rejected: Float[Tensor, "B"],
    ref_chosen: Float[Tensor, "B"],
    ref_rejected: Float[Tensor, "B"],
    beta: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, "B"]]:
    """Return the loss of direct preference optimization, and the margin of each pair.

    margin = β · [(ln p(chosen) − ln ref(chosen)) − (ln p(rejected) − ln ref(rejected))]
    loss = mean of −ln σ(margin)

    Args:
        chosen, rejected: (B,), ln p of the two answers of each pair under the model that learns, summed over tokens.
        ref_chosen, ref_rejected: (B,), the same under the base model. beta: β > 0.
    Errors: ValueError if the shapes or dtypes differ, a number is not finite, or β is not positive.
    Source: Rafailov et al. 2023, equation 7.
    """
    checks.require_positive(beta=beta)
    _require_alike(chosen=chosen, rejected=rejected, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
    margins = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))  # (B,)
    return -F.logsigmoid(margins).mean(), margins


def group_advantages(rewards: Float[Tensor, "G N"]) -> Float[Tensor, "G N"]:
    """Return how much better each answer is than the others to the same question, in standard deviations.

    advantage = (reward − mean of its group) / standard deviation of its group; 0 if all rewards of a group are equal

    Args:
        rewards: (G, N), for N answers to each of G questions.
    Errors: ValueError for fewer than 2 answers per question. Source: Shao et al. 2024 (GRPO).
    """
    _require_groups(rewards)
    difference = rewards - rewards.mean(dim=1, keepdim=True)  # (G, N)
    equal = rewards.amax(dim=1, keepdim=True) == rewards.amin(dim=1, keepdim=True)  # (G, 1)
    # Divided by the largest, which changes no quotient: no square overflows or is rounded to 0.
    difference = difference / difference.abs().amax(dim=1, keepdim=True).masked_fill(equal, 1.0)
    variance = difference.square().mean(dim=1, keepdim=True)  # (G, 1)
    return torch.where(equal, 0.0, difference / variance.masked_fill(equal, 1.0).sqrt())


def _require_tied(model: DecoderOnly) -> DecoderOnly:
    """Return the model. Raise TypeError unless it is a DecoderOnly, and ValueError unless its output head is tied."""
    checks.require_kind(DecoderOnly, model=model)
    if not model.config.tie_weights:
        raise ValueError("add_tokens needs a tied output head, got tie_weights=False: make a model with tied weights")
    return model


def _require_roles(ids: Tensor, roles: Tensor) -> None:
    """Raise ValueError unless ids and roles are two tables of whole numbers of one shape, with known roles."""
    checks.require_tensors(ids=ids, roles=roles)
    if ids.ndim != 2 or ids.shape != roles.shape:
        raise ValueError(f"ids and roles must both be (B, T), got {tuple(ids.shape)} and {tuple(roles.shape)}")
    if not {ids.dtype, roles.dtype} <= {torch.int64, torch.int32}:
        raise ValueError(f"ids and roles must be whole numbers (torch.int64), got {ids.dtype} and {roles.dtype}")
    checks.require_device_of(ids, roles=roles)
    if checks.occurs((roles < TEMPLATE) | (roles > ASSISTANT)):
        raise ValueError("roles must be 0 (template), 1 (user) or 2 (assistant) for each token")


def _require_targets(logits: Tensor, targets: Tensor) -> None:
    """Raise ValueError unless logits are (B, T, V), and each position has a target in the vocabulary or −100."""
    if logits.ndim != 3 or targets.shape != logits.shape[:2] or targets.device != logits.device:
        where = f"{tuple(targets.shape)} on {targets.device}"
        raise ValueError(f"targets must be (B, T) for logits {tuple(logits.shape)} on {logits.device}, got {where}")
    checks.require_ids(targets.masked_fill(targets == IGNORED, 0), logits.shape[-1], name="targets")


def _require_price(beta: float, dtype: torch.dtype) -> None:
    """Raise ValueError unless beta is positive, and not so small that it is 0 in this dtype."""
    checks.require_positive(beta=beta)
    if beta < torch.finfo(dtype).tiny:
        raise ValueError(f"beta={beta} is 0 in {dtype}: choose at least {torch.finfo(dtype).tiny:.0e}, or use float64")


def _require_distribution(**distributions: Tensor) -> None:
    """Raise ValueError unless each is a row of probabilities with sum 1."""
    for name, p in distributions.items():
        if p.is_meta or (p < 0).any() or abs(p.float().sum().item() - 1) > 1e-3:
            raise ValueError(f"{name} must be probabilities of shape (V,) with sum 1, got {p!r:.80}")


def _require_alike(**numbers: Tensor) -> None:
    """Raise ValueError unless all are rows of finite numbers with the same length, dtype and device."""
    checks.require_alike(**numbers)
    shapes = {name: tuple(given.shape) for name, given in numbers.items()}
    if len(set(shapes.values())) > 1 or len(next(iter(shapes.values()))) != 1:
        raise ValueError(f"{' and '.join(numbers)} must be rows of the same length, got {shapes}")
    for name, given in numbers.items():
        if checks.occurs(~given.isfinite()):
            raise ValueError(f"{name} must be finite: one of its numbers is NaN or infinite")


def _require_groups(rewards: Tensor) -> None:
    """Raise ValueError unless rewards are finite numbers of shape (G, N) with N ≥ 2."""
    checks.require_tensors(rewards=rewards)
    if rewards.ndim != 2 or rewards.shape[1] < 2 or not rewards.is_floating_point():
        raise ValueError(
            f"rewards must be (G, N) with at least 2 answers per question, got {tuple(rewards.shape)}, {rewards.dtype}"
        )
    if rewards.is_meta or not rewards.isfinite().all():
        raise ValueError("rewards must be finite numbers: one of them is NaN or infinite, or has no value")
