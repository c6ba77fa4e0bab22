import time

import torch


def layer_norm(x, gamma, beta, eps):
    centred = x - x.mean(-1, keepdim=True)  # (..., d_model)
    variance = centred.pow(2).mean(-1, keepdim=True)  # (..., 1)
    return centred / torch.sqrt(variance + eps) * gamma + beta


def compare_speed(rms_norm, layer_norm, widths, rounds, clock):
    ratios = []
    for width in widths:
        x = torch.randn(128, width)
        rms, layer = [], []
        for _ in range(rounds):
            for norm, times in ((rms_norm, rms), (layer_norm, layer)):
                start = clock()
                norm(x)
                times.append(clock() - start)
        ratios.append(min(rms) / min(layer))
    return ratios


def in_turns(rms_norm, layer_norm, x, rounds, clock):
    """The times of both, as the reference takes them."""
    pairs = [(stopped(rms_norm, x, clock), stopped(layer_norm, x, clock)) for _ in range(rounds)]
    return tuple(zip(*pairs))


def one_after_the_other(rms_norm, layer_norm, x, rounds, clock):
    return tuple([stopped(norm, x, clock) for _ in range(rounds)] for norm in (rms_norm, layer_norm))


def stopped(norm, x, clock):
    start = clock()
    norm(x)
    return clock() - start


def compare_speed_with(
    rms_norm,
    layer_norm,
    widths,
    rounds,
    clock,
    *,
    take=in_turns,
    sum_up=min,
    relate=lambda rms, layer: rms / layer,
    hand_in=lambda ratios: ratios,
):
    ratios = []
    for width in widths:
        rms, layer = take(rms_norm, layer_norm, torch.randn(128, width), rounds, clock)
        ratios.append(relate(sum_up(rms), sum_up(layer)))
    return hand_in(ratios)


def without_the_clock(rms_norm, layer_norm, widths, rounds, clock):
    return compare_speed(rms_norm, layer_norm, widths, rounds, time.perf_counter)
