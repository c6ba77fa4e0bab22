"""Chapter 14's claims: what length costs in work, memory and time, and what helps.

Work and memory are counted, so they are the same on every machine. What is timed is a ratio, measured side by side.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.attention import scaled_dot_product_attention
from course_lib.blocks import TransformerBlock
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.timing import best_seconds
from course_lib.config import TransformerConfig
from course_lib.counting import forward_flops
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.heads import MultiHeadAttention

SEEDS = (0, 1, 2)

FLASH_ATTENTION = Source(
    "Dao et al. 2022",
    "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness, abstract",
    "https://arxiv.org/abs/2205.14135",
)


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
    """Return the bytes of the largest tensor that the function makes on its way, without gradients.

    What an operation keeps inside itself is not seen. That the fused kernel keeps small blocks only is a test of the
    course, which asks PyTorch's allocator.
    """
    with torch.no_grad(), _LargestTensor() as seen:
        function()
    return seen.bytes


def pairs_share(T: int, d_model: int) -> float:
    """Return the share of a block's multiplications that compares pairs of tokens (steps 4 and 6 of attention), counted
    by torch.

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


@experiment(
    "efficiency.quadratic",
    claim="The main efficiency bottleneck of a Transformer is self-attention, since every token attends to all others.",
    source=Source(
        "Wang et al. 2020", "Linformer: Self-Attention with Linear Complexity, § 1", "https://arxiv.org/abs/2006.04768"
    ),
    control="The linear layers of the same block on the same text, counted by torch's own counter.",
    threshold="Confirmed if comparing pairs is more than half of a block's work at every length, refuted if less at "
    "every one, else it depends.",
)
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


@experiment(
    "efficiency.score_memory",
    claim="The scores of a text of 64K tokens, in 32-bit floats, take 16 GB of memory.",
    source=Source("Kitaev et al. 2020", "Reformer: The Efficient Transformer, § 2", "https://arxiv.org/abs/2001.04451"),
    control="The input of the layer for the same text, at d_model = 1,024.",
    threshold="Confirmed if the table of one head takes 16 GB to within a tenth, in GB of 10^9 or of 2^30 bytes; else "
    "refuted.",
)
def score_memory() -> Finding:
    """Measure the bytes of one head's scores, from shapes alone: the tensors have no numbers."""
    T, d_model, d_head = 65_536, 1024, 64
    q = torch.empty(T, d_head, device="meta")
    scores, inputs = (q @ q.T).nbytes, torch.empty(T, d_model, device="meta").nbytes
    near = any(abs(scores / unit - 16) < 1.6 for unit in (1e9, 2**30))
    return Finding(
        measured=f"{scores / 2**30:.1f} GiB ({scores / 1e9:.1f} GB) for one head; the input of the layer "
        f"{inputs / 1e9:.2f} GB",
        values=(scores / 1e9, inputs / 1e9),
        verdict="confirmed" if near else "refuted",
        because="One number per pair of tokens, whatever d_model is, and each head has a table of its own.",
    )


@experiment(
    "efficiency.stored_scores",
    claim="Self-attention requires memory that grows with the square of the length.",
    source=Source(
        "Rabe & Staats 2021",
        "Self-attention Does Not Need O(n²) Memory, abstract (a frequently stated belief, which they disprove)",
        "https://arxiv.org/abs/2112.05682",
    ),
    control="PyTorch's fused kernel on the same queries, keys and values, with the same result.",
    threshold="For four times the tokens: confirmed if the largest tensor grows more than 15 times in both ways, "
    "refuted if less than 5 times in both, else it depends.",
)
def stored_scores() -> Finding:
    """Measure the largest tensor on the way, at 512 tokens and at 2,048."""
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
        verdict="confirmed" if min(growth) > 15 else "refuted" if max(growth) < 5 else "depends",
        because="The table of weights need not be stored: softmax works block by block. The work stays quadratic.",
    )


RECIPES = ("float32", "autocast", "16-bit weights")


