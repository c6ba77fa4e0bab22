"""Counting: a Transformer's parameters, memory and compute, calculated from its description without building it.

Chapter 10. Every count is a formula, so it works for a 7-billion-parameter model on any computer. The tests check that
the parameter counts equal those in real models exactly.
"""

from dataclasses import dataclass

from course_lib import checks
from course_lib.config import TransformerConfig, require_config
from course_lib.feed_forward import GATED
from course_lib.positions import BINS


@dataclass(frozen=True)
class Bill:
    """Hold a total and its items. `print(bill)` shows a table. Items of 0 stay, so that all tables have equal rows."""

    by_component: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.by_component.values())

    def __str__(self) -> str:
        rows = [*self.by_component.items(), ("total", self.total)]
        return "\n".join(f"{name:<20}{value:>20,}{value / max(self.total, 1):>9.1%}" for name, value in rows)


class ParameterCount(Bill):
    """Hold the number of parameters: .total, and .by_component with "token embedding", "position embedding", "segment
    embedding", "attention", "feed-forward", "norms" and "output head"."""


class MemoryCount(Bill):
    """Hold a number of bytes: .total and .by_component."""


def count_parameters(config: TransformerConfig, active: bool = False) -> ParameterCount:
    """Return the number of parameters of the model that config describes, by component.

    With active=True only those that one token uses: experts_per_token of the n_experts in a mixture of experts.

    Per block, with d = d_model and d_kv = n_kv_heads · d_head (d_kv = d without grouped heads):
        attention       2 d² + 2 d d_kv     + biases 2 d + 2 d_kv
        feed-forward    2 d d_ff            + biases d_ff + d          SwiGLU: 3 d d_ff + biases 2 d_ff + d
        norms           2 norms (with "both" 4) of 2 d (LayerNorm) or d (LayerNorm without bias, RMSNorm)
    Once: token embedding V d; learned positions max_seq_len d; the norm after the last block (none in post-norm), and
    that after the embeddings of a post-norm encoder such as BERT; the output head V d, or 0 if it shares the token
    embedding.

    An encoder has no output head. In an encoder-decoder both stacks share one token embedding, each has its own learned
    position table, and every decoder block has a second attention (to the encoder) with its norm.

    If head_dim is given, the width d_q = n_heads · head_dim replaces one d in W_Q and W_O. qkv_bias adds d_q + 2 d_kv,
    qk_norm 2 d_head ("all": d_q + d_kv) per self-attention, output_bias V, and relative positions 32 n_heads per stack.
    A mixture of experts has the router's d n_experts, and n_experts networks with d_expert instead of d_ff.
    """
    require_config(config)
    checks.require_switches(active=active)
    d, V = config.d_model, config.vocab_size
    d_q, d_kv = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
    bias = int(config.bias)
    qkv_biases = (config.bias or config.qkv_bias) * (d_q + 2 * d_kv)
    attention = 2 * d * d_q + 2 * d * d_kv + qkv_biases + bias * d
    feed_forward = _feed_forward(config, config.experts_per_token if active else config.n_experts, config.bias)
    norm = 2 * d if config.norm == "layer" and config.bias else d
    norms_inside = 4 if config.norm_position == "both" else 2
    qk_norms = {False: 0, True: 2 * config.d_head, "all": d_q + d_kv}[config.qk_norm]

    two_stacks = config.family == "encoder-decoder"
    stacks = 2 if two_stacks else 1
    blocks = stacks * config.n_layers
    cross_attentions = config.n_layers if two_stacks else 0
    # Post-norm adds a norm after an encoder's embeddings, the others add one after each stack's last block.
    norms_outside = int(config.family == "encoder") if config.norm_position == "post" else stacks

    positions = {"learned": config.max_seq_len * d, "relative": BINS * config.n_heads}.get(config.positions, 0)
    tied = config.tie_weights or config.family == "encoder"

    return ParameterCount(
        {
            "token embedding": V * d,
            "position embedding": stacks * positions,
            "segment embedding": config.n_segments * d,
            "attention": (blocks + cross_attentions) * attention + blocks * qk_norms,
            "feed-forward": blocks * feed_forward,
            "norms": (norms_inside * blocks + cross_attentions + norms_outside) * norm,
            "output head": (0 if tied else V * d) + config.output_bias * V,
        }
    )


