"""Live figures of chapter 9."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import ipywidgets as widgets
import numpy as np
import torch
from torch import Tensor

from course_lib.blocks import TransformerBlock
from course_lib.chapters.gpt import claims as measured
from course_lib.chapters.gpt import figures
from course_lib.config import preset
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import SENTENCE, WordTokenizer
from course_lib.trace import trace

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"lens_viewer": ("place", 'model, tokenizer = load_pretrained("tinytown")')}


# ---------------------------------------------------------------------------------------- any tensor of a running model
def shown_names(seen: dict[str, Tensor], n_layers: int) -> list[str]:
    """Return the tensors of a trace that are worth a look, in the order of computing, without repetitions of an equal
    tensor."""
    heads = (f"attention.{part}" for part in ("query", "key", "value", "weights", "heads"))
    inside = ["norm1", *heads, "attention", "norm2", "feed_forward.hidden", "feed_forward"]
    names = ["token_embedding", "positions"]
    for i in range(n_layers):
        names += [*(f"blocks.{i}.{part}" for part in inside), f"blocks.{i}"]
    return [name for name in (*names, "final_norm", "output") if name in seen]


def meaning(name: str) -> str:
    """Return what a recorded tensor is, in a few words, with its dimension letters."""
    kinds = {
        "token_embedding": "the tokens as vectors (B, T, d_model)",
        "positions": "tokens and positions: the input of the first block (B, T, d_model)",
        "norm1": "the residual stream, normalized for attention (B, T, d_model)",
        "query": "the queries of the tokens (B, H, T, D)",
        "key": "the keys of the tokens (B, H, S, D)",
        "value": "the values of the tokens (B, H, S, D)",
        "weights": "attention weights (B, H, T, S)",
        "heads": "the output of each head (B, H, T, D)",
        "attention": "what attention adds to the residual stream (B, T, d_model)",
        "norm2": "the residual stream, normalized for the feed-forward network (B, T, d_model)",
        "hidden": "the hidden units after their activation (B, T, d_ff)",
        "feed_forward": "what the feed-forward network adds to the residual stream (B, T, d_model)",
        "final_norm": "the residual stream, normalized for the output (B, T, d_model)",
        "output": "logits of the next token (B, T, V)",
    }
    last = name.split(".")[-1]
    return kinds.get(last, "the residual stream after this block (B, T, d_model)")


def trace_explorer(
    model: DecoderOnly, tokenizer: WordTokenizer, text: str, start: str = "blocks.2.attention.weights"
) -> LiveFigure:
    """Show every tensor of one forward pass: choose one to see its shape, its statistics and its numbers.

    Args:
        text: the prompt.
        start: the name of the first tensor.
    """
    ids = torch.tensor([tokenizer.encode(text, end=False)], device=model.token_embedding.weight.device)  # (1, T)
    tokens = [tokenizer.tokens[i] for i in ids[0].tolist()]
    with evaluating(model), trace(model) as seen:
        model(ids)
    names = shown_names(seen, len(model.blocks))

    def matrix(name: str, head: int) -> np.ndarray:
        value = seen[name][0].float().cpu()
        return (value[head % len(value)] if value.dim() == 3 else value).cpu().numpy()

    def which(name: str, head: int) -> str:
        return f"{name}, head {head % seen[name].shape[1]}" if seen[name].dim() == 4 else name

    def draw(name, head):
        values = matrix(name, head)
        columns = {"weights": "key", "hidden": "hidden unit", "output": "token of the vocabulary"}
        title = f"{which(name, head)}: {values.shape[0]} × {values.shape[1]} numbers, std {values.std():.2g}"
        return figures.TensorView(values, tokens, columns.get(name.split(".")[-1], "feature"), title)

    def describe(name, head):
        numbers = figures.statistics(matrix(name, head))
        said = ", ".join(f"{key} {value:.3g}" for key, value in numbers.items() if key != "zeros")
        return (
            f"{which(name, head)}: {meaning(name)} = {tuple(seen[name].shape)}. Numbers shown: {said}; "
            f"{100 * numbers['zeros']:.0f}% are exactly 0."
        )

    controls = {
        "name": dropdown("tensor", names, start),
        "head": slider("head (if it has heads)", 0, 0, model.config.n_heads - 1, 1),
    }
    controls["name"].layout.width = "520px"
    return LiveFigure(draw, controls, describe)


# ------------------------------------------------------------------------------------------------------- the logit lens
def lens_viewer(
    model: DecoderOnly, tokenizer: WordTokenizer, text: str, place: int | None = None, function: Callable | None = None
) -> LiveFigure:
    """Show the next words that the last step predicts from the stream after block 1, 2, … at each position: the logit
    lens.

    Args:
        function: your own function from ids to logits, gpt_forward(parts, ids), called with only the first blocks.
    """
    ids = torch.tensor([tokenizer.encode(text, end=False)], device=model.token_embedding.weight.device)  # (1, T)
    tokens = [tokenizer.tokens[i] for i in ids[0].tolist()]
    right = measured.logit_lens(model, ids)[:, 0]  # (n_layers + 1, T, V)
    logits, problem = (right, "") if function is None else _try_forward(function, model, ids, right)
    best = logits.softmax(dim=-1).topk(5)  # values, indices (n_layers + 1, T, 5)
    probabilities, indices = best.values.float().cpu().numpy(), best.indices.tolist()
    rows = ["before block 1", *(f"after block {i + 1}" for i in range(len(model.blocks)))]

    def words(place: int) -> list[list[str]]:
        if problem:
            return [["?"] * 5 for _ in indices]
        return [[tokenizer.tokens[i] for i in depth[place]] for depth in indices]

    def settled(place: int) -> str:
        """Return a sentence that says after which block the most probable word is the full model's, and stays so."""
        tops = [row[0] for row in words(place)]
        first = next(i for i in range(len(tops)) if all(top == tops[-1] for top in tops[i:]))
        return f"“{tops[-1]}” {'from the start' if first == 0 else f'from block {first} on'}"

    def title(place: int) -> str:
        if problem:
            return "No logits to show"
        return f"After “{tokens[place]}” (position {place}) the lens shows {settled(place)}"

    def draw(place):
        table = words(place)
        return figures.LensTable(table, probabilities[:, place], rows, table[-1][0], title(place))

    def agreement(place: int) -> str:
        if function is None:
            return ""
        apart = [
            name
            for name, yours, ours in zip(rows, logits[:, place], right[:, place])
            if not torch.allclose(yours, ours, atol=1e-3, rtol=1e-4)
        ]
        return f" The library's logits differ {', '.join(apart)}." if apart else " The library has the same logits."

    def describe(place):
        if problem:
            return problem
        tops = "; ".join(
            f"{row}: {word[0]} {p[0]:.2f}" for row, word, p in zip(rows, words(place), probabilities[:, place])
        )
        so_far = " ".join(tokens[max(0, place - 9) : place + 1])
        return f"The text so far: … {so_far}. Most probable next: {tops}.{agreement(place)}"

    last = len(tokens) - 1
    controls = {"place": slider("read up to position", last if place is None else place, 0, last, 1)}
    return LiveFigure(draw, controls, describe)


