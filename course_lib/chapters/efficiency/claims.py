"""Chapter 14's claims: what length costs in work, memory and time, and what reduces the cost.

Work and memory are counted, so they are the same on every machine. Times are only compared as ratios, measured in
turns.
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
from course_lib.chapters.efficiency.writing import weights_read
from course_lib.claims.registry import Measurement, Source, experiment
from course_lib.claims.timing import best_seconds
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import forward_flops, kv_cache_bytes
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.heads import MultiHeadAttention
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.trace import kept_for_backward

SEEDS = (0, 1, 2)


# ------------------------------------------------------------------------------------------------------------ counted
class _LargestTensor(TorchDispatchMode):
    """Record the largest tensor that any operation makes while the `with` block runs."""

    bytes = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor):
                self.bytes = max(self.bytes, made.numel() * made.element_size())
        return result


def largest_tensor(function: Callable[[], object]) -> int:
    """Return the bytes of the largest tensor that the function makes, including its backward pass if it calls one.

    Memory inside an operation is not counted. A separate test of the course asks PyTorch's allocator, and shows that
    the fused kernel keeps only small blocks.
    """
    with _LargestTensor() as seen:
        function()
    return seen.bytes


def pairs_share(T: int, d_model: int) -> float:
    """Return the fraction of a block's multiplications that compares pairs of tokens (steps 4 and 6 of attention).

    torch counts them from shapes, with tensors that have no numbers. The rest are the linear layers, with d_ff = 4
    d_model. By the formula the fraction is T / (T + 6 d_model).
    """
    with torch.no_grad(), torch.device("meta"):
        block = TransformerBlock(TransformerConfig(vocab_size=8, d_model=d_model, n_heads=1, n_layers=1, max_seq_len=T))
        q = torch.empty(1, 1, T, d_model)
        with FlopCounterMode(display=False) as linear:
            for layer in block.modules():
                if isinstance(layer, nn.Linear):
                    F.linear(torch.empty(1, T, layer.in_features), layer.weight)
        with FlopCounterMode(display=False) as pairs:
            scaled_dot_product_attention(q, q, q)
    return pairs.get_total_flops() / (pairs.get_total_flops() + linear.get_total_flops())


# Public models: name -> (preset, the length in tokens of the longest text in training).
LONGEST = {
    "GPT-2 small": ("gpt2", 1024),
    "LLaMA-7B": ("llama-7b", 2048),
    "Llama 3.1 8B": ("llama-3-8b", 131_072),  # the same shape as Llama 3
}


def model_share(config: TransformerConfig, T: int) -> float:
    """Return the fraction of the operations of a decoder's own blocks that compares pairs of tokens, over T tokens."""
    blocks = forward_flops(config, T) - 2 * T * config.vocab_size * config.d_model  # without the output head
    return 4 * config.n_layers * T * T * config.n_heads * config.d_head / blocks


def cache_share(config: TransformerConfig, T: int, batch: int) -> float:
    """Return the fraction of the bytes in one step of generation that is read from the cache: `batch` texts of T
    tokens.

    The rest are the weights, which are read once for all texts. Tables for look-ups do not count. Both have 16 bits.
    """
    cache = kv_cache_bytes(config, T, batch)
    return cache / (cache + 2 * weights_read(config))


BATCHES = (1, 64)


def cache_bytes_verdict(shares: Sequence[float]) -> str:
    """Compare the bytes of keys and values with the weights that a step reads, in several models, for one text and for
    many texts.

    confirmed: keys and values are more than half of the bytes in every case
    refuted: they are less than half in every case
    depends: they are more than half in some cases
    """
    return "confirmed" if min(shares) > 0.5 else "refuted" if max(shares) < 0.5 else "depends"


