"""The comparison of my_gpt.py with the library, for chapter 18 and for the exercise `your_gpt.file`.

`cases` makes the weights and inputs of a stage, `first_difference` compares the tensors that two programs make of them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.chapters.your_gpt.fixtures import LENT, PARTS, STAGES, UNSTEADY, modules_of
from course_lib.config import TransformerConfig
from course_lib.gpt import IGNORED, DecoderOnly

TOLERANCE = 1e-5  # of numbers up to 1; of larger ones, this share of the largest
GRADIENT = 20.0  # factor of the logits with which a gradient is many times as long as a training step allows
EPS = 0.02  # of the norms, large enough to show where it is missing
ROWS = (1, 4)  # texts in a batch


@dataclass(frozen=True)
class Compared:
    """What one comparison of a stage needs, as plain data: see `fixtures.a_stage`. where: its sizes in words."""

    stage: str
    where: str
    config: dict[str, Any]
    weights: dict[str, Tensor]
    given: dict[str, Any]
    alone: bool = False

    @property
    def data(self) -> tuple[str, dict[str, Any], dict[str, Tensor], dict[str, Any], bool]:
        return self.stage, self.config, self.weights, self.given, self.alone


def cases(stage: str, config: TransformerConfig, seed: int) -> list[Compared]:
    """Return the comparisons of a stage, from the smallest to the largest: 1, 3 and max_seq_len tokens, in 1 row and
    in 4; short and long gradients; texts that outgrow max_seq_len.

    The norms' weights are not 1 and the biases not 0, so that a forgotten one shows.
    """
    rng = torch.Generator().manual_seed(seed)
    config = replace(config, dropout=0.0 if stage in ("training_step", "write") else 0.3, norm_eps=EPS)
    weights = _weights(config, rng)
    plain = asdict(config)
    if stage == "training_step":
        return [Compared(stage, where, plain, *given) for where, *given in _updates(config, weights, rng)]
    if stage == "write":
        # Sharper predictions: otherwise the random numbers alone decide.
        weights |= {name: 3 * weight for name, weight in weights.items() if name.startswith("final_norm.")}
        return [Compared(stage, where, plain, weights, given) for where, given in _texts(config, rng)]
    found = []
    for T in lengths(config):
        for B in ROWS:
            ids = torch.randint(config.vocab_size, (2, B, T), generator=rng)
            if stage == "MyGPT":
                given = {"ids": ids[0], "targets": ids[1], "padded": _padded(ids[1])}
            elif stage == "Embedding":
                given = {"token_embedding": ids[0]}
            else:
                names = modules_of(stage, config.n_layers)
                given = {name: torch.randn(B, T, config.d_model, generator=rng) + 0.3 for name in names}
            found.append(Compared(stage, _sizes(B, T), plain, weights, given))
    return found


def alone(case: Compared) -> Compared:
    """Return the comparison with other functions in place of the other stages."""
    return replace(case, alone=True)


def lengths(config: TransformerConfig) -> list[int]:
    """Return the numbers of tokens at which the stages are compared."""
    return sorted({1, min(3, config.max_seq_len), config.max_seq_len})


def _weights(config: TransformerConfig, rng: torch.Generator) -> dict[str, Tensor]:
    theirs = DecoderOnly(config)
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.4, generator=rng)
    return {name: weight.detach().clone() for name, weight in theirs.state_dict().items()}


def _padded(targets: Tensor) -> Tensor:
    """Return the targets without the last third of each row, but at least one."""
    padded = targets.clone()
    padded[:, -max(1, padded.shape[1] // 3) :] = IGNORED
    if padded.shape[1] == 1:
        padded[0] = targets[0]
    return padded


def _sizes(B: int, T: int) -> str:
    return f"{T} token{'s' if T > 1 else ''} in {B} row{'s' if B > 1 else ''}"


def _updates(config: TransformerConfig, weights: dict[str, Tensor], rng: torch.Generator) -> list[tuple]:
    T, found = config.max_seq_len, []
    for where, optimizer, rate, factor, padding in (
        ("a gradient below norm 1", "SGD", 0.1, 0.02, False),
        ("a gradient far above norm 1", "SGD", 0.1, GRADIENT, False),
        ("AdamW", "AdamW", 0.01, 1.0, False),
        ("targets of -100", "SGD", 0.1, 1.0, True),
    ):
        scaled = {
            name: factor * weight if name.startswith("final_norm.") else weight for name, weight in weights.items()
        }
        if factor < 1:  # small everywhere: a table that is read and multiplied by has two gradients
            scaled |= {name: 0.3 * weights[name] for name in ("token_embedding.weight", "output.weight")}
        drawn = torch.randint(config.vocab_size, (2, 2, 4, T), generator=rng)
        batches = [(ids, _padded(targets) if padding else targets) for ids, targets in drawn]
        given = {"optimizer": optimizer, "lr": rate, "batches": batches}
        found.append((f"{where}, {_sizes(4, T)}", scaled, given))
    return found


def _texts(config: TransformerConfig, rng: torch.Generator) -> list[tuple[str, dict[str, Any]]]:
    T, found = config.max_seq_len, []
    for B, start, n in ((1, 1, 2), (4, 1, 0), (4, 3, 3 * T), (1, T, 3), (4, T + 2, T)):
        ids = torch.randint(config.vocab_size, (B, start), generator=rng)
        where = f"{n} new token{'s' if n != 1 else ''} after {_sizes(B, start)}, where max_seq_len is {T}"
        found.append((where, {"ids": ids, "n_tokens": n, "seed": int(torch.randint(1000, (), generator=rng))}))
    return found


# ------------------------------------------------------------------------------------------------------ the comparison
@dataclass(frozen=True)
class Difference:
    """The first tensor that differs.

    Fields:
        stage, name: of the tensor. largest: its largest difference, or 0 if `why` says why there is none.
        where: the sizes of the smallest input for which it differs.
        look: what to look at. mistake: the name of the mistake, if it is a known one.
    """

    stage: str
    name: str
    largest: float
    why: str = ""
    where: str = ""
    look: str = ""
    mistake: str = ""

    def __str__(self) -> str:
        said = self.why or f"differs by up to {self.largest:.2g} (allowed: {TOLERANCE:g})"
        at = f" at {self.where}" if self.where else ""
        named = f"\n{self.mistake[0].upper()}{self.mistake[1:]}: {self.look}" if self.mistake else f"\n{self.look}"
        return f"{self.stage}: `{self.name}`{at} {said}{named if self.look else ''}"


def first_difference(stage: str, right: Mapping[str, Any], got: Any) -> Difference | None:
    """Return the first tensor of `got` that is not as in `right`, or None."""
    if not isinstance(got, Mapping):
        why = "is lent by the library: write its lines" if got == LENT else "has no result"
        return Difference(stage, stage, 0.0, why)
    for name, wanted in right.items():
        if found := _differs(stage, name, got.get(name), wanted):
            return found
    return None


def _differs(stage: str, name: str, got: Any, right: Any) -> Difference | None:
    if isinstance(right, str):
        return None if got == right else Difference(stage, name, 0.0, str(got))
    if isinstance(got, str):
        return Difference(stage, name, 0.0, got)
    if not isinstance(got, Tensor):
        return Difference(stage, name, 0.0, f"is a {type(got).__name__}, not a tensor")
    if got.shape != right.shape:
        return Difference(stage, name, 0.0, f"has the shape {tuple(got.shape)}, not {tuple(right.shape)}")
    if not right.is_floating_point():
        wrong = int((got != right).sum())
        return Difference(stage, name, 0.0, f"differ at {wrong} of {right.numel()} ids") if wrong else None
    if not right.numel():
        return None
    largest = (got.double() - right.double()).abs().max().item()
    # With <= in this order, NaN counts as a difference.
    return None if largest <= TOLERANCE * max(1.0, right.abs().max().item()) else Difference(stage, name, largest)


def same_results(one: Any, other: Any) -> bool:
    """Return whether two results of a stage are the same, NaN and all. Two programs with one mistake may round
    differently, and AdamW makes this larger: after updates the tolerance is ten times as wide."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return bool(one == other) if isinstance(one, str) and isinstance(other, str) else False
    if one.keys() != other.keys():
        return False
    return all(_same(one[name], other[name], 10 if name.endswith("steps") else 1) for name in one)


