"""Live figures of chapter 10."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets

from course_lib.chapters.counting import figures
from course_lib.chapters.counting.figures import exact, shown_as
from course_lib.config import ACTIVATIONS, NORMS, POSITIONS, PRESETS, TransformerConfig
from course_lib.counting import count_parameters, forward_flops
from course_lib.feed_forward import GATED
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import NARROW, LiveFigure, dropdown, slider
from course_lib.live.numbers import percent, short

DECODERS = {
    name: config
    for name, config in PRESETS.items()
    if config.family == "decoder" and config.norm_position == "pre" and config.n_experts is None
}


def steps(description: str, values, value) -> widgets.SelectionSlider:
    """Return a slider over given numbers, written with thousands separators."""
    options = [(f"{number:,}", number) for number in sorted(values)]
    return widgets.SelectionSlider(options=options, value=value, description=description)


def switch(description: str, value: bool) -> widgets.Checkbox:
    return widgets.Checkbox(value=value, description=description, indent=False)


# ----------------------------------------------------------------------------------------------------- one model, whole
OWN = "your own settings"
VOCABULARIES = (343, 1000, 5000, 10000, 30000, 50257, 100000, 128256, 256000)
WIDTHS = (64, 128, 256, 384, 512, 768, 1024, 1280, 1600, 2048, 3072, 4096, 5120, 8192, 12288)
CONTEXTS = (96, 512, 1024, 2048, 4096, 8192, 32768, 131072)
STYLES: dict[str, dict[str, Any]] = {
    "gpt": {"activation": "gelu", "norm": "layer", "positions": "learned", "bias": True},
    "llama": {"activation": "swiglu", "norm": "rms", "positions": "rope", "bias": False},
}


def style_of(config: TransformerConfig) -> str:
    """Return the style of STYLES that has the same count as this model."""
    return "llama" if config.activation in GATED else "gpt"


def settings(config: TransformerConfig) -> dict:
    """Return the values of the sliders of `parameter_bill` for a pre-norm decoder.

    Errors: ValueError for another family, for post-norm, or for parts of two styles, which these sliders cannot show.
    """
    if config.family != "decoder" or config.norm_position != "pre":
        raise ValueError(
            f"the sliders show pre-norm decoders, got {config.norm_position}-norm, family {config.family!r}"
        )
    if config.n_experts is not None:
        raise ValueError(f"the sliders show models without experts, got n_experts={config.n_experts}")
    style = style_of(config)
    for name, wanted in STYLES[style].items():
        if getattr(config, name) != wanted and name != "activation":
            raise ValueError(f"the sliders show GPTs and LLaMAs, got {name}={getattr(config, name)!r} in a {style}")
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "n_layers": config.n_layers,
        "ff_ratio": config.d_ff / config.d_model,
        "max_seq_len": config.max_seq_len,
        "group": config.n_heads // config.n_kv_heads,
        "style": style,
        "tie_weights": config.tie_weights,
    }


def config_of(d_model: int, ff_ratio: float, group: int, style: str, **fields) -> TransformerConfig:
    """Return the config for these sliders. Heads have 8 features, because their number changes no count."""
    n_heads = d_model // 8
    more: dict[str, Any] = STYLES[style] | fields
    return TransformerConfig(
        d_model=d_model, d_ff=round(ff_ratio * d_model), n_heads=n_heads, n_kv_heads=n_heads // group, **more
    )


class _Bill(LiveFigure):
    """Show a live figure with a list of models to start from, and its sliders in two columns."""

    def __init__(self, models: Mapping[str, TransformerConfig], start: str, draw, controls, describe):
        self._models, self._loading = models, False
        super().__init__(draw, controls, describe)
        self.model = dropdown("start from", [*models, OWN], start)
        self.model.style.description_width = "initial"
        self.model.layout.max_width = NARROW
        self.model.observe(self._load, names="value")
        columns = widgets.GridBox(
            list(self._controls.values()),
            layout=widgets.Layout(
                grid_template_columns="repeat(auto-fit, minmax(min(100%, 340px), 1fr))",  # one column on a phone
                grid_gap="0 16px",
                width="100%",
                max_width="840px",
            ),
        )
        for i, control in enumerate(self._controls.values()):
            control.layout.width = "auto"
            if not isinstance(control, widgets.Checkbox):  # the longest names of the two columns differ in length
                control.style.description_width = ("110px", "130px")[i % 2]
        self.children = [self.model, columns, *self._shown]

    def _load(self, change) -> None:
        if change.new == OWN:
            return
        self._loading = True  # one redraw for all sliders together
        try:
            for name, value in settings(self._models[change.new]).items():
                self._controls[name].value = value
        finally:
            self._loading = False
        super()._moved(change)

    def _moved(self, change) -> None:
        if not self._loading:
            self.model.value = OWN
            super()._moved(change)


def parameter_bill(models: Mapping[str, TransformerConfig] = DECODERS, start: str = "gpt2") -> LiveFigure:
    """Show sliders for a decoder's sizes, with its parameters by component, the memory to run and to train it, and the
    FLOPs of a token.

    Args:
        models: name -> config to start from, pre-norm decoders.
        start: the name of the first one to show.
    """
    known = [settings(config) for config in models.values()]
    first = settings(models[start])

    def with_models(values, field):
        return {*values, *(model[field] for model in known)}

    controls = {
        "vocab_size": steps("vocabulary", with_models(VOCABULARIES, "vocab_size"), first["vocab_size"]),
        "d_model": steps("d_model", with_models(WIDTHS, "d_model"), first["d_model"]),
        "n_layers": slider("layers", first["n_layers"], 1, 96, 1),
        "ff_ratio": slider("d_ff / d_model", first["ff_ratio"], 0.5, 8.0, 1 / 16),
        "max_seq_len": steps("context (tokens)", with_models(CONTEXTS, "max_seq_len"), first["max_seq_len"]),
        "group": steps("queries / KV head", (1, 2, 4, 8), first["group"]),
        "style": dropdown(
            "style",
            {"GPT: GELU, LayerNorm, biases, table": "gpt", "LLaMA: SwiGLU, RMSNorm, RoPE": "llama"},
            first["style"],
        ),
        "tie_weights": switch("the output head shares the token table", first["tie_weights"]),
    }

    def draw(**state):
        return figures.ParameterBill(config_of(**state))

    return _Bill(models, start, draw, controls, lambda **state: describe_bill(config_of(**state)))


def describe_bill(config: TransformerConfig) -> str:
    """Return the count in words: exact total, fractions, memory, FLOPs."""
    count = count_parameters(config)
    parts = count.by_component.items()
    items = [f"{shown_as(name)} {percent(value / count.total)}" for name, value in parts if value]
    rows = [sum(items.values()) for items in figures.memory_rows(config).values()]
    T = config.max_seq_len
    per_token = forward_flops(config, T) / T
    return (
        f"{count.total:,} parameters: {', '.join(items)}. Memory to run {short(rows[0], 'B')}, to train "
        f"{short(rows[1], 'B')}; a token costs {short(per_token, 'FLOP')}, in training {short(3 * per_token, 'FLOP')}."
    )


# ----------------------------------------------------------------------------------------- do embeddings hold the most?
def embedding_share() -> LiveFigure:
    """Show what fraction of a model its tables are, with sliders for vocabulary, layers and width."""
    controls = {
        "vocab_size": steps("vocabulary", VOCABULARIES, 30000),
        "n_layers": slider("layers", 6, 1, 96, 1),
        "d_model": steps("d_model", [width for width in WIDTHS if width <= figures.WIDTHS[-1]], 512),
        "tie_weights": switch("the output head shares the token table", True),
    }
    for control in controls.values():
        control.layout.width = "410px"  # two of them side by side
    return LiveFigure(figures.EmbeddingShare, controls, describe_share)


def describe_share(vocab_size: int, n_layers: int, d_model: int, tie_weights: bool) -> str:
    """Return the fractions in words, and the rule for where the tables stop being larger."""
    shares = figures.three_shares(count_parameters(figures.gpt_like(vocab_size, n_layers, d_model, tie_weights)))
    tables = 1 if tie_weights else 2
    crossing = tables * vocab_size / (8 * n_layers)
    items = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    size, bound = ("One table has V · d", "V / (8 L)") if tables == 1 else ("Two tables have 2 · V · d", "2 V / (8 L)")
    return (
        f"At d_model = {d_model:,}: {items}. {size} parameters, the feed-forward layers have 8 · L · d². "
        f"So the tables have more as long as d_model is below {bound}, here {crossing:,.0f}."
    )


# ---------------------------------------------------------------------------------------- name the model from its count
ASK = "…"


def name_the_model(models: Mapping[str, TransformerConfig]) -> LiveFigure:
    """Show a guessing game: parameter counts without a name, and a list of names.

    Args:
        models: name -> config. The order of the counts is always the same.
    """
    names = random.Random(10).sample(list(models), len(models))
    counts = {name: count_parameters(config) for name, config in models.items()}
    bill = slider("count no.", 1, 1, len(names), 1)
    guess = dropdown("which model?", [ASK, *models], ASK)

    def forget(_change):
        guess.value = ASK

    bill.observe(forget, names="value")

    def draw(bill, guess):
        name = names[bill - 1]
        title = f"Count {bill} of {len(names)}: which model is it?" if guess != name else f"Count {bill} is {name}"
        return figures.ItemisedBill(counts[name], title)

    def describe(bill, guess):
        name = names[bill - 1]
        if guess == ASK:
            items = _in_words(counts[name].by_component)
            return f"Count {bill}: {items}. Divide the token table by vocabularies that you know."
        if guess == name:
            return f"✓ Yes, {name}: {counts[name].total:,} parameters."
        return f"✗ Not {guess}: {_difference(guess, counts[guess].by_component, counts[name].by_component)}"

    return LiveFigure(draw, {"bill": bill, "guess": guess}, describe)


def _in_words(components: Mapping[str, int]) -> str:
    return ", ".join(f"{shown_as(name)} {value:,}" for name, value in components.items() if value)


def _difference(name: str, guessed: Mapping[str, int], bill: Mapping[str, int]) -> str:
    """Return the evidence against a guess: an item that only one of the two has, or else the one that differs most."""
    for item in bill:
        if bool(guessed[item]) != bool(bill[item]):
            has, lacks = (name, "this one") if guessed[item] else ("this one", name)
            return f"{has} has {guessed[item] or bill[item]:,} parameters in the {shown_as(item)}, {lacks} has none."
    present = [item for item in bill if bill[item]]
    item = max(present, key=lambda item: abs(math.log(guessed[item] / bill[item])))
    return f"{name} has {guessed[item]:,} parameters in {shown_as(item)}, this one has {bill[item]:,}."


# -------------------------------------------------------------------------------------------- the learner's own counter
def count_explorer(function: Callable) -> LiveFigure:
    """Show switches for a small decoder, the learner's count next to the correct one, and a part that is as large as
    the difference."""
    controls = {
        "n_layers": slider("layers", 2, 1, 6, 1),
        "n_kv_heads": steps("key-value heads, for 8 query heads", (1, 2, 4, 8), 8),
        "positions": dropdown("positions", [name for name in POSITIONS if name != "relative"], "learned"),
        "activation": dropdown("activation", [name for name in ACTIVATIONS if name != "silu"], "gelu"),
        "norm": dropdown("norm", NORMS, "layer"),
        "tie_weights": switch("tie_weights", True),
        "bias": switch("bias", True),
    }

    def look(**state):
        config = TransformerConfig(vocab_size=1000, d_model=64, n_heads=8, max_seq_len=128, d_ff=200, **state)
        return config, *_ask(function, config)

    def draw(**state):
        config, yours, problem = look(**state)
        count = count_parameters(config)
        title = f"The right count: {count.total:,}" if problem else _compared(count.total, yours)
        return figures.ItemisedBill(count, title, yours=yours)

    def describe(**state):
        config, yours, problem = look(**state)
        count = count_parameters(config)
        start = f"The right count is {count.total:,}."
        if problem:
            return f"{start} {problem}"
        difference = abs(yours - count.total)
        twins = [item for item, value in _pieces(config).items() if value == difference]
        clue = f" The difference is as large as {' or '.join(twins)}." if twins else ""
        return f"{start} {_compared(count.total, yours)}.{clue}"

    return LiveFigure(draw, controls, describe)


def _ask(function: Callable, config: TransformerConfig) -> tuple[int | float | None, str]:
    """Return (the learner's count, "") or (None, what happened instead)."""
    try:
        value = function(config)
    except Exception as error:
        return None, went_wrong(error)
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None, f"Your function should return a number; it returned a value of type {type(value).__name__}."
    if not math.isfinite(number):
        return None, f"Your function should return a whole number; it returned {number}."
    return (int(number) if number.is_integer() else number), ""


def _compared(right: int, yours: int | float) -> str:
    if yours == right:
        return f"Your count is right: {right:,}"
    return f"Your count of {exact(yours)} is {exact(abs(yours - right))} too {'low' if yours < right else 'high'}"


def _pieces(config: TransformerConfig) -> dict[str, int]:
    """Return the parts that are easily forgotten or counted twice, with their sizes."""
    d, d_kv = config.d_model, config.n_kv_heads * config.d_head
    table = config.vocab_size * d
    pieces = {
        "the token table": table,
        "the position table": config.max_seq_len * d,
        "all attention layers": count_parameters(config).by_component["attention"],
        "all feed-forward layers": count_parameters(config).by_component["feed-forward"],
        "one vector of d_model": d,
        "one norm with gain and bias": 2 * d,
        "one vector of d_model per norm": (2 * config.n_layers + 1) * d,
        "one matrix of d_model × d_model per block": config.n_layers * d * d,
        "one matrix of d_model × d_ff per block": config.n_layers * d * config.d_ff,
        "the attention biases": config.n_layers * (2 * d + 2 * d_kv),
        "the feed-forward biases": config.n_layers * (config.d_ff + d),
    }
    return {item: size for item, size in pieces.items() if size}


EXPLORERS = {"counting.function": count_explorer}