@experiment(
    "efficiency.cache_bytes",
    claim="incremental inference … is often slow, due to the memory-bandwidth cost of repeatedly loading the large "
    "“keys” and “values” tensors.",
    source=Source(
        "Shazeer 2019",
        "Fast Transformer Decoding: One Write-Head is All You Need",
        "https://arxiv.org/abs/1911.02150",
        place="abstract",
        quote="incremental inference (where such paralleization is impossible) is often slow, due to the "
        "memory-bandwidth cost of repeatedly loading the large “keys” and “values” tensors.",
    ),
    control="The weights, which the same step reads as well. Both have 16 bits; each model has its own shape and the "
    "longest text that it was trained for.",
    verdict=cache_bytes_verdict,
)
def cache_bytes() -> Measurement:
    """Count the bytes that one step of generation reads from the cache and from the weights."""
    one, many = BATCHES
    shares = {
        name: [cache_share(PRESETS[preset], T, batch) for batch in BATCHES] for name, (preset, T) in LONGEST.items()
    }
    least, most = ([f"{choose(each):.0%}" for each in zip(*shares.values())] for choose in (min, max))
    flat = [share for each in shares.values() for share in each]
    return Measurement(
        measured=f"keys and values are {least[0]} to {most[0]} of the bytes that a step reads with one text, and "
        f"{least[1]} to {most[1]} with {many} texts",
        rows=(
            ("keys and values, of the bytes read", f"{one} text", f"{many} texts"),
            *(
                (f"{name}, {T:,} tokens", *(f"{share:.0%}" for share in shares[name]))
                for name, (_, T) in LONGEST.items()
            ),
        ),
        values=flat,
        figures={"shares": [round(share, 3) for share in flat]},
        because="It depends on the number of texts and on their length. All texts share the weights, but each text "
        "brings its own keys and values.",
    )


def by_counting() -> str:
    """Multiply the number of pairs by the bytes of a number.

    by construction: one number for each pair of tokens is a count, which no experiment could change
    """
    return "by construction"


@experiment(
    "efficiency.score_memory",
    claim="This is a 64K × 64K matrix, which in 32-bit floats would take 16GB of memory.",
    source=Source(
        "Kitaev et al. 2020",
        "Reformer: The Efficient Transformer",
        "https://arxiv.org/abs/2001.04451",
        place="§ 2",
        quote="In the experimental section we train a model on sequences of length 64K – in this case, even at "
        "batch-size of 1, this is a 64K × 64K matrix, which in 32-bit floats would take 16GB of memory. This is "
        "impractical and has hindered the use of the Transformer for long sequences. But it is important to note that "
        "the QKᵀ matrix does not need to be fully materialized in memory.",
    ),
    control="The input of the layer for the same text, at d_model = 1,024.",
    verdict=by_counting,
)
def score_memory() -> Measurement:
    """Compute the bytes of one head's scores from shapes, with tensors that have no numbers."""
    T, d_model, d_head = 65_536, 1024, 64
    q = torch.empty(T, d_head, device="meta")
    scores, inputs = (q @ q.T).nbytes, torch.empty(T, d_model, device="meta").nbytes
    return Measurement(
        measured=f"the scores of one head take {scores / 2**30:.1f} GiB, or {scores / 1e9:.1f} GB, and the input of a "
        f"layer with d_model = {d_model:,} takes {inputs / 1e9:.2f} GB",
        values=(scores / 1e9, inputs / 1e9),
        figures={},
        because="There is one number per pair of tokens, whatever d_model is, and each head has its own matrix. This "
        "is arithmetic. The question is whether the matrix must be stored.",
    )


def stored_verdict(plain: float, fused: float) -> str:
    """Compare the growth of the largest tensor, for four times the tokens, between two ways of computing attention.

    confirmed: the largest tensor grows by a factor of more than 15 in both ways
    refuted: it grows by a factor of less than 5 in one of them, so the memory is not required
    depends: it grows by a factor in between
    """
    return "confirmed" if min(plain, fused) > 15 else "refuted" if min(plain, fused) < 5 else "depends"


