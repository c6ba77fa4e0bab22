import time

import torch

from course_lib.chapters.normalization.fixtures import pretend_clock, pretend_norm
from course_lib.chapters.normalization.fixtures import timed_with as probe
from course_lib.grading.exercise import Case, Given, generator, stage


def layer_norm(x, gamma, beta, eps):
    """Return (x − mean) / √(variance + eps) · gamma + beta for each token.
    x: (..., d_model); the result has the same shape and dtype."""
    centred = x - x.mean(dim=-1, keepdim=True)  # (..., d_model)
    variance = centred.pow(2).mean(dim=-1, keepdim=True)  # (..., 1), divided by d_model
    return centred / torch.sqrt(variance + eps) * gamma + beta


def compare_speed(rms_norm, layer_norm, widths, rounds, clock):
    """Return the time of rms_norm divided by the time of layer_norm for each width,
    measured with clock() in `rounds` rounds."""
    ratios = []
    for width in widths:
        x = torch.randn(128, width)
        times = {"rms": [], "layer": []}
        for _ in range(rounds):  # they take turns: a slow period affects both equally
            for name, norm in (("rms", rms_norm), ("layer", layer_norm)):
                start = clock()
                norm(x)
                times[name].append(clock() - start)
        ratios.append(min(times["rms"]) / min(times["layer"]))  # interruptions only add time
    return ratios


@stage
def pretended(seed):
    "A clock and two norms with random costs, three widths, 30 rounds. Some calls are slow, and the machine slows down."
    rng = generator(seed)
    one, other = torch.rand(2, 2, generator=rng)
    costs = [(3 + 5 * one[0], 0.004 + 0.004 * one[1]), (1 + 1.5 * other[0], 0.009 + 0.006 * other[1])]
    makers = [
        Given(pretend_norm, a, b, stumbles, says=f"a function that takes {a:.1f} + {b:.4f} · width microseconds")
        for (a, b), stumbles in zip([(float(a), float(b)) for a, b in costs], (seed % 3 == 0, seed % 3 != 0))
    ]
    makers, order = (makers[::-1], [64, 256, 1024]) if seed % 2 else (makers, [1024, 64, 256])
    return [Case(*makers, order, 30, Given(pretend_clock, says="a function: the time in seconds"))]