def _try_forward(function: Callable, model: DecoderOnly, ids: Tensor, right: Tensor) -> tuple[Tensor, str]:
    """Return (logits (n_layers + 1, T, V) of your function with the first 0, 1, … blocks, what went wrong)."""
    config = replace(model.config, family="encoder")  # an encoder's blocks add no mask
    blocks = [TransformerBlock(config).to(right).eval().requires_grad_(False) for _ in model.blocks]
    for ours, block in zip(model.blocks, blocks):
        block.load_state_dict(ours.state_dict())
    rows = []
    for n_blocks in range(len(blocks) + 1):
        parts = SimpleNamespace(
            token_table=model.get_parameter("token_embedding.weight").detach().clone(),
            position_table=model.get_parameter("positions.weight").detach().clone(),
            blocks=blocks[:n_blocks],
            final_norm=model.final_norm,
            output_table=model.get_parameter("output.weight").detach().clone(),
        )
        try:
            with evaluating(model):
                logits = function(parts, ids.clone())
        except Exception as error:
            return torch.zeros_like(right), went_wrong(error)
        if not isinstance(logits, Tensor) or logits.shape != (1, *right.shape[1:]):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            return torch.zeros_like(right), f"Logits should have the shape {(1, *right.shape[1:])}. Yours: {got}."
        logits = logits.detach().to(right)
        if not logits.isfinite().all():
            return torch.zeros_like(right), "Your logits hold NaN or infinity."
        rows.append(logits[0])
    return torch.stack(rows), ""


def explore_forward(function: Callable) -> LiveFigure:
    """Show your `gpt_forward(parts, ids)` on the trained model's parts, with 0, 1, 2, … of its blocks."""
    model, tokenizer = load_pretrained("tinytown")
    return lens_viewer(model, tokenizer, SENTENCE, function=function)


# ------------------------------------------------------------------------------------------------------ the first guess
STDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


def start_slider(function: Callable | None = None) -> LiveFigure:
    """Show how the standard deviation of the embedding table, tied or not, determines the first loss and logits.

    Args:
        function: your own `tie(model)`, called if the box is ticked.
    """
    ln_v = math.log(preset("tinytown").vocab_size)

    @cache
    def guess(std: float, tied: bool) -> tuple[Tensor, float, float, str]:
        if function is None or not tied:
            return *measured.first_guess(std, tied), ""
        return _try_tie(function, std)

    def draw(std, tied):
        losses = [guess(each, tied)[1] for each in STDS]
        logits, _, _, problem = guess(std, tied)
        name = "tied" if tied and not problem else "untied"
        return figures.FirstGuess(STDS, losses, ln_v, std, logits.cpu().numpy(), name)

    def describe(std, tied):
        logits, loss, own, problem = guess(std, tied)
        return f"{problem} " * bool(problem) + (
            f"{'Tied' if tied and not problem else 'Untied'}, embedding table from N(0, {std:g}²): first loss "
            f"{loss:.2f} nats, ln V is {ln_v:.2f}; std of the logits {logits.std():.2g}; "
            f"the last token read is the most probable one at {100 * own:.0f}% of the positions."
        )

    controls = {
        "std": widgets.SelectionSlider(options=STDS, value=0.02, description="std of the table"),
        "tied": widgets.Checkbox(value=True, description="the output is tied to the embedding table", indent=False),
    }
    return LiveFigure(draw, controls, describe)


def _try_tie(function: Callable, std: float) -> tuple[Tensor, float, float, str]:
    """Return the result of first_guess for a model that your function has tied, and what went wrong. After an error it
    is the untied model's result."""
    model = measured.untrained(std, tied=False)
    ids, targets = torch.randint(model.config.vocab_size, (2, measured.TEXTS, measured.T)).unbind()
    try:
        function(model)
        with evaluating(model):
            logits, loss = model(ids, targets)
        problem = "" if model.output.weight is model.token_embedding.weight else "These are still two parameters."
    except Exception as error:
        return *measured.first_guess(std, tied=False), went_wrong(error)
    if not logits.isfinite().all():
        return *measured.first_guess(std, tied=False), "Your table holds NaN or infinity."
    return logits, loss.item(), (logits.argmax(dim=-1) == ids).float().mean().item(), problem


EXPLORERS = {"gpt.forward": explore_forward, "gpt.tie_weights": start_slider}
