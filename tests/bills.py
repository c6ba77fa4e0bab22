"""What the tests of chapter 10's figures share: models that can be built, and what is drawn."""

import itertools
from dataclasses import replace

import numpy as np
import torch
from matplotlib.patches import Rectangle
from sliders import values

from course_lib.chapters.counting import figures
from course_lib.chapters.counting import widgets as widgets
from course_lib.config import PRESETS, TransformerConfig
from course_lib.gpt import DecoderOnly

SMALL = TransformerConfig(vocab_size=50, d_model=24, n_heads=4, n_layers=3, d_ff=40, max_seq_len=16)


BUILDABLE = [
    SMALL,
    replace(SMALL, tie_weights=False, vocab_size=7),
    replace(SMALL, bias=False, positions="sinusoidal"),
    PRESETS["gpt2"],
]


COMPONENT_OF = {
    "norm": "norms",
    "token_embedding": "token embedding",
    "positions": "position embedding",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "output": "output head",
}


def built_components(config):
    """Parameters by component of the model that is really built, on the meta device; and all of them."""
    with torch.device("meta"):
        model = DecoderOnly(config)
    counts = dict.fromkeys(figures.COLOURS, 0)
    for name, parameter in model.named_parameters():
        counts[next(component for word, component in COMPONENT_OF.items() if word in name)] += parameter.numel()
    return counts, sum(parameter.numel() for parameter in model.parameters())


def contents(figure):
    """What the artists of a figure show, so that two figures can be compared."""
    shown = []
    for axes in figure.axes:
        shown += [(t.get_text(), t.get_visible(), *np.round(t.get_position(), 9)) for t in axes.findobj(is_text)]
        shown += [
            (round(p.get_x(), 9), round(p.get_width(), 9), p.get_facecolor())
            for p in axes.patches
            if isinstance(p, Rectangle)
        ]
        shown += [(line.get_visible(), *np.round(np.asarray(line.get_xydata()).ravel(), 9)) for line in axes.lines]
    return shown


def is_text(artist):
    return hasattr(artist, "get_text")


def states_of(figure):
    """The whole range of each control with the others at their defaults, then every combination of extremes."""
    controls = figure._controls
    for name, control in controls.items():
        for value in values(control):
            yield {name: value}
    ends = [[stops[0], stops[-1]] for stops in map(values, controls.values())]
    corners = list(itertools.product(*ends))
    yield from (dict(zip(controls, corner)) for corner in corners[:: max(1, len(corners) // 64)])


def overlapping_or_outside(figure):
    """Texts that leave the picture at a side, and pairs of texts that overlap."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = []
    for axes in figure.axes:
        ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()] if axes.axison else []
        titles = [axes.title, axes._left_title, *([axes.xaxis.label, axes.yaxis.label] if axes.axison else [])]
        texts = [text for text in [*axes.texts, *titles, *ticks] if text.get_visible() and text.get_text()]
        boxes += [(text.get_text(), text.get_window_extent(renderer).padded(-1)) for text in texts]
    outside = [text for text, box in boxes if box.x0 < 0 or box.x1 > figure.bbox.x1 or box.y0 < 0]
    return outside + [(a, b) for (a, one), (b, two) in itertools.combinations(boxes, 2) if one.overlaps(two)]