def forward_flops(config: TransformerConfig, T: int, batch: int = 1, S: int | None = None, cached: int = 0) -> int:
    """Return the floating-point operations of one forward pass over `batch` sequences of T tokens.

    A matrix product (m, k) @ (k, n) counts as 2 m k n: m k n multiplications and m k n additions. Per token, a weight
    of a linear layer therefore costs 2, including the output head (tied or not). In attention each pair of a query and
    a key costs 4 n_heads · d_head, for Q Kᵀ and weights · V. All pairs are counted, although a causal kernel may skip
    the masked half; grouped heads save none of them. Look-ups, biases, softmax, norms and activations are not counted,
    because they are small in comparison.

    Args:
        S: number of source tokens in an encoder-decoder; T + cached unless given.
        cached: number of tokens in the cache. T=1 is then one generation step, whose query attends to cached + 1
            keys. The encoder, and the keys and values of its output, were computed before the first step.
    Divide by batch · T for the FLOPs per token; a training step costs three times the forward pass.
    Errors: ValueError for an S without a source, or a cache of an encoder.
    """
    require_config(config)
    checks.require_at_least_one(T=T, batch=batch)
    checks.require_count(cached=cached)
    if cached:
        _require_generating(config.family)
    S = _source_length(config, T + cached, S)
    d, d_q, d_kv = config.d_model, config.n_heads * config.d_head, config.n_kv_heads * config.d_head

    def attention(queries: int, keys: int, new_keys: int) -> int:
        return 4 * queries * d * d_q + 4 * new_keys * d * d_kv + 4 * queries * keys * d_q  # W_Q W_O, W_K W_V, pairs

    feed_forward = 2 * _feed_forward(config, config.experts_per_token, bias=False)  # per token
    layer = attention(T, T + cached, new_keys=T) + T * feed_forward
    if S and cached:
        layer += attention(T, S, new_keys=0)
    elif S:
        layer += attention(T, S, new_keys=S) + attention(S, S, new_keys=S) + S * feed_forward  # the encoder's layer too
    output_head = 0 if config.family == "encoder" else 2 * T * config.vocab_size * d
    return batch * (config.n_layers * layer + output_head)


def attention_matrix_bytes(config: TransformerConfig, T: int, batch: int = 1, bytes_per_element: int = 4) -> int:
    """Return the bytes of one layer's attention weights if they are stored: batch · n_heads · T² ·
    bytes_per_element.

    The result does not depend on d_model. A fused kernel never stores this matrix. float32 has 4 bytes, float16 has 2.
    """
    require_config(config)
    checks.require_at_least_one(T=T, batch=batch, bytes_per_element=bytes_per_element)
    return batch * config.n_heads * T * T * bytes_per_element


def kv_cache_bytes(
    config: TransformerConfig, T: int, batch: int = 1, bytes_per_element: int = 2, S: int | None = None
) -> int:
    """Return the bytes of the key-value cache after T tokens.

    2 · n_layers · batch · T · n_kv_heads · d_head · bytes_per_element: one key and one value per layer and token.
    An encoder-decoder also caches the S tokens of its source (S = T unless given): T + S instead of T.

    Errors: ValueError for an encoder, which does not generate, or for an S without a source.
    """
    require_config(config)
    checks.require_at_least_one(T=T, batch=batch, bytes_per_element=bytes_per_element)
    _require_generating(config.family)
    tokens = T + _source_length(config, T, S)
    return 2 * config.n_layers * batch * tokens * config.n_kv_heads * config.d_head * bytes_per_element


def inference_memory(config: TransformerConfig, T: int = 1, batch: int = 1, bytes_per_element: int = 2) -> MemoryCount:
    """Return the bytes needed to generate up to T tokens: the weights and the cache (none for an encoder).

    Activations are not counted: for one token they are small, and they are freed immediately.
    """
    require_config(config)
    checks.require_at_least_one(T=T, batch=batch, bytes_per_element=bytes_per_element)
    weights = count_parameters(config).total * bytes_per_element
    cache = 0 if config.family == "encoder" else kv_cache_bytes(config, T, batch, bytes_per_element)
    return MemoryCount({"weights": weights, "key-value cache": cache})


