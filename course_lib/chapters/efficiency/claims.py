"""Chapter 14's claims: what length costs in work, memory and time, and what helps.

Work and memory are counted, so they are the same on every machine. What is timed is a ratio, measured side by side.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention import scaled_dot_product_attention
from course_lib.blocks import TransformerBlock
from course_lib.claims.registry import Finding, experiment
from course_lib.claims.timing import best_seconds
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.heads import MultiHeadAttention

SEEDS = (0, 1, 2)


# ------------------------------------------------------------------------------------------------------------ counted
class _LargestTensor(TorchDispatchMode):
    """Notes the largest tensor that any operation makes while the `with` block runs."""

    bytes = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor):
                self.bytes = max(self.bytes, made.numel() * made.element_size())
        return result


def largest_tensor(function: Callable[[], object]) -> int:
    """Bytes of the largest tensor that the function makes on its way, without gradients.

    What a fused kernel keeps for itself is not seen: small blocks, whose size does not grow with the length.
    """
    with torch.no_grad(), _LargestTensor() as seen:
        function()
    return seen.bytes


def pairs_share(T: int, d_model: int) -> float:
    """Share of a block's multiplications that compares pairs of tokens (steps 4 and 6 of attention), counted by torch.

    The rest are the linear layers, with d_ff = 4 d_model. By the formula it is T / (T + 6 d_model).
    """
    block = TransformerBlock(TransformerConfig(vocab_size=8, d_model=d_model, n_heads=1, n_layers=1, max_seq_len=T))
    q = torch.randn(1, 1, T, d_model)
    with torch.no_grad():
        with FlopCounterMode(display=False) as linear:
            for layer in block.modules():
                if isinstance(layer, nn.Linear):
                    layer(torch.randn(1, T, layer.in_features))
        with FlopCounterMode(display=False) as pairs:
            scaled_dot_product_attention(q, q, q)
    return pairs.get_total_flops() / (pairs.get_total_flops() + linear.get_total_flops())


@experiment("efficiency.quadratic", claim="Attention makes a Transformer expensive, because it compares all pairs.")
def quadratic() -> Finding:
    d = 128
    shares = {T: pairs_share(T, d) for T in (d // 4, d, 6 * d, 24 * d)}
    return Finding(
        measured=f"comparing pairs is {shares[d]:.0%} of a block's work at T = d_model, {shares[6 * d]:.0%} at "
        f"6 · d_model, {shares[24 * d]:.0%} at 24 · d_model",
        values=tuple(shares.values()),
        verdict="confirmed" if min(shares.values()) > 0.5 else "refuted" if max(shares.values()) < 0.5 else "depends",
        because="The linear layers grow with T · d², the pairs with T² · d: they are even at T = 6 · d_model.",
    )


@experiment("efficiency.score_memory", claim="For 2,048 tokens at d_model = 768, a head's scores take about 6 MB.")
def score_memory() -> Finding:
    T, d_model, n_heads = 2048, 768, 12
    q = torch.zeros(T, d_model // n_heads)
    scores, activations = (q @ q.T).nbytes / 1e6, torch.zeros(T, d_model).nbytes / 1e6
    return Finding(
        measured=f"{scores:.1f} MB in float32, {scores / 2:.1f} MB in 16 bits; 96 heads {96 * scores / 1e3:.2f} GB",
        values=(scores,),
        verdict="confirmed" if 5 < scores < 7 or 5 < scores / 2 < 7 else "refuted",
        because=f"One number per pair of tokens, whatever d_model is; {activations:.1f} MB is the activations.",
    )


@experiment("efficiency.stored_scores", claim="Attention's memory grows with the square of the length.")
def stored_scores() -> Finding:
    growth = []
    for attend in (scaled_dot_product_attention, F.scaled_dot_product_attention):
        short, long = (torch.zeros(1, 4, T, 64) for T in (512, 2048))
        growth.append(
            largest_tensor(partial(attend, long, long, long)) / largest_tensor(partial(attend, short, short, short))
        )
    plain, fused = growth
    return Finding(
        measured=f"four times the tokens: the largest tensor grows {plain:.0f} times in plain steps, {fused:.0f} times "
        "in the fused kernel",
        values=(plain, fused),
        verdict="depends" if plain > 15 and fused < 5 else "confirmed" if fused > 15 else "refuted",
        because="The table of weights need not be stored: softmax works block by block. The work stays quadratic.",
    )


def kept_per_parameter(recipe: str) -> dict[str, float]:
    """Bytes per parameter that stay allocated when a small decoder has taken one step of AdamW: item -> bytes.

    recipe: "float32"; "autocast": float32 parameters, operations in bfloat16 where PyTorch holds that to be safe; or
    "16-bit weights": parameters and gradients in bfloat16, AdamW on a float32 master copy.
    """
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(vocab_size=100, d_model=32, n_heads=2, n_layers=2, max_seq_len=16))
    ids, half = torch.randint(100, (2, 16)), recipe == "16-bit weights"
    model = model.bfloat16() if half else model
    updated = [p.detach().float() for p in model.parameters()] if half else list(model.parameters())
    optimizer = torch.optim.AdamW(updated)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=recipe == "autocast"):
        _, loss = model(ids, ids)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]  # each has one
    if half:  # in float32 for the update alone
        for master, gradient in zip(updated, gradients, strict=True):
            master.grad = gradient.float()
    optimizer.step()
    if half:
        optimizer.zero_grad()  # the copies of the gradients, not the gradients
    tensors: dict[str, Sequence[Tensor]] = {
        "weights": list(model.parameters()),
        "gradients": gradients,
        "moments": [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")],
        "master copy": updated if half else [],
    }
    n = sum(parameter.numel() for parameter in model.parameters())
    return {name: sum(tensor.nbytes for tensor in these) / n for name, these in tensors.items()}


@experiment(
    "efficiency.mixed_precision",
    claim="Mixed precision halves the memory of weights, gradients and optimizer.",
)
def mixed_precision() -> Finding:
    """What stays allocated after a step: `torch.autocast`, and 16-bit weights with a master copy, against float32."""
    bills = {recipe: kept_per_parameter(recipe) for recipe in ("float32", "autocast", "16-bit weights")}
    whole, auto, half = (sum(bill.values()) for bill in bills.values())
    ratios = auto / whole, half / whole
    items = {recipe: " + ".join(f"{item:.0f}" for item in bill.values() if item) for recipe, bill in bills.items()}
    return Finding(
        measured=f"bytes per parameter: {whole:.0f} in float32, {auto:.0f} under autocast ({items['autocast']}), "
        f"{half:.0f} with 16-bit weights and a float32 master copy ({items['16-bit weights']})",
        values=ratios,
        verdict="confirmed" if max(ratios) < 0.55 else "refuted" if min(ratios) > 0.95 else "depends",
        because="Autocast leaves weights, gradients and moments in float32; with 16-bit weights, what they save goes "
        "into the copy. What shrinks is the activations.",
    )


def cached_equals_whole(seed: int, T: int = 48) -> float:
    """Largest difference of the logits, token by token with a cache against all at once, relative to their size."""
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=50, d_model=32, n_heads=4, n_kv_heads=2, n_layers=3, max_seq_len=T)
    model, ids = DecoderOnly(config), torch.randint(50, (2, T))
    with evaluating(model):
        whole, cache = model(ids), model.new_cache()
        steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(T)], dim=1)
    return ((steps - whole).abs().max() / whole.abs().max()).item()


@experiment("efficiency.cache_equal", claim="A key-value cache is an approximation: the text may change.")
def cache_equal() -> Finding:
    errors = tuple(cached_equals_whole(seed) for seed in SEEDS)
    return Finding(
        measured="logits with and without the cache differ by "
        + ("rounding alone" if max(errors) < 1e-4 else f"{max(errors):.1g} of their size"),
        values=errors,
        verdict="refuted" if max(errors) < 1e-4 else "confirmed",
        because="Under a causal mask later tokens never change a token's keys and values: they are kept, not guessed.",
    )


# -------------------------------------------------------------------------------------------------------------- timed
def slope(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Exponent p of seconds ≈ c · length^p: the slope of a straight line through the logarithms, by least squares."""
    x, y = [math.log(length) for length in lengths], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)


