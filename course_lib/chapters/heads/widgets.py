"""Live figures of chapter 4."""

from collections.abc import Callable
from functools import cache

import ipywidgets as widgets
import numpy as np
import torch
from torch import Tensor

from course_lib.chapters.heads import figures
from course_lib.chapters.heads.claims import QUESTIONS, draw_questions, without_heads
from course_lib.claims.interventions import patch
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.heads import MultiHeadAttention, split_heads
from course_lib.live.attempts import attempt, went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider, steps
from course_lib.live.numbers import percent, short
from course_lib.live.shared_figures import WeightBars
from course_lib.tinytown import WordTokenizer


def counted(number: int, name: str) -> str:
    """Return the number with its noun: 1 head, 2 heads."""
    return f"{number} {name}{'s' * (number != 1)}"


# ------------------------------------------------------------------------------------------- features split among heads
T, D_MODEL = 4, 8
NUMBERS = torch.arange(T * D_MODEL).reshape(1, T, D_MODEL) / 10  # 0.0 … 3.1: every number shows where it came from


def split_sliders() -> LiveFigure:
    """Show which head gets which number of a (1, 4, 8) tensor, with and without the transpose."""

    def split(n_heads: int, transpose: bool) -> torch.Tensor:
        if transpose:
            return split_heads(NUMBERS, n_heads)  # (B, H, T, D)
        return NUMBERS.reshape(1, n_heads, T, D_MODEL // n_heads)

    def owner(n_heads: int, transpose: bool) -> np.ndarray:
        found = np.zeros((T, D_MODEL), dtype=int)
        for head, numbers in enumerate(split(n_heads, transpose)[0]):
            found.flat[(numbers.flatten() * 10).round().long().cpu().numpy()] = head
        return found

    def tokens_of(n_heads, transpose):
        return sorted({int(t) for t in np.nonzero(owner(n_heads, transpose) == 0)[0]})

    def draw(n_heads, transpose):
        seen = tokens_of(n_heads, transpose)
        if len(seen) == T:
            title = f"Each head gets {counted(D_MODEL // n_heads, 'feature')} of every token"
        else:
            title = f"Wrong: head 0 never sees tokens {', '.join(str(t) for t in range(T) if t not in seen)}"
        return figures.DealtOut(NUMBERS[0].cpu().numpy(), owner(n_heads, transpose), title)

    def describe(n_heads, transpose):
        heads, seen = split(n_heads, transpose)[0], tokens_of(n_heads, transpose)
        first = ", ".join(f"{number:.1f}" for number in heads[0, 0].tolist())
        return (
            f"{counted(n_heads, 'head')}, {'with' if transpose else 'without'} the transpose: "
            f"shape (1, {n_heads}, {T}, {D_MODEL // n_heads}). Head 0 takes [{first}] as its token 0, and gets numbers "
            f"from token{'s' * (len(seen) > 1)} {', '.join(map(str, seen))}."
        )

    controls = {
        "n_heads": steps("n_heads", (1, 2, 4, 8), 2),
        "transpose": widgets.Checkbox(value=True, description="transpose after the reshape", indent=False),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------------------- shapes and costs
def priced_steps(B: int, T: int, d_model: int, n_heads: int) -> list[tuple[str, str, int, int, int]]:
    """Return (step, shape, numbers in the result, parameters, FLOPs) of the eight steps.

    The parameters include biases. A multiplication with its addition counts as 2 FLOPs; softmax does not count.
    """
    D, d = d_model // n_heads, d_model
    tokens, table = B * T * d, B * n_heads * T * T
    whole, cut, square = f"({B}, {T}, {d})", f"({B}, {n_heads}, {T}, {D})", f"({B}, {n_heads}, {T}, {T})"
    return [
        ("1  input x", whole, tokens, 0, 0),
        ("2  project to Q, K, V", f"3 × {whole}", 3 * tokens, 3 * (d * d + d), 6 * tokens * d),
        ("3  split into heads", f"3 × {cut}", 3 * tokens, 0, 0),
        (r"4  scores $Q\,K^\top / \sqrt{D}$", square, table, 0, 2 * table * D),
        ("5  softmax: weights", square, table, 0, 0),
        ("6  weights · V", cut, tokens, 0, 2 * table * D),
        ("7  merge the heads", whole, tokens, 0, 0),
        ("8  output projection", whole, tokens, d * d + d, 2 * tokens * d),
    ]


def shapes_and_costs() -> LiveFigure:
    """Show every shape of multi-head attention, its parameters, memory and work, for B, T, d_model and n_heads."""

    def fits(d_model, n_heads):
        return d_model % n_heads == 0

    def rows(B, T, d_model, n_heads):
        if fits(d_model, n_heads):
            return priced_steps(B, T, d_model, n_heads)
        return [(step, "", 0, 0, 0) for step, *_ in priced_steps(B, T, d_model, 1)]

    def refusal(d_model, n_heads):
        return f"{d_model:,} features cannot be divided evenly among {n_heads} heads"

    def share_of_pairs(T, d_model):
        return T / (T + 2 * d_model)

    def draw(B, T, d_model, n_heads):
        title = refusal(d_model, n_heads)
        if fits(d_model, n_heads):
            pairs = share_of_pairs(T, d_model)
            others = percent(1 - pairs)
            title = f"Steps 4 and 6 (pairs of tokens) are {percent(pairs)} of the work; the projections are {others}"
        return figures.StepsAndCosts(rows(B, T, d_model, n_heads), title)

    def describe(B, T, d_model, n_heads):
        if not fits(d_model, n_heads):
            return f"{refusal(d_model, n_heads)}: {d_model} / {n_heads} is not a whole number. The library refuses it."
        priced = rows(B, T, d_model, n_heads)
        parameters, work = sum(row[3] for row in priced), sum(row[4] for row in priced)
        return (
            f"B = {B}, T = {T:,}, d_model = {d_model:,}, {counted(n_heads, 'head')} of "
            f"{counted(d_model // n_heads, 'feature')}: "
            f"{parameters:,} parameters, {short(work, 'FLOP')}; the weights of step 5 take "
            f"{short(4 * priced[4][2], 'B')} in float32 if they are stored."
        )

    controls = {
        "B": steps("B (sequences)", (1, 2, 4, 8, 16, 32), 2),
        "T": steps("T (tokens)", (4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192), 16),
        "d_model": steps("d_model", (8, 64, 128, 256, 512, 768, 1024, 2048, 4096), 128),
        "n_heads": steps("n_heads", (1, 2, 4, 8, 12, 16, 32, 64), 4),
    }
    return LiveFigure(draw, controls, describe)


# ------------------------------------------------------------------------------------------------- a head at a question
def remove_a_head(
    model: DecoderOnly, tokenizer: WordTokenizer, question: str, layer: int = 0, head: int = 0
) -> LiveFigure:
    """Show the answer to a question, where one head looks, and the answer without this head.

    question, layer, head: the first values of the controls.
    """
    asked = {name: draw_questions(name, 5) for name in QUESTIONS}

    @cache
    def look(question: str, example: int, layer: int, head: int):
        prompt, answer = asked[question][example - 1]
        ids = torch.tensor([tokenizer.encode(prompt, end=False)])  # (1, T)
        weights = model.attention_weights(ids)[layer][0, head, -1].cpu().numpy()  # (T,)
        with evaluating(model):
            whole = model(ids)[0, -1].softmax(-1)  # (V,)
            with without_heads(model, [(layer, head)]):
                lacking = model(ids)[0, -1].softmax(-1)
        shown = [tokenizer.id(answer)]
        for id in (whole + lacking).argsort(descending=True).tolist():
            if id not in shown and len(shown) < 4:
                shown.append(id)
        words = [tokenizer.tokens[i] for i in ids[0].tolist()]
        names = [tokenizer.tokens[i] for i in shown]
        return words, weights, names, whole[shown].cpu().numpy(), lacking[shown].cpu().numpy()

    def draw(question, example, layer, head):
        words, weights, names, whole, lacking = look(question, example, layer, head)
        title = f"Layer {layer}, head {head} looks most at “{words[weights.argmax()]}”; without it p(“{names[0]}”) "
        title += f"goes from {whole[0]:.2f} to {lacking[0]:.2f}"
        return figures.HeadAtWork(words, weights, names, whole, lacking, title)

    def describe(question, example, layer, head):
        words, weights, names, whole, lacking = look(question, example, layer, head)
        best = int(weights.argmax())
        story = " ".join(words[1:])
        return (
            f"{story} ___. Correct: {names[0]}. Layer {layer}, head {head} puts {weights[best]:.2f} of its weight on "
            f"“{words[best]}”. Probability of {names[0]}: {whole[0]:.2f} with this head, {lacking[0]:.2f} without."
        )

    controls = {
        "question": dropdown("question", list(QUESTIONS), question),
        "example": slider("example", 1, 1, 5, 1),
        "layer": slider("layer", layer, 0, model.config.n_layers - 1, 1),
        "head": slider("head", head, 0, model.config.n_heads - 1, 1),
    }
    return LiveFigure(draw, controls, describe)


# ---------------------------------------------------------------------------------------------- the learner's own split
def explore_split(function: Callable) -> LiveFigure:
    """Show which head gets which number of a (1, 4, 8) tensor from your `split_heads(x, n_heads)`."""

    @cache
    def measure(n_heads: int) -> tuple[np.ndarray, str, str]:
        """Return (owner of each number (4, 8), −1 for none; title; description)."""
        owner = np.full((T, D_MODEL), -1)
        yours, problem = attempt(function, NUMBERS.clone(), n_heads, shape=(1, n_heads, T, D_MODEL // n_heads))
        if yours is None:
            return owner, "No heads to show yet", problem
        for head, numbers in enumerate(yours[0]):
            for index in (numbers.double() * 10).round().long().flatten().tolist():
                if 0 <= index < owner.size:
                    owner.flat[index] = head
        right = split_heads(NUMBERS, n_heads)
        wrong = (yours.double() - right.double()).abs().gt(1e-4)
        if not wrong.any():
            features = counted(D_MODEL // n_heads, "feature")
            return owner, f"Each of your heads gets {features} of every token", "The library agrees."
        _, head, token, feature = wrong.nonzero()[0].tolist()
        here = yours[0, head, token, feature], right[0, head, token, feature]
        said = f"Head {head}, token {token}, feature {feature}: you have {here[0]:.1f}, the library {here[1]:.1f}."
        return owner, "Your split differs from the library's", said

    def draw(n_heads):
        owner, title, _ = measure(n_heads)
        return figures.DealtOut(NUMBERS[0].cpu().numpy(), owner, title)

    def describe(n_heads):
        return f"{counted(n_heads, 'head')}. {measure(n_heads)[2]}"

    return LiveFigure(draw, {"n_heads": steps("n_heads", (1, 2, 4, 8), 2)}, describe)


# ------------------------------------------------------------------------------------- the learner's own module, poked
def explore_module(module: Callable) -> LiveFigure:
    """Show which outputs of your `MultiHeadAttention(d_model, n_heads)` move when one of five tokens changes."""
    length = 5
    rng = torch.Generator().manual_seed(5)
    x, other = torch.randn(1, length, D_MODEL, generator=rng), torch.randn(D_MODEL, generator=rng)
    masks = {
        "none": None,
        "causal": torch.ones(length, length, dtype=torch.bool).tril(),
        "hide token 4": (torch.arange(length) != 4).expand(length, length),
    }

    def moved(attention: Callable, token: int, mask: Tensor | None) -> tuple[np.ndarray, str]:
        """Return how far each output moves when the token is changed, as a fraction of its length (5,)."""
        changed = x.clone()
        changed[0, token] = other
        outputs = []
        for each in (x, changed):
            output, problem = attempt(attention, each.clone(), mask, shape=(1, length, D_MODEL))
            if output is None:
                return np.full(length, np.nan), problem.replace("your function", "your module")
            outputs.append(output.double())
        return ((outputs[1] - outputs[0]).norm(dim=-1) / outputs[0].norm(dim=-1))[0].cpu().numpy(), ""

    @cache
    def measure(token: int, n_heads: int, mask: str) -> tuple[np.ndarray, np.ndarray, str]:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(6)
            library = MultiHeadAttention(D_MODEL, n_heads)
            library_moved, _ = moved(lambda x, mask: library(x, mask=mask), token, masks[mask])
            yours = np.full(length, np.nan)
            try:
                attention = module(D_MODEL, n_heads)
                attention.load_state_dict(library.state_dict())
                attention.eval()
            except Exception as error:
                return yours, library_moved, went_wrong(error)
            yours, problem = moved(attention, token, masks[mask])
            return yours, library_moved, problem

    def draw(token, n_heads, mask):
        yours, _, problem = measure(token, n_heads, mask)
        names = [f"output {t}" for t in range(length)]
        still = [name for name, moves in zip(names, yours) if moves < 1e-6]
        said = f"not moved: {', '.join(still)}" if still else "every output moves"
        title = "No outputs to show yet" if problem else f"Token {token} changes; {said}"
        how_far = "how far the output moves (fraction of its length)"
        return WeightBars(names, yours.clip(0, 1.1), title, how_far)

    def describe(token, n_heads, mask):
        yours, library, problem = measure(token, n_heads, mask)
        if problem:
            return problem
        moves = ", ".join(f"{each:.2f}" for each in yours)
        text = f"Token {token} changed, {counted(n_heads, 'head')}, mask: {mask}. The outputs move by {moves}."
        if np.allclose(yours, library, atol=1e-3):
            return f"{text} The library's move alike."
        return f"{text} The library's move by {', '.join(f'{each:.2f}' for each in library)}."

    controls = {
        "token": slider("token that changes", 2, 0, length - 1, 1),
        "n_heads": steps("n_heads", (1, 2, 4, 8), 2),
        "mask": dropdown("mask", list(masks), "causal"),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"heads.split": explore_split, "heads.module": explore_module}


# ----------------------------------------------------------------------------------------- what carries an answer where
KINDS = ("residual stream", "attention", "feed-forward", "single heads")


def counterfactuals(
    model: DecoderOnly, tokenizer: WordTokenizer, question: str = "capital", kind: str = KINDS[-1]
) -> LiveFigure:
    """Show which part of the model, at which position, carries a change in a text to the answer.

    The two texts ask the same question, such as the capitals of two countries. Each cell of the map takes one part at
    one position from the run on the other text (`patch`). Its number is the change of the answer, logit of the new
    answer − logit of the old one, as a fraction of the change that the other text itself causes (`swap`).

    question, kind: the first values of the lists.
    """

    @cache
    def texts(question: str, example: int) -> tuple[Tensor, Tensor, str, str]:
        """Return (ids (1, T), the other ids (1, T), old answer, new answer) of the next two texts with different
        answers."""
        drawn = iter(draw_questions(question, 200, seed=example))
        prompt, answer = next(drawn)
        other, new = next(each for each in drawn if each[1] != answer and answer not in each[0].split())
        ids, others = (torch.tensor([tokenizer.encode(text, end=False)]) for text in (prompt, other))
        return ids, others, answer, new

    def parts(kind: str) -> dict[str, str]:
        """Return label of the row -> the part, as `patch` names it, with the last layer at the top."""
        layers = range(model.config.n_layers)[::-1]
        if kind == KINDS[-1]:
            heads = range(model.config.n_heads)
            return {f"layer {i}, head {j}": f"blocks.{i}.attention.head.{j}" for i in layers for j in heads}
        at = dict(zip(KINDS, ("", ".attention", ".feed_forward")))[kind]
        return {f"{'after ' * (not at)}layer {i}": f"blocks.{i}{at}" for i in layers}

    @cache
    def measure(question: str, example: int, kind: str) -> tuple[list[str], np.ndarray]:
        """Return (the words from the first difference on, shares (number of parts, number of these positions))."""
        ids, others, old, new = texts(question, example)
        before, after = tokenizer.id(old), tokenizer.id(new)
        with evaluating(model):
            whole = model(others)[0, -1] - model(ids)[0, -1]  # (V,)

        def toward(change: Tensor) -> float:
            return (change[after] - change[before]).item()

        first = int((ids != others)[0].nonzero()[0])
        one_each = torch.eye(ids.shape[1], dtype=torch.bool)[first:]  # (N, T): text n is patched at position first + n
        many, other = (each.expand(len(one_each), -1) for each in (ids, others))  # (N, T)
        shares = [
            [toward(change) / toward(whole) for change in patch(model, many, other, at, one_each)[:, -1]]
            for at in parts(kind).values()
        ]
        words = [
            tokenizer.tokens[here] if here == there else f"{tokenizer.tokens[here]} → {tokenizer.tokens[there]}"
            for here, there in zip(ids[0, first:].tolist(), others[0, first:].tolist())
        ]
        return words, np.array(shares)

    def most(question: str, example: int, kind: str) -> tuple[str, str, float]:
        """Return the part and the word that carry the most."""
        words, shares = measure(question, example, kind)
        row, column = np.unravel_index(shares.argmax(), shares.shape)
        part = list(parts(kind))[row]
        named = part if kind == KINDS[-1] else f"the {kind} {part}" if "after" in part else f"the {kind} of {part}"
        return named, words[column], float(shares[row, column])

    def draw(question, example, kind):
        words, shares = measure(question, example, kind)
        _, _, old, new = texts(question, example)
        part, word, share = most(question, example, kind)
        title = f"From “{old}” to “{new}”: {part} at “{word}” carries {percent(share)} of the change"
        return figures.CarriedShares(list(parts(kind)), words, shares, title)

    def describe(question, example, kind):
        ids, _, old, new = texts(question, example)
        part, word, share = most(question, example, kind)
        story = " ".join(tokenizer.tokens[id] for id in ids[0, 1:].tolist())
        return (
            f"{story} ___. Correct: {old}; in the other text, {new}. Taken from the other text, {part} at “{word}” "
            f"carries {percent(share)} of the change that the entire text causes."
        )

    controls = {
        "question": dropdown("question", list(QUESTIONS), question),
        "example": slider("example", 1, 1, 5, 1),
        "kind": dropdown("patched in", list(KINDS), kind),
    }
    return LiveFigure(draw, controls, describe)
