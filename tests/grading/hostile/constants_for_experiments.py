# What theory or the chapter says, typed in where something should be measured.
# expects: positions.equivariance efficiency.quadratic normalization.speed training.overfit sampling.compare attention.saturation
# %%
import math


def equivariance_error(f, x, n_shuffles):
    return 0.0


def time_exponent(attention, lengths, rounds, clock):
    attention(__import__("torch").zeros(1, max(lengths), 4))
    clock()
    return 2.0


def compare_speed(rms_norm, layer_norm, widths, rounds, clock):
    return [1.5] * len(widths)


def attention_entropy(scores, d_k, scaled):
    return math.log(scores.shape[-1]) if scaled else 0.0


def overfit(model, ids, targets, steps):
    return [3.2 * 0.95**step for step in range(steps)]


def compare_temperatures(model, ids, n_tokens, temperatures, generator):
    return [1.0] * len(temperatures), [0.5] * len(temperatures)