def training_memory(config: TransformerConfig, mixed_precision: bool = False) -> MemoryCount:
    """Return the bytes that AdamW training needs, whatever the batch size: 16 per parameter in all three recipes.

                        weights   gradients   moments   float32 master copy
    float32                4          4          8               0
    torch.autocast         4          4          8               0
    16-bit weights         2          2          8               4

    Both mixed-precision recipes compute in 16 bits and add the small updates to float32 numbers, where they are not
    rounded away. `torch.autocast` casts the weights in every step, and keeps the casts until the end of the backward
    pass: up to 2 more bytes per parameter. Neither recipe saves this memory; both save activation memory and time.
    Activations need additional memory: see activation_memory.

    Args:
        mixed_precision: False for float32 and `torch.autocast`, True for 16-bit weights with a float32 master copy.

    Source: Micikevicius et al. 2018, "Mixed Precision Training"; Rajbhandari et al. 2020 (ZeRO), section 3.1.
    """
    n = count_parameters(config).total
    checks.require_switches(mixed_precision=mixed_precision)
    names = ("weights", "gradients", "AdamW moments", "float32 master copy")
    bytes_each = (2, 2, 8, 4) if mixed_precision else (4, 4, 8, 0)
    return MemoryCount({name: count * n for name, count in zip(names, bytes_each)})


def activation_memory(config: TransformerConfig, T: int, batch: int = 1, bytes_per_element: int = 4) -> MemoryCount:
    """Return the bytes that the forward pass of a decoder keeps, because the backward pass needs them.

    Stored numbers per token and block, with d = d_model:
        norms           2 d         each norm's input; RMSNorm 4 d: also the input divided by its root mean square
        attention       5 d         its input; queries, keys and values (grouped ones are copied to every head, so
                                    they save nothing here); the output of the heads. RoPE 6 d: the output is stored
                                    head by head, and a second time token by token for W_O. If head_dim is given:
                                    d + 4 or 5 n_heads · head_dim
        feed-forward    d + n d_ff  its input; hidden units after the activation (ReLU, n = 1), before and after (GELU,
                                    n = 2), or gate, silu(gate), the gated units and the product (SwiGLU, n = 4)
    Once per token: the input d of the output head and V log-probabilities; one more norm in a pre-norm model.

    These numbers are for PyTorch's fused attention on a CPU. Unfused attention matrices, ALiBi's bias and dropout masks
    need additional memory. Means, standard deviations, sums of softmax and RoPE's cosines are small and not counted.

    Errors: ValueError unless family is "decoder", and for what the formula does not cover: qk_norm, a norm_position
        other than "pre" and "post", n_experts, or values of rope_theta that differ between blocks.
    Source: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.1.
    """
    require_config(config)
    checks.require_at_least_one(T=T, batch=batch, bytes_per_element=bytes_per_element)
    if config.family != "decoder":
        raise ValueError(f"the formula is for family='decoder', got {config.family!r}: give a decoder's config")
    _require_covered(config)
    d, blocks, d_q = config.d_model, config.n_layers, config.n_heads * config.d_head
    hidden = {"relu": 1, "swiglu": 4, "geglu": 4}.get(config.activation, 2) * config.d_ff
    norms = (2 * blocks + (config.norm_position == "pre")) * (2 if config.norm == "rms" else 1)
    per_token = {
        "norms": norms * d,
        "attention": blocks * (d + (5 if config.positions == "rope" else 4) * d_q),
        "feed-forward": blocks * (d + hidden),
        "output head": d + config.vocab_size,
    }
    return MemoryCount({name: batch * T * numbers * bytes_per_element for name, numbers in per_token.items()})


def _require_covered(config: TransformerConfig) -> None:
    """Raise ValueError for a config that the formula of activation_memory does not cover."""
    covered = {
        "qk_norm": (config.qk_norm is False, False),
        "norm_position": (config.norm_position in ("pre", "post"), "pre"),
        "n_experts": (config.n_experts is None, None),
        "rope_theta": (not isinstance(config.rope_theta, tuple), 10_000.0),
    }
    for field, (is_covered, instead) in covered.items():
        if not is_covered:
            given = f"the formula does not cover {field}={getattr(config, field)!r}"
            raise ValueError(f"{given}: give a config with {field}={instead!r}")