@experiment("efficiency.time_exponent", claim="Twice the tokens, four times the time in attention.", timed=True)
def time_exponent() -> Finding:
    lengths, exponents = (512, 1024, 2048), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        queries = [torch.randn(1, 2, T, 64) for T in lengths]
        runs = [lambda q=q: F.scaled_dot_product_attention(q, q, q) for q in queries]
        exponents.append(slope(lengths, best_seconds(runs)))
    mean = sum(exponents) / len(exponents)
    return Finding(
        measured=f"time of the fused kernel grows as length to the power {mean:.1f}",
        values=tuple(exponents),
        verdict="confirmed" if 1.7 < mean < 2.6 else "depends" if mean > 1.2 else "refuted",
        because="The kernel saves memory, not work: every pair of tokens is still compared.",
    )


def seconds_of_last_token(model: DecoderOnly, T: int) -> tuple[float, float]:
    """Time of the token after T others, with a full cache and by reading everything again."""
    ids = torch.randint(model.config.vocab_size, (1, T))

    def filled():
        cache = model.new_cache()
        model(ids[:, :-1], cache=cache)
        return cache

    with evaluating(model):
        caches = iter([filled() for _ in range(8)])
        cached, whole = best_seconds([lambda: model(ids[:, -1:], cache=next(caches)), lambda: model(ids)])
    return cached, whole