def _same(one: Any, other: Any, times: int) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and not isinstance(one, Tensor) and one == other
    if one.shape != other.shape or one.dtype != other.dtype or not torch.equal(one.isnan(), other.isnan()):
        return False
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    room = times * TOLERANCE * max(1.0, one.abs().max().item()) if one.numel() else 0.0
    return bool(((one - other).abs() <= room).all())


LOOK = {  # stage -> what to look at, if the mistake is none of the known ones
    "Embedding": "Look up row ids[b, t] of the table, and change nothing else.",
    "Positions": "Add row t of the table to the token at position t, for every row of the batch.",
    "Norm": "Compute the mean and the variance over the features of each token; then apply eps, weight and bias.",
    "Attention": "Compare the steps in order: projections, heads, scores, scale, mask, softmax, sum of values, merge.",
    "FeedForward": "Compare the steps in order: up_proj with its bias, GELU, down_proj with its bias.",
    "Block": "Each branch reads the normalized stream, and its output is added to the stream itself.",
    "MyGPT": "The other stages are right: look at the order in which your `forward` and your constructor use them.",
    "training_step": "Compare the steps in order: old gradients to zero, loss, backward, clipping to norm 1, update.",
    "write": "Compare what the model reads, the position of the logits that you use, and how you append the token.",
}
ONLY_LONGER = {
    "Positions": "One token is right, so look at which rows of the table a longer text gets.",
    "Norm": "One token is right, so look at the axis: each token has its own mean and variance.",
    "Attention": "One token is right, so look at what mixes tokens: heads, scores, scale, mask and softmax.",
}
ONLY_ROWS = "A single row is right, so look for a step that mixes the rows of the batch or counts along them."


def advice(stage: str, found: Difference, case: Compared, equal: list[str]) -> str:
    """Return what to look at. equal: the sizes for which the stage is right."""
    if found.why == UNSTEADY:
        return "Dropout must be off in evaluation mode: nn.Dropout, or F.dropout with training=self.training."
    if found.name.startswith("gradient"):
        return "The output is right, but part of it is cut off from the gradient, for example by detach or no_grad."
    if found.why.startswith("are two tables"):
        return "Let the output layer use the table itself: self.output.weight = self.token_embedding.weight."
    if "-100" in found.name or case.where.startswith("targets of -100"):
        return "A target of -100 is padding: leave it out of the sum and of the number of tokens."
    if stage in PARTS.values() or stage == "Positions":
        if " 1 row" not in case.where and any(where.replace("1 row", "4 rows") == case.where for where in equal):
            return ONLY_ROWS
        if equal and stage in ONLY_LONGER and not case.where.startswith("1 token "):
            return ONLY_LONGER[stage]
    return LOOK[stage]


assert set(LOOK) == set(STAGES)