def training_flops(config: TransformerConfig, n_tokens: int, T: int | None = None, recomputed: bool = False) -> int:
    """Return the floating-point operations of training on n_tokens tokens, in rows of T (max_seq_len unless given).

    3 · forward_flops per token: the backward pass needs two matrix products for each one in the forward pass. With N
    weights in linear layers this is the well-known 6 · N per token (Kaplan et al. 2020, section 2.1), plus
    12 · n_layers · T · d_model for the pairs in attention. recomputed: with checkpoint_activations the forward pass
    runs twice, so 4 instead of 3. The extra FLOPs take time, but do not count in model FLOPs utilization (MFU).
    """
    require_config(config)
    checks.require_at_least_one(n_tokens=n_tokens)
    checks.require_switches(recomputed=recomputed)
    T = config.max_seq_len if T is None else T
    return (4 if recomputed else 3) * forward_flops(config, T) * n_tokens // T


def training_days(
    config: TransformerConfig,
    n_tokens: int,
    n_gpus: int,
    peak_flops: float,
    utilization: float,
    T: int | None = None,
    recomputed: bool = False,
) -> float:
    """Return the duration of training in days: training_flops / (n_gpus · peak_flops · utilization) / 86,400 s.

    Args:
        peak_flops: peak FLOP/s of one GPU according to its maker: 312e12 for an A100, 989e12 for an H100, in 16 bits.
        utilization: the fraction of it that is reached, in (0, 1]: 0.3 to 0.5 in published runs on thousands of GPUs.
            The rest is lost waiting for memory, for other GPUs, and for repairs after failures.
    Errors: ValueError for a size below 1 or a utilization outside (0, 1].
    Source: Narayanan et al. 2021, section 5.1; Chowdhery et al. 2022 (PaLM), section 4.1.
    """
    checks.require_at_least_one(n_gpus=n_gpus)
    checks.require_positive(peak_flops=peak_flops)
    checks.require_share(utilization=utilization)
    return training_flops(config, n_tokens, T, recomputed) / (n_gpus * peak_flops * utilization) / 86_400


def all_reduce_bytes(config: TransformerConfig, n_processes: int, bytes_per_element: int = 4) -> int:
    """Return the bytes that each process sends per update to average its gradients with the others' in a ring.

    2 (n − 1) / n · parameters · bytes_per_element: each part of the gradient travels around the ring once to be summed
    and a second time to reach every process. The traffic hardly grows with n: each of a thousand processes sends less
    than twice the model, so the time that the backward pass has to hide stays the same.
    Source: Patarasuk & Yuan 2009, section 3.
    """
    checks.require_at_least_one(n_processes=n_processes, bytes_per_element=bytes_per_element)
    return 2 * (n_processes - 1) * count_parameters(config).total * bytes_per_element // n_processes


def _feed_forward(config: TransformerConfig, n_experts: int | None, bias: bool) -> int:
    """Return the parameters of a block's feed-forward network: of one network, or of the router and n_experts."""
    d, width = config.d_model, config.d_ff if n_experts is None else config.d_expert
    ups = 2 if config.activation in GATED else 1  # SwiGLU has two up-projections: the gate and the gated units
    network = (ups + 1) * d * width + bias * (ups * width + d)
    return network if n_experts is None else d * config.n_experts + n_experts * network


def _source_length(config: TransformerConfig, T: int, S: int | None) -> int:
    """Return the number of source tokens: S, or T if S is None; 0 if there is no source."""
    if config.family == "encoder-decoder":
        S = T if S is None else S
        checks.require_at_least_one(S=S)
    elif S is not None:
        raise ValueError(f"S={S} is the length of a source, but family={config.family!r} has none: leave S out")
    return S or 0


def _require_generating(family: str) -> None:
    """Raise ValueError for a family that does not generate and therefore has no cache."""
    if family == "encoder":
        raise ValueError("family='encoder' does not generate, so it has no cache: use a decoder")
