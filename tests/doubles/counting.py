"""Answers with two mistakes of the page at once, chapter 10."""


def same_heads_and_no_last_norm(config):
    D = config.d_model
    has_bias = int(config.bias)
    embeddings = config.vocab_size * D
    if config.positions == "learned":
        embeddings += config.max_seq_len * D
    if not config.tie_weights:
        embeddings += config.vocab_size * D

    attn = 4 * (D * D + has_bias * D)
    if config.activation == "swiglu":
        mlp = 3 * D * config.d_ff + has_bias * (2 * config.d_ff + D)
    else:
        mlp = 2 * D * config.d_ff + has_bias * (config.d_ff + D)
    norm_size = D if config.norm == "rms" or not config.bias else 2 * D
    return embeddings + config.n_layers * (attn + mlp + 2 * norm_size)


def always_positions_and_no_gate(config):
    def linear(n_in, n_out):
        return n_in * n_out + (n_out if config.bias else 0)

    width = config.d_model
    kv_width = config.d_head * config.n_kv_heads
    norm = width * (2 if config.bias and config.norm == "layer" else 1)
    params = 0
    params += config.vocab_size * width  # wte
    params += config.max_seq_len * width  # wpe
    for _ in range(config.n_layers):
        params += norm + linear(width, width) + 2 * linear(width, kv_width) + linear(width, width)
        params += norm + linear(width, config.d_ff) + linear(config.d_ff, width)
    params += norm
    return params if config.tie_weights else params + config.vocab_size * width


def rms_bias_and_head_bias(config):
    e, v, f = config.d_model, config.vocab_size, config.d_ff
    kv = config.n_kv_heads * config.d_head
    sizes = [(e, e), (e, kv), (e, kv), (e, e), (e, f), (f, e)]
    if config.activation == "swiglu":
        sizes.append((e, f))
    weights = sum(rows * cols for rows, cols in sizes)
    biases = sum(cols for _, cols in sizes)
    gains = 2 * e
    if config.bias:
        weights += biases
        gains *= 2
    total = config.n_layers * (weights + gains) + gains // 2 + v * e
    if config.positions == "learned":
        total += config.max_seq_len * e
    if not config.tie_weights:
        total += v * e + (v if config.bias else 0)
    return total


def kept_and_one_flop(n_params, n_tokens):
    forward = n_params * n_tokens
    backward = 2 * n_params * n_tokens
    return forward + backward


def kept_and_one_token(n_params, n_tokens):
    per_weight = 2 + 4
    return per_weight * n_params


def kept_and_added(n_params, n_tokens):
    return 6 * (n_params + n_tokens)


def wide_moments_no_master(n_params, mixed_precision=False):
    if mixed_precision:
        bytes_each = {"weights": 2, "gradients": 2, "m": 4, "v": 4}
    else:
        bytes_each = {"weights": 4, "gradients": 4, "m": 4, "v": 4}
    return sum(bytes_each.values()) * n_params


def momentum_and_master_for_weights(n_params, mixed_precision=False):
    weight_bytes = 4  # in mixed precision this is the master copy
    grad_bytes = 2 if mixed_precision else 4
    optimizer_bytes = 1
    return n_params * (weight_bytes + grad_bytes + optimizer_bytes)


def no_gradients_in_gigabytes(n_params, mixed_precision=False):
    model = n_params * 16 // 8 if mixed_precision else n_params * 32 // 8
    adam = 2 * n_params * 8 // 8
    master = n_params * 32 // 8 if mixed_precision else 0
    return (model + adam + master) / 1024**3


DOUBLES = {
    "counting.function": [
        (same_heads_and_no_last_norm, ("n_kv_heads ignored", "final norm forgotten")),
        (always_positions_and_no_gate, ("a table for every scheme", "SwiGLU with two matrices")),
        (rms_bias_and_head_bias, ("RMSNorm with a bias", "head with a bias")),
    ],
    "counting.flops": [
        (kept_and_one_flop, ("nothing recomputed", "half of it")),
        (kept_and_one_token, ("nothing recomputed", "tokens forgotten")),
        (kept_and_added, ("nothing recomputed", "sum for product")),
    ],
    "counting.memory": [
        (wide_moments_no_master, ("moments in 32 bits", "no master copy")),
        (momentum_and_master_for_weights, ("one moment", "16-bit weights forgotten")),
        (no_gradients_in_gigabytes, ("gradients forgotten", "gigabytes")),
    ],
}