@experiment(
    "efficiency.stored_scores",
    claim="Self-attention requires O(n²) memory.",
    source=Source(
        "Rabe & Staats 2021",
        "Self-attention Does Not Need O(n²) Memory",
        "https://arxiv.org/abs/2112.05682",
        place="abstract, as a belief that they disprove",
        quote="We present a very simple algorithm for attention that requires O(1) memory with respect to sequence "
        "length and an extension to self-attention that requires O(log n) memory. This is in contrast with the "
        "frequently stated belief that self-attention requires O(n²) memory.",
        quoted=True,
    ),
    control="Plain steps and PyTorch's fused kernel on the same queries, keys and values, with the same result. (A "
    "test of the course checks with PyTorch's allocator what the kernel keeps internally.)",
    verdict=stored_verdict,
)
def stored_scores() -> Measurement:
    """Measure the largest tensor in the computation, at 512 tokens and at 2,048."""
    growth = []
    for attend in (scaled_dot_product_attention, F.scaled_dot_product_attention):
        short, long = (torch.zeros(1, 4, T, 64) for T in (512, 2048))
        growth.append(
            largest_tensor(partial(attend, long, long, long)) / largest_tensor(partial(attend, short, short, short))
        )
    plain, fused = growth
    return Measurement(
        measured=f"with four times the tokens, the largest tensor is {plain:.0f} times as large in plain steps and "
        f"{fused:.0f} times as large in the fused kernel",
        values=(plain, fused),
        figures={"plain": plain, "fused": fused},
        because="Plain steps store the matrix of weights, but attention does not require it: softmax can work block by "
        "block. The work stays quadratic.",
    )


RECIPES = ("float32", "autocast", "16-bit weights")


def training_bytes(recipe: str, rows: int = 2) -> dict[str, float]:
    """Return the bytes per parameter of a small decoder in a step of AdamW on `rows` rows of 64 tokens: item -> bytes.

    recipe: one of RECIPES. "autocast": float32 parameters, with operations in bfloat16 if PyTorch considers that safe.
    "16-bit weights": parameters, gradients and activations in bfloat16, and AdamW on a float32 master copy. The bytes
    of weights, gradients, moments and copy do not depend on the batch; the activations are kept for the backward pass.
    """
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(vocab_size=100, d_model=64, n_heads=4, n_layers=2, max_seq_len=64))
    ids, half = torch.randint(100, (rows, 64)), recipe == "16-bit weights"
    model = model.bfloat16() if half else model
    updated = [p.detach().float() for p in model.parameters()] if half else list(model.parameters())
    optimizer = torch.optim.AdamW(updated)
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=recipe == "autocast"):
        (_, loss), activations = kept_for_backward(model, ids, ids)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]  # each has one
    if half:  # float32 only for the update
        for master, gradient in zip(updated, gradients, strict=True):
            master.grad = gradient.float()
    optimizer.step()
    if half:
        optimizer.zero_grad()  # clears the copies of the gradients, not the gradients
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


def mixed_verdict(few: float, many: float) -> str:
    """Divide the memory of a training step with 16-bit weights by the memory of one in float32.

    confirmed: the ratio is below 0.6 with few tokens and with many
    refuted: the ratio is above 0.6 with few tokens and with many
    depends: the ratio is below 0.6 with only one of the two
    """
    return "confirmed" if max(few, many) < 0.6 else "refuted" if min(few, many) > 0.6 else "depends"


@experiment(
    "efficiency.mixed_precision",
    claim="Training with half-precision numbers nearly halves memory requirements.",
    source=Source(
        "Micikevicius et al. 2018",
        "Mixed Precision Training",
        "https://arxiv.org/abs/1710.03740",
        place="abstract",
        quote="This nearly halves memory requirements and, on recent GPUs, speeds up arithmetic.",
    ),
    control="The same model, batch and optimizer (AdamW) in float32, with 128 tokens and with 16,384. The verdict is "
    "on the authors' recipe, 16-bit weights with a float32 copy; autocast is measured as well.",
    verdict=mixed_verdict,
)
def mixed_precision() -> Measurement:
    """Measure the bytes of a step, and those that do not depend on the batch: three recipes, few rows and many."""
    totals, fixed = {}, {}
    for recipe in RECIPES:
        bills = [training_bytes(recipe, rows) for rows in (2, 256)]
        totals[recipe] = [sum(bill.values()) for bill in bills]
        fixed[recipe] = sum(bytes for item, bytes in bills[0].items() if item != "activations")
    whole, auto, half = (totals[recipe] for recipe in RECIPES)
    ratios = tuple(other / all for one in (auto, half) for other, all in zip(one, whole))
    return Measurement(
        measured=f"half precision reduces the memory of a training step to {ratios[2]:.1f} of the float32 memory with "
        f"128 tokens, and to {ratios[3]:.1f} with 16,384",
        rows=(
            ("memory, as a fraction of float32", "without activations", "with 128 tokens", "with 16,384 tokens"),
            *(
                (recipe, *(f"{ratio:.1f}" for ratio in (fixed[recipe] / fixed["float32"], *both)))
                for recipe, both in zip(RECIPES[1:], (ratios[:2], ratios[2:]))
            ),
        ),
        values=ratios,
        figures={"few": round(ratios[2], 3), "many": round(ratios[3], 3)},
        because="It depends on the number of tokens in the batch. The 16 bytes per parameter remain, because the "
        "master copy takes up what 16-bit weights save. Only the activations shrink, so many tokens are needed.",
    )


PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def cached_equals_whole(seed: int, dtype: torch.dtype = torch.float32, T: int = 48) -> float:
    """Return the largest difference of the logits, relative to their size, between token by token with a cache and all
    at once.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(vocab_size=50, d_model=32, n_heads=4, n_kv_heads=2, n_layers=3, max_seq_len=T)
    model, ids = DecoderOnly(config).to(dtype), torch.randint(50, (2, T))
    with evaluating(model):
        whole, cache = model(ids), model.new_cache()
        steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(T)], dim=1)
    return ((steps - whole).abs().max() / whole.abs().max()).item()


def changed_by_cache(seed: int, dtype: torch.dtype, n_stories: int = 40) -> tuple[int, int]:
    """Return (positions of held-out stories at which the cache changes the most probable token, all positions), for the
    Tinytown model.
    """
    model, tokenizer = load_pretrained("tinytown")
    rows = [torch.tensor(tokenizer.encode(story)[:-1]) for story in Tinytown(HELD_OUT_SEED + seed).sample(n_stories)]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad_id)  # (B, T)
    with evaluating(model.to(dtype)):
        whole, cache = model(ids), model.new_cache()
        steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(ids.shape[1])], dim=1)
    real = ids != tokenizer.pad_id  # (B, T)
    changed = (steps.argmax(dim=-1) != whole.argmax(dim=-1)) & real
    return int(changed.sum()), int(real.sum())


def cache_equal_verdict(double: float, single: float, bfloat16: float, float16: float) -> str:
    """Count the fraction of positions at which the cache changes the most probable token, in three formats. In
    addition, take the largest difference of a logit in float64, relative to the largest logit.

    confirmed: nowhere in float32, and at more than 1 position in 200 in both 16-bit formats
    depends: nowhere in float32, and at more than 1 position in 200 in only one of the 16-bit formats
    refuted: somewhere in float32, or at fewer in both 16-bit formats, or by more than 1e-12 in float64, which is more
        than rounding
    """
    seen = [fraction > 1 / 200 for fraction in (bfloat16, float16)]
    if double > 1e-12 or single > 0 or not any(seen):
        return "refuted"
    return "confirmed" if all(seen) else "depends"


@experiment(
    "efficiency.cache_equal",
    claim="Using a KV cache changes the logits: hardly at all in float32, but not negligibly in 16 bits.",
    source=Source(
        "Gante 2023",
        "Possible Bug with KV Caching in Llama (original) model",
        "https://github.com/huggingface/transformers/issues/25420",
        place="comment of 23 October 2023 in an issue of transformers",
        quote="Using KV caches (and, in some models, left-padding) do change the logits. This happens in most, if not "
        "all models at all precisions, but it is almost imperceptible in FP32. With 16 bits (especially in the format "
        "the model was NOT meant to be used at inference time, such as bfloat16 for Llama), the difference becomes "
        "non-negligible. … The effect is more visible when do_sample=True, as greedy decoding often selects the same "
        "token despite the differences.",
    ),
    control="The same weights, and all tokens read at once without a cache; and the same in float64 with an untrained "
    "model, where rounding would almost vanish and an approximation would not.",
    verdict=cache_equal_verdict,
    seeds=SEEDS,
)
def cache_equal() -> Measurement:
    """Count the changed choices of the Tinytown model in three formats, and measure an untrained model's logits in
    four.
    """
    below = [math.ceil(math.log10(max(cached_equals_whole(seed, dtype) for seed in SEEDS))) for dtype in PRECISIONS]
    found = [[changed_by_cache(seed, dtype) for seed in SEEDS] for dtype in PRECISIONS[1:]]
    single, bfloat16, float16 = (sum(changed for changed, _ in each) / sum(n for _, n in each) for each in found)
    # The exact number of these rare changes in float16 depends on the processor; an upper limit does not.
    bound = next(each for each in (0.5, 1, 2, 5, 100) if 100 * float16 < each)
    return Measurement(
        measured=f"the cache changes the most probable token at about {100 * bfloat16:.1g}% of the positions in "
        f"bfloat16 and at fewer than {bound}% in float16",
        rows=(
            ("what the cache changes", "most probable token", "a logit, relative to the largest"),
            *(
                (str(dtype)[6:], changed, f"below 10^{power}")
                for dtype, changed, power in zip(
                    PRECISIONS, ("–", f"{single:.0%}", f"{100 * bfloat16:.1g}%", f"below {bound}%"), below
                )
            ),
        ),
        values=tuple(changed / n for changed, n in found[1]),
        figures={"double": 10.0 ** below[0], "single": single, "bfloat16": bfloat16, "float16": float16},
        because="It depends on the 16-bit format: bfloat16 keeps 8 binary digits of a number, float16 keeps 11. The "
        "cache approximates nothing, but a computer may add up one row and many rows in different orders, and so round "
        "differently.",
    )


# -------------------------------------------------------------------------------------------------------------- timed
def slope(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the exponent p of seconds ≈ c · length^p: the slope of the straight line through the logarithms, by least
    squares.
    """
    x, y = [math.log(length) for length in lengths], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)


