# NaN wherever a number may stand: a comparison with NaN is never true, and neither is its opposite.
# expects: attention.softmax attention.score_variance sampling.temperature training.cross_entropy training.learning_rate positions.equivariance efficiency.quadratic normalization.speed attention.memory feed_forward.parameters sampling.nucleus_size positions.wavelength training.clip
# %%
import torch

nan = float("nan")
attention_memory = positions_wavelength = nan
feed_forward_parameters = {"ffn": nan, "ratio": nan}
sampling_nucleus_size = {"confident": nan, "uncertain": nan}


def softmax(x, dim):
    return x * nan


def score_variance(d_k, n_pairs):
    return nan, nan


def temperature_softmax(logits, temperature):
    return logits * nan


def cross_entropy(logits, targets, ignore_index=-100):
    return logits.sum() * nan


def learning_rate(step, peak, warmup, total, floor):
    return nan


def equivariance_error(f, x, n_shuffles):
    for _ in range(n_shuffles + 1):
        f(x)
    return nan


def time_exponent(attention, lengths, rounds, clock):
    for _ in range(rounds):
        for T in lengths:
            attention(torch.zeros(1, T, 4))
            clock()
    return nan


def compare_speed(rms_norm, layer_norm, widths, rounds, clock):
    for _ in range(rounds):
        for width in widths:
            rms_norm(torch.zeros(1, width))
            layer_norm(torch.zeros(1, width))
            clock()
    return [nan] * len(widths)


def clip_gradients(parameters, max_norm):
    return torch.tensor(nan)