def _kept_for_backward(model: nn.Module, ids: Tensor) -> tuple[Tensor, int]:
    """Return (loss, bytes that the forward pass keeps for the backward pass, the parameters not counted)."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}  # place in memory -> bytes: several operations may keep the same tensor

    def look(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(look, lambda tensor: tensor):
        _, loss = model(ids, ids)
    return loss, sum(kept.values())


def training_bytes(recipe: str, rows: int = 2) -> dict[str, float]:
    """Return the bytes per parameter that a small decoder takes for a step of AdamW on so many rows of 64 tokens: item
    -> bytes.

    recipe: one of RECIPES. "autocast": float32 parameters, operations in bfloat16 where PyTorch holds that to be safe;
    "16-bit weights": parameters, gradients and activations in bfloat16, AdamW on a float32 master copy. Weights,
    gradients, moments and copy stay whatever the batch; the activations are what the backward pass waits for.
    """
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(vocab_size=100, d_model=64, n_heads=4, n_layers=2, max_seq_len=64))
    ids, half = torch.randint(100, (rows, 64)), recipe == "16-bit weights"
    model = model.bfloat16() if half else model
    updated = [p.detach().float() for p in model.parameters()] if half else list(model.parameters())
    optimizer = torch.optim.AdamW(updated)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=recipe == "autocast"):
        loss, activations = _kept_for_backward(model, ids)
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
    return {name: sum(tensor.nbytes for tensor in these) / n for name, these in tensors.items()} | {
        "activations": activations / n
    }


@experiment(
    "efficiency.mixed_precision",
    claim="Mixed precision reduces the memory of training by nearly a factor of 2.",
    source=Source("Micikevicius et al. 2018", "Mixed Precision Training, abstract", "https://arxiv.org/abs/1710.03740"),
    control="The same model, batch and optimizer in float32; both recipes of mixed precision; few tokens and many.",
    threshold="Confirmed if both recipes take less than 0.6 of float32's memory with few tokens and with many, refuted "
    "if neither ever does, else it depends.",
)
def mixed_precision() -> Finding:
    """Measure what a step takes in all, and what of it stays whatever the batch: three recipes, few rows of text and
    many.
    """
    totals, fixed = {}, {}
    for recipe in RECIPES:
        bills = [training_bytes(recipe, rows) for rows in (2, 256)]
        totals[recipe] = [sum(bill.values()) for bill in bills]
        fixed[recipe] = sum(bytes for item, bytes in bills[0].items() if item != "activations")
    whole, auto, half = (totals[recipe] for recipe in RECIPES)
    ratios = tuple(other / all for one in (auto, half) for other, all in zip(one, whole))
    return Finding(
        measured="weights, gradients, moments, copy: "
        + ", ".join(f"{recipe} {fixed[recipe]:.0f}" for recipe in RECIPES)
        + f" bytes per parameter; with activations, share of float32: autocast {ratios[0]:.1f} with 128 tokens, "
        f"{ratios[1]:.1f} with 16,384; 16-bit weights {ratios[2]:.1f} and {ratios[3]:.1f}",
        values=ratios,
        verdict="confirmed" if max(ratios) < 0.6 else "refuted" if min(ratios) > 0.6 else "depends",
        because="Autocast leaves weights, gradients and moments in float32; with 16-bit weights, what they save goes "
        "into the copy. What shrinks is the activations, so the saving comes with many tokens.",
    )


PRECISIONS = (torch.float64, torch.float32, torch.bfloat16)


def cached_equals_whole(seed: int, dtype: torch.dtype = torch.float32, T: int = 48) -> float:
    """Return the largest difference of the logits, token by token with a cache against all at once, relative to their
    size.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=50, d_model=32, n_heads=4, n_kv_heads=2, n_layers=3, max_seq_len=T)
    model, ids = DecoderOnly(config).to(dtype), torch.randint(50, (2, T))
    with evaluating(model):
        whole, cache = model(ids), model.new_cache()
        steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(T)], dim=1)
    return ((steps - whole).abs().max() / whole.abs().max()).item()