def exponent_verdict(kernel: float, short: float, layer: float) -> str:
    """Fit time ≈ c · length^power, and take the mean over the seeds: for the fused kernel from 512 to 2,048 tokens, for
    the same from 64 to 256, and for a full self-attention layer from 512 to 2,048.

    confirmed: all three powers are above 1.7
    depends: some of them are
    refuted: none is
    """
    quadratic = [power > 1.7 for power in (kernel, short, layer)]
    return "confirmed" if all(quadratic) else "depends" if any(quadratic) else "refuted"


@experiment(
    "efficiency.time_exponent",
    claim="The time of self-attention is quadratic in sequence length.",
    source=Source(
        "Dao et al. 2022",
        "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
        "https://arxiv.org/abs/2205.14135",
        place="abstract",
        quote="Transformers are slow and memory-hungry on long sequences, since the time and memory complexity of "
        "self-attention are quadratic in sequence length.",
    ),
    control="A linear layer on the same lengths, timed alternately; its exponent should be 1. The whole layer has "
    "d_model = 512, eight heads and four linear layers.",
    verdict=exponent_verdict,
    seeds=SEEDS,
    timed=True,
)
def time_exponent() -> Measurement:
    """Measure the exponent of the fused kernel for long and short texts, of a full layer, and of one linear layer."""
    long, short, exponents = (512, 1024, 2048), (64, 128, 256), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        queries = {T: torch.randn(1, 2, T, 64) for T in (*long, *short)}
        inputs = {T: torch.randn(1, T, 512) for T in long}
        linear, layer = nn.Linear(512, 512), MultiHeadAttention(512, 8)
        runs: list[Callable[[], object]] = [partial(F.scaled_dot_product_attention, q, q, q) for q in queries.values()]
        with torch.no_grad():
            kernels = best_seconds(runs + [partial(linear, x) for x in inputs.values()], rounds=15)
            layers = best_seconds([partial(layer, x) for x in inputs.values()], rounds=5)
        exponents.append(
            (slope(long, kernels[:3]), slope(short, kernels[3:6]), slope(long, layers), slope(long, kernels[6:]))
        )
    kernel, brief, whole, one = (sum(column) / len(column) for column in zip(*exponents))
    return Measurement(
        measured=f"the time of the fused kernel grows with the length to the power {brief:.1f} up to 256 tokens, and "
        f"to the power {kernel:.1f} from 512 on",
        rows=(
            ("exponent of the length", "64 to 256 tokens", "512 to 2,048 tokens"),
            ("fused kernel", f"{brief:.1f}", f"{kernel:.1f}"),
            ("an attention layer, d_model = 512", "–", f"{whole:.1f}"),
            ("one linear layer", "–", f"{one:.1f}"),
        ),
        values=tuple(each[0] for each in exponents),
        figures={"kernel": round(kernel, 2), "short": round(brief, 2), "layer": round(whole, 2)},
        because="It depends on the length and on what is timed. The kernel compares every pair, so its time is "
        "quadratic in long texts. The attention layer also has four linear layers. They have as many FLOPs as the "
        "pairs at 1,024 tokens.",
    )


