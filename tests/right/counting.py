"""Right answers of chapter 10 in other styles."""

import torch

from course_lib.gpt import DecoderOnly


def count_by_building(config):
    """Builds the model without memory and counts; tied weights are one parameter."""
    with torch.device("meta"):
        model = DecoderOnly(config)
    return sum(parameter.numel() for parameter in model.parameters())


def count_by_shapes(config):
    """Every tensor of the model by its shape."""
    d, head = config.d_model, config.d_model // config.n_heads
    norm = [(d,)] * (2 if config.norm == "layer" and config.bias else 1)
    wide = [(config.d_ff, d)] * (2 if config.activation == "swiglu" else 1)
    block = [*norm, *norm, (d, d), (config.n_kv_heads * head, d), (config.n_kv_heads * head, d), (d, d)]
    block += [*wide, (d, config.d_ff)]
    if config.bias:
        block += [shape[:1] for shape in block if len(shape) == 2]
    shapes = [(config.vocab_size, d), *norm, *block * config.n_layers]
    shapes += [(config.max_seq_len, d)] * (config.positions == "learned")
    shapes += [(config.vocab_size, d)] * (not config.tie_weights)
    return sum(torch.Size(shape).numel() for shape in shapes)


def bytes_by_optimizer(n_params, mixed_precision=False):
    """The bytes of a single parameter, as AdamW itself keeps them but with moments of 8 bits, times their number."""
    master = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([master])
    master.sum().backward()
    optimizer.step()
    moments = sum(optimizer.state[master][name].nbytes for name in ("exp_avg", "exp_avg_sq")) // 4
    half = torch.ones(1, dtype=torch.bfloat16)
    kept = master.nbytes + (2 * half.nbytes if mixed_precision else master.grad.nbytes)
    return n_params * (kept + moments)


def bytes_by_table(n_params, mixed_precision=False):
    float32, mixed = [4, 4, 1, 1], [2, 2, 4, 1, 1]
    return sum(n_params * size for size in (mixed if mixed_precision else float32))


def always_ten(n_params, mixed_precision=False):
    return 10.0 * n_params


def flops_in_steps(n_params, n_tokens):
    forward = 2 * n_params
    return (2 * forward + 2 * forward) * n_tokens


def flops_in_floats(n_params, n_tokens):
    return 8e0 * n_tokens * n_params


RIGHT = {
    "counting.function": [count_by_shapes],
    "counting.memory": [bytes_by_optimizer, bytes_by_table, always_ten],
    "counting.flops": [flops_in_steps, flops_in_floats],
}
OF_THE_LIBRARY = {"counting.function": [count_by_building]}