@experiment(
    "efficiency.cache_equal",
    claim="A key-value cache changes the logits: almost imperceptibly in float32, more than negligibly in bfloat16.",
    source=Source(
        "Gante 2023",
        "Possible Bug with KV Caching in Llama, comment in the issues of transformers",
        "https://github.com/huggingface/transformers/issues/25420",
    ),
    control="The same weights and tokens read at once, without a cache; and the same in float64, where rounding alone "
    "would all but vanish and an approximation would not.",
    threshold="Relative to the largest logit: confirmed if in every seed the difference is below 1e-12 in float64, "
    "below 1e-4 in float32 and above 1e-3 in bfloat16; refuted if it is above 1e-4 in float32; else it depends.",
    seeds=SEEDS,
)
def cache_equal() -> Finding:
    """Measure the largest difference of the logits with and without the cache, in three precisions."""
    double, single, half = ([cached_equals_whole(seed, dtype) for seed in SEEDS] for dtype in PRECISIONS)
    rounding = max(double) < 1e-12 and max(single) < 1e-4
    return Finding(
        measured="largest difference of a logit, relative to the largest: "
        + ", ".join(
            f"below 1e{math.ceil(math.log10(max(errors)))} in {name}"
            for errors, name in zip((double, single, half), ("float64", "float32", "bfloat16"))
        ),
        values=tuple(round(each, 5) for each in single),  # what is smaller depends on the processor
        verdict="confirmed" if rounding and min(half) > 1e-3 else "refuted" if max(single) > 1e-4 else "depends",
        because="The cache approximates nothing: later tokens never change a token's keys and values. But sums in "
        "another order round otherwise, and few digits make that visible.",
    )


# -------------------------------------------------------------------------------------------------------------- timed
def slope(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent p of seconds ≈ c · length^p: the slope of a straight line through the logarithms, by least
    squares.
    """
    x, y = [math.log(length) for length in lengths], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)


@experiment(
    "efficiency.time_exponent",
    claim="The time of self-attention is quadratic in the length of the text.",
    source=FLASH_ATTENTION,
    control="A linear layer on the same lengths, timed in the same turns; its exponent should be 1.",
    threshold="Time ≈ c · length^p from 512 to 2,048 tokens, mean over the seeds: confirmed if 1.7 < p < 2.6, depends "
    "if 1.2 < p, refuted if less.",
    seeds=SEEDS,
    timed=True,
)
def time_exponent() -> Finding:
    """Measure the exponent of the fused kernel alone, without the linear layers around it, and of one linear layer."""
    lengths, exponents, linear = (512, 1024, 2048), [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        queries, inputs = [torch.randn(1, 2, T, 64) for T in lengths], [torch.randn(T, 512) for T in lengths]
        runs: list[Callable[[], object]] = [partial(F.scaled_dot_product_attention, q, q, q) for q in queries]
        layer = nn.Linear(512, 512)
        seconds = best_seconds(runs + [partial(layer, x) for x in inputs])
        exponents.append(slope(lengths, seconds[:3]))
        linear.append(slope(lengths, seconds[3:]))
    mean = sum(exponents) / len(exponents)
    return Finding(
        measured=f"time of the fused kernel grows as length to the power {mean:.1f}, of a linear layer as length to "
        f"the power {sum(linear) / len(linear):.1f}",
        values=tuple(exponents),
        verdict="confirmed" if 1.7 < mean < 2.6 else "depends" if mean > 1.2 else "refuted",
        because="The kernel saves memory, not work: every pair of tokens is still compared.",
    )


def seconds_of_last_token(model: DecoderOnly, T: int) -> tuple[float, float]:
    """Return the time of a text's token number T, with all others in the cache and by reading everything again."""
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
    claim="A key-value cache reduces the cost of each new token from quadratic in the length of the text to linear.",
    source=Source(
        "Roy Gosthipaty et al. 2025",
        "KV Cache from scratch in nanoVLM, summary",
        "https://huggingface.co/blog/kv-cache",
    ),
    control="The same model and text without the cache; and the operations of both, counted, where length is all.",
    threshold="Cost ≈ c · length^p of one new token: confirmed if without the cache p > 1.5 and with it 0.5 < p < 1.5, "
    "timed from 32 to 512 tokens and counted from 100 to 200 times d_model; refuted if with the cache p > 1.5; else it "
    "depends.",
    seeds=SEEDS,
    timed=True,
)
def cache_time() -> Finding:
    """Measure the exponents of one token's cost, with the cache and without: timed for short texts, counted for long
    ones.
    """
    sizes: dict[str, Any] = {"vocab_size": 100, "d_model": 128, "n_heads": 4, "n_layers": 2}
    timed = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = DecoderOnly(TransformerConfig(**sizes, max_seq_len=512))
        lengths = (32, 512)
        timed.append([slope(lengths, both) for both in zip(*(seconds_of_last_token(model, T) for T in lengths))])
    cached, whole = (sum(column) / len(column) for column in zip(*timed))
    long = (12_800, 25_600)
    config = TransformerConfig(**sizes, max_seq_len=long[-1])
    counted_whole = slope(long, [forward_flops(config, T) for T in long])
    counted_cached = slope(long, [forward_flops(config, 1, cached=T - 1) for T in long])
    as_said = [p > 1.5 for p in (whole, counted_whole)] + [0.5 < p < 1.5 for p in (cached, counted_cached)]
    too_dear = max(cached, counted_cached) > 1.5
    return Finding(
        measured=f"cost of one more token as length^p: up to 512 tokens p = {cached:.1f} with the cache, {whole:.1f} "
        f"without; for very long texts p = {counted_cached:.1f} and {counted_whole:.1f}",
        values=tuple(with_cache for with_cache, _ in timed),
        verdict="confirmed" if all(as_said) else "refuted" if too_dear else "depends",
        because="In short texts the linear layers dominate: without the cache they read all tokens again, with it one, "
        "whatever the length. Linear and quadratic come with the pairs, in long texts.",
    )