@experiment(
    "efficiency.cache_time",
    claim="With a cache, the time per token does not grow with the text.",
    timed=True,
)
def cache_time() -> Finding:
    torch.manual_seed(0)
    config = TransformerConfig(vocab_size=100, d_model=128, n_heads=4, n_layers=2, max_seq_len=512)
    model = DecoderOnly(config)
    early, late = seconds_of_last_token(model, 32), seconds_of_last_token(model, 512)
    cached, whole = late[0] / early[0], late[1] / early[1]
    return Finding(
        measured=f"from 32 to 512 tokens a token takes {cached:.1f} times as long with the cache, {whole:.1f} times "
        "without",
        values=(cached, whole),
        verdict="confirmed" if cached < 1.5 else "depends" if cached < whole / 2 else "refuted",
        because="One query meets all kept keys: that part grows slowly. Without the cache everything is read again.",
    )


def _there_and_back(layer: nn.Module, x: Tensor, **options) -> None:
    """Run a layer forward and backward."""
    y = layer(x, **options)
    (y[0] if isinstance(y, tuple) else y).sum().backward()


@experiment("efficiency.rnn", claim="A Transformer layer trains faster than a recurrent one.", timed=True)
def rnn() -> Finding:
    torch.manual_seed(0)
    ratios = []
    for T in (32, 1024):
        attention, lstm, x = MultiHeadAttention(64, 4), nn.LSTM(64, 64, batch_first=True), torch.randn(2, T, 64)
        attended, recurred = best_seconds(
            [
                partial(_there_and_back, attention, x, is_causal=True),
                partial(_there_and_back, lstm, x),
            ],
            rounds=5,
        )
        ratios.append(attended / recurred)
    return Finding(
        measured=f"time of attention / time of an LSTM, forward and back: {ratios[0]:.1f} at 32 tokens, "
        f"{ratios[1]:.1f} at 1,024",
        values=tuple(ratios),
        verdict="confirmed" if max(ratios) < 1 else "refuted" if min(ratios) > 1 else "depends",
        because="An LSTM waits T times for itself, attention not once; but its work grows with T². Many cores favour "
        "attention, one core and a long text the LSTM.",
    )