def seconds_of_last_token(model: DecoderOnly, T: int) -> tuple[float, float]:
    """Return the time of a text's token number T, with all earlier ones in the cache, and if everything is read
    again."""
    ids = torch.randint(model.config.vocab_size, (1, T))

    def filled():
        cache = model.new_cache()
        model(ids[:, :-1], cache=cache)
        return cache

    with evaluating(model):
        caches = iter([filled() for _ in range(8)])
        cached, whole = best_seconds([lambda: model(ids[:, -1:], cache=next(caches)), lambda: model(ids)])
    return cached, whole


def cache_time_verdict(cached: Sequence[float], whole: Sequence[float]) -> str:
    """Fit cost ≈ c · length^p of one new token: timed from 32 to 512 tokens, counted from 100 to 200 times d_model.

    confirmed: for short and long texts, p is above 1.5 without the cache and between 0.5 and 1.5 with it
    refuted: p is above 1.5 with the cache, for short or long texts
    depends: anything else, such as an exponent of 0 with the cache for short texts
    """
    if max(cached) > 1.5:
        return "refuted"
    return "confirmed" if min(whole) > 1.5 and min(cached) > 0.5 else "depends"


@experiment(
    "efficiency.cache_time",
    claim="Reduces per-token inference to O(seq len) instead of quadratic",
    source=Source(
        "Roy Gosthipaty et al. 2025",
        "KV Cache from scratch in nanoVLM",
        "https://huggingface.co/blog/kv-cache",
        place="“Summary: Why KV Caching Matters”, of the key-value cache",
        quote="Reduces per-token inference to O(seq len) instead of quadratic",
    ),
    control="The same model and text without the cache; and the operations of both, counted, for texts so long that "
    "pairs dominate.",
    verdict=cache_time_verdict,
    seeds=SEEDS,
    timed=True,
)
def cache_time() -> Measurement:
    """Measure the exponents of one token's cost, with and without the cache: timed for short texts, counted for long
    ones.
    """
    sizes: dict[str, Any] = {"vocab_size": 100, "d_model": 128, "n_heads": 4, "n_layers": 2}
    timed, lengths = [], (32, 512)
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = DecoderOnly(TransformerConfig(**sizes, max_seq_len=512))
        timed.append([slope(lengths, both) for both in zip(*(seconds_of_last_token(model, T) for T in lengths))])
    cached, whole = (sum(column) / len(column) for column in zip(*timed))
    long = (12_800, 25_600)
    config = TransformerConfig(**sizes, max_seq_len=long[-1])
    counted_whole = slope(long, [forward_flops(config, T) for T in long])
    counted_cached = slope(long, [forward_flops(config, 1, cached=T - 1) for T in long])
    short_whole = slope(lengths, [forward_flops(config, T) for T in lengths])
    short_cached = slope(lengths, [forward_flops(config, 1, cached=T - 1) for T in lengths])
    return Measurement(
        measured=f"with the cache, the operations of one more token grow with the length to the power "
        f"{short_cached:.1f} up to 512 tokens, and to the power {counted_cached:.1f} from 12,800 on",
        rows=(
            ("exponent of the length", "32 to 512 tokens", "12,800 to 25,600 tokens"),
            ("time, with the cache", f"{cached:.1f}", "–"),
            ("time, without the cache", f"{whole:.1f}", "–"),
            ("operations, with the cache", f"{short_cached:.1f}", f"{counted_cached:.1f}"),
            ("operations, without the cache", f"{short_whole:.1f}", f"{counted_whole:.1f}"),
        ),
        values=tuple(with_cache for with_cache, _ in timed),
        figures={
            "cached": (round(cached, 2), round(counted_cached, 2)),
            "whole": (round(whole, 2), round(counted_whole, 2)),
        },
        because="It depends on the length of the text. Below 6 · d_model, here 768 tokens, the linear layers dominate: "
        "the cost is nearly linear without the cache and flat with it. Far above, it is quadratic without the cache "
        "and linear with it.",
    )