def _there_and_back(layer: nn.Module, x: Tensor, **options) -> None:
    """Run a layer forward and backward."""
    y = layer(x, **options)
    (y[0] if isinstance(y, tuple) else y).sum().backward()


@experiment(
    "efficiency.rnn",
    claim="Self-attention layers are faster than recurrent layers when the text is shorter than the layer is wide.",
    source=Source("Vaswani et al. 2017", "Attention Is All You Need, § 4", "https://arxiv.org/abs/1706.03762"),
    control="Equal width and batch, forward and backward, timed in turns; two recurrent layers, a plain one and an "
    "LSTM; and a text sixteen times as long as the layer is wide.",
    threshold="At 32 tokens and width 64, mean over the seeds: confirmed if attention is faster than both recurrent "
    "layers, depends if faster than one, refuted if faster than neither.",
    seeds=SEEDS,
    timed=True,
)
def rnn() -> Finding:
    """Measure the time of attention as a share of that of each recurrent layer, in a short text and in a long one."""
    ratios = []  # for each seed: short and long against the plain layer, short and long against the LSTM
    for seed in SEEDS:
        torch.manual_seed(seed)
        layers = MultiHeadAttention(64, 4), nn.RNN(64, 64, batch_first=True), nn.LSTM(64, 64, batch_first=True)
        found = []
        for T in (32, 1024):
            x = torch.randn(2, T, 64)
            options: tuple[dict[str, bool], ...] = {"is_causal": True}, {}, {}
            runs = [partial(_there_and_back, layer, x, **own) for layer, own in zip(layers, options)]
            attended, *recurred = best_seconds(runs, rounds=5)
            found.append([attended / seconds for seconds in recurred])
        ratios.append([ratio for layer in zip(*found) for ratio in layer])
    plain, plain_long, lstm, lstm_long = (sum(column) / len(column) for column in zip(*ratios))
    faster = sum(ratio < 1 for ratio in (plain, lstm))
    return Finding(
        measured=f"time of attention / time of the layer, width 64: plain recurrence {plain:.1f} at 32 tokens, "
        f"{plain_long:.1f} at 1,024; LSTM {lstm:.1f} and {lstm_long:.1f}",
        values=tuple(ratio[0] for ratio in ratios),
        verdict=("refuted", "depends", "confirmed")[faster],
        because="A recurrent layer waits T times for itself, attention not once; but its work grows with T². Many "
        "cores favour attention, one core and a long text the recurrence.",
    )