def _there_and_back(layer: nn.Module, x: Tensor, **options) -> None:
    """Run a layer forward and backward."""
    y = layer(x, **options)
    (y[0] if isinstance(y, tuple) else y).sum().backward()


def rnn_verdict(operations: Sequence[float], times: Sequence[float]) -> str:
    """Divide the operations and the time of attention by those of recurrent layers, for texts shorter than the width.

    confirmed: attention needs fewer operations and less time than both recurrent layers, at both widths
    refuted: attention needs more operations and more time than both recurrent layers, at both widths
    depends: anything else, such as fewer operations than only one of the layers
    """
    ratios = [*operations, *times]
    return "confirmed" if max(ratios) < 1 else "refuted" if min(ratios) > 1 else "depends"


WIDTHS = (64, 256)


@experiment(
    "efficiency.rnn",
    claim="In terms of computational complexity, self-attention layers are faster than recurrent layers when the "
    "sequence length n is smaller than the representation dimensionality d",
    source=Source(
        "Vaswani et al. 2017",
        "Attention Is All You Need",
        "https://arxiv.org/abs/1706.03762",
        place="§ 4",
        quote="In terms of computational complexity, self-attention layers are faster than recurrent layers when the "
        "sequence length n is smaller than the representation dimensionality d, which is most often the case with "
        "sentence representations used by state-of-the-art models in machine translations, such as word-piece and "
        "byte-pair representations.",
    ),
    control="Equal width and batch. Operations are counted, the linear layers of attention included. Times are for a "
    "forward and a backward pass, taken alternately, on one core: a plain recurrent layer and an LSTM, widths 64 and "
    "256, texts half as long as the layer is wide; and a text of 1,024 tokens at width 64.",
    verdict=rnn_verdict,
    seeds=SEEDS,
    timed=True,
)
def rnn() -> Measurement:
    """Measure attention's operations and time as fractions of each recurrent layer's, in short and in long texts."""
    times: dict[tuple[int, int], list[list[float]]] = {}
    for width, T in [(width, width // 2) for width in WIDTHS] + [(WIDTHS[0], 1024)]:
        for seed in SEEDS:
            torch.manual_seed(seed)
            x = torch.randn(2, T, width)
            layers = (
                MultiHeadAttention(width, 4),
                nn.RNN(width, width, batch_first=True),
                nn.LSTM(width, width, batch_first=True),
            )
            options: tuple[dict[str, bool], ...] = {"is_causal": True}, {}, {}
            runs = [partial(_there_and_back, layer, x, **own) for layer, own in zip(layers, options)]
            attended, *recurred = best_seconds(runs, rounds=5)
            times.setdefault((width, T), []).append([attended / seconds for seconds in recurred])
    plain, lstm = zip(*([sum(column) / len(SEEDS) for column in zip(*seeds)] for seeds in times.values()))
    # Operations per token: attention 8 d² + 4 T d, a plain layer 4 d², an LSTM 16 d²; here T = d / 2.
    operations = ((8 + 4 / 2) / 4, (8 + 4 / 2) / 16)
    return Measurement(
        measured=f"in a text half as long as the width, attention takes {operations[0]:.1f} times the operations of a "
        f"plain recurrent layer, but {plain[0]:.1f} times its time at width {WIDTHS[0]}",
        rows=(
            ("attention, divided by …", "a plain recurrent layer", "an LSTM"),
            ("operations, T = width / 2", *(f"{ratio:.1f}" for ratio in operations)),
            *(
                (f"time, width {width}, T = {T:,}", f"{one:.1f}", f"{other:.1f}")
                for (width, T), one, other in zip(times, plain, lstm)
            ),
        ),
        values=tuple(seed[0] for seed in times[WIDTHS[0], WIDTHS[0] // 2]),
        figures={"operations": operations, "times": tuple(round(each, 2) for each in (*plain[:2], *lstm[:2]))},
        because="It depends on what is counted. In texts shorter than the width, attention needs more operations than "
        "a plain recurrent layer and fewer than an LSTM. The time also depends on how PyTorch runs each layer.",
    )
