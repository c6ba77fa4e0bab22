"""Live figures of chapter 1: look-ups, words that move during training, analogies, gradients and sizes."""

from collections.abc import Callable, Mapping, Sequence

import ipywidgets as widgets
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.chapters.embeddings import figures
from course_lib.chapters.embeddings.tokenizer_box import TokenizerBox as TokenizerBox
from course_lib.config import TransformerConfig
from course_lib.embeddings import TokenEmbedding, analogy, nearest_tokens
from course_lib.gpt import DecoderOnly
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.live.page import enlarged
from course_lib.positions import sinusoidal_encoding
from course_lib.pretrained import embeddings_by_step, load_pretrained
from course_lib.tinytown import ANIMAL_SOUNDS, CLASSES, ROLES, WordTokenizer

MOST_BARS = 8


def steps_slider(steps: Sequence[int], value: int) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(options=list(steps), value=value, description="training step")


# -------------------------------------------------------------------------------------------------------------- look-up
def pick_rows(
    function: Callable[[Tensor, Tensor], Tensor] = lambda weight, ids: F.embedding(ids, weight),
) -> LiveFigure:
    """Show three ids to choose, their one-hot rows, the table, and `function(weight (V, D), ids (1, T))`."""
    weight = torch.tensor([[10 * row + feature for feature in range(3)] for row in range(6)], dtype=torch.float32)

    def rows(ids):
        """Return the function's answer (T, d_model) with a comment; a blank result if there is no answer."""
        blank = torch.full((len(ids), weight.shape[1]), torch.nan)
        answer, problem = _call(function, weight.clone(), torch.tensor([ids]))
        if problem:
            return blank, problem
        if not isinstance(answer, Tensor) or answer.shape != (1, len(ids), weight.shape[1]):
            got = f"a tensor of shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
            return blank, f"Your function returns {got}; expected a tensor of shape (1, {len(ids)}, {weight.shape[1]})."
        return answer[0].detach().float(), ""

    def draw(**asked):
        ids = list(asked.values())
        return figures.Lookup(weight, ids, rows(ids)[0])

    def describe(**asked):
        ids = list(asked.values())
        result, problem = rows(ids)
        if problem:
            return problem
        told = "; ".join(
            f"position {place}, id {id}: {', '.join(f'{number:g}' for number in row)}"
            for place, (id, row) in enumerate(zip(ids, result.tolist()))
        )
        fine = torch.equal(result, weight[ids])
        verdict = "Each position gets the row of its id." if fine else "That is not the row of the id."
        return f"{told}. {verdict}"

    names = ("first", "second", "third")
    return LiveFigure(
        draw, {n: slider(f"{n} id", i, 0, len(weight) - 1, 1) for n, i in zip(names, (4, 1, 4))}, describe
    )


def _call(function: Callable, *args):
    """Return (answer, "") or (None, a sentence about the error), because a learner's function may do anything."""
    try:
        return function(*args), ""
    except Exception as error:
        return None, went_wrong(error)


# ------------------------------------------------------------------------------------------------ words during training
def watch_words(
    tables: Mapping[int, Tensor], tokenizer: WordTokenizer, kinds: Mapping[str, Sequence[str]]
) -> LiveFigure:
    """Show the words of each kind on a map, at each saved step, with a button that plays the steps.

    The map is the plane that keeps most of the *final* table's variance. It is the same at all steps, so only the words
    move.
    """
    words = [word for group in kinds.values() for word in group]
    kind = torch.tensor([n for n, group in enumerate(kinds.values()) for _ in group])
    rows = [tokenizer.id(word) for word in words]
    steps = list(tables)
    centre, axes, kept = figures.principal_axes(tables[steps[-1]][rows])
    points = {step: (table[rows].double() - centre) @ axes for step, table in tables.items()}
    low, high = (edge(torch.stack(list(points.values())).flatten(0, 1), 0).values for edge in (torch.min, torch.max))
    room = 0.06 * (high - low)
    limits = (low - room)[0].item(), (high + room)[0].item(), (low - room)[1].item(), (high + 2 * room)[1].item()
    own = {step: _with_own_kind(table[rows], kind) for step, table in tables.items()}

    def title(step):
        return f"Step {step}: {own[step]} of {len(words)} words have a word of their own kind as nearest neighbour"

    def draw(step):
        return figures.WordMap(points[step], kinds, limits, title(step))

    def describe(step):
        return (
            f"{title(step)} (by cosine, in all {centre.numel()} dimensions). "
            f"This plane keeps {kept:.0%} of the finished table's variance, so two words that are close on the "
            "map may be far apart in the table."
        )

    live = LiveFigure(draw, {"step": steps_slider(steps, steps[-1])}, describe)
    play = widgets.Play(min=0, max=len(steps) - 1, value=len(steps) - 1, interval=700, description="play the steps")
    widgets.link((play, "value"), (live.children[0], "index"))
    live.children = (widgets.HBox([live.children[0], play]), *live.children[1:])
    return live


def _with_own_kind(vectors: Tensor, kind: Tensor) -> int:
    """Return how many of the vectors have a vector of the same kind as their nearest neighbour."""
    unit = F.normalize(vectors, dim=1)
    cosine = (unit @ unit.T).fill_diagonal_(-torch.inf)
    return int((kind[cosine.argmax(1)] == kind).sum())


# ------------------------------------------------------------------------------------------- neighbours and analogies
def _bars(
    tables: Mapping[int, Tensor],
    tokenizer: WordTokenizer,
    controls: Mapping[str, widgets.Widget],
    ask: Callable[..., tuple],
    speak: Callable[..., tuple[str, str, Sequence[str]]],
) -> LiveFigure:
    """Show bars of the tokens that `ask` finds at a step, for the two live figures below.

    Args:
        ask: ask(weight, **state) -> (vector (d_model,), answer: indices best first, problem: "" or a sentence)
        speak: speak(words, **state) -> (title, description, words to mark)
    """

    def look(step, **state):
        weight = tables[step]
        vector, answer, problem = ask(weight, **state)
        if not problem:
            rows, problem = _rows(answer, len(weight))
        if problem:
            return ["–"] * MOST_BARS, [0.0] * MOST_BARS, [], ("No answer to show", problem)
        words = [tokenizer.tokens[row] for row in rows[:MOST_BARS]]
        cosines = F.cosine_similarity(weight[rows[:MOST_BARS]], vector, dim=-1).tolist()
        title, description, marked = speak(words, step=step, **state)
        return words, cosines, marked, (title, description)

    def draw(**state):
        words, cosines, marked, (title, _) = look(**state)
        return figures.NearestBars(words, cosines, [word in marked for word in words], title)

    return LiveFigure(
        draw, {"step": steps_slider(list(tables), list(tables)[-1]), **controls}, lambda **s: look(**s)[3][1]
    )


def _rows(answer, V: int) -> tuple[list[int], str]:
    """Return (an answer as a list of rows of the table, a sentence if something is wrong with it)."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Tensor):
        answer = answer[0]  # the library's own functions return (indices, cosines)
    rows = answer.tolist() if isinstance(answer, Tensor) else answer
    if not isinstance(rows, (list, tuple)) or not all(type(row) is int for row in rows) or not rows:
        return [], "Your function should return the indices of tokens, best first: a tensor of whole numbers."
    outside = [row for row in rows if not 0 <= row < V]
    return list(rows), f"Your function returned {outside[0]}, and the rows are 0 … {V - 1}." if outside else ""


def neighbours(
    tables: Mapping[int, Tensor],
    tokenizer: WordTokenizer,
    kinds: Mapping[str, Sequence[str]],
    function: Callable = nearest_tokens,
) -> LiveFigure:
    """Show the nearest tokens of a chosen word at each saved step, as `function(weight, index, k)` finds them."""
    kind_of = {word: (name, group) for name, group in kinds.items() for word in group}

    def ask(weight, word):
        index = tokenizer.id(word)
        return weight[index], *_call(function, weight.clone(), index, MOST_BARS)

    def speak(words, step, word):
        name, group = kind_of[word]
        own = [found for found in words if found in group]
        title = f"Step {step}: {len(own)} of the {len(words)} nearest to “{word}” are also {name}"
        return title, f"{title}. Filled: {', '.join(own) or 'none'}.", own

    words = [word for group in kinds.values() for word in group]
    return _bars(
        tables, tokenizer, {"word": dropdown("word", words, "cat" if "cat" in words else words[0])}, ask, speak
    )


def analogies(tables: Mapping[int, Tensor], tokenizer: WordTokenizer, function: Callable | None = None) -> LiveFigure:
    """Show a − b + c for Tinytown's eight people at each saved step, or the answer of `function(weight, a, b, c,
    k)`."""
    inputs = {} if function else {"leave_out": widgets.Checkbox(value=True, description="leave the three inputs out")}

    def ask(weight, a, b, c, leave_out=True):
        rows = tokenizer.id(a), tokenizer.id(b), tokenizer.id(c)
        vector = weight[rows[0]] - weight[rows[1]] + weight[rows[2]]
        if function:
            return vector, *_call(function, weight.clone(), *rows, MOST_BARS)
        if leave_out:
            return vector, analogy(weight, *rows, MOST_BARS)[0], ""
        return vector, F.cosine_similarity(weight, vector, dim=-1).topk(MOST_BARS).indices, ""

    def speak(words, step, a, b, c, leave_out=True):
        wanted = fourth_corner(a, b, c)
        sum_ = f"{a} − {b} + {c}"
        if wanted is None:
            title = f"Step {step}: {sum_} is no one in Tinytown"
            return title, f"{title}. Nearest: {words[0]}.", []
        rank = f"rank {words.index(wanted) + 1}" if wanted in words else f"no rank among the first {len(words)}"
        title = f"Step {step}: {sum_} gives “{wanted}” {rank}"
        text = f"{title}. Nearest: {words[0]}."
        if wanted in (a, b, c):
            left_out = ", which are left out" if leave_out and not function else ""
            text += f" “{wanted}” is one of the three inputs{left_out}."
        return title, text, [wanted]

    people = list(ROLES)
    chosen = {
        n: dropdown(label, people, w)
        for n, label, w in [("a", "a", "king"), ("b", "− b", "man"), ("c", "+ c", "woman")]
    }
    for box in chosen.values():
        box.layout.width = f"{enlarged(270)}px"  # the three terms of the sum in one line
    live = _bars(tables, tokenizer, chosen | inputs, ask, speak)
    live.children[0].children[0].layout.width = "100%"  # the slider has the line above to itself
    return live


def fourth_corner(a: str, b: str, c: str) -> str | None:
    """Return who differs from c as a differs from b, in gender, age and royalty; None if no one does."""
    corner = []
    for of_a, of_b, of_c in zip(ROLES[a], ROLES[b], ROLES[c]):
        if of_a != of_b and of_c != of_b:
            return None
        corner.append(of_c if of_a == of_b else of_a)
    return next(role for role, features in ROLES.items() if features == tuple(corner))


# ------------------------------------------------------------------------------------------------------------ gradients
def reached_rows(stories: Sequence[Sequence[int]], vocab_size: int) -> LiveFigure:
    """Show which rows of the table get a gradient from the first n stories, untied and tied.

    Args:
        stories: token ids, each from `<bos>` to `<eos>`. A small untrained model computes the gradients and sums them.
    """
    norms = {tied: _row_gradients(stories, vocab_size, tied) for tied in (False, True)}

    def counts(n):
        return [int((norms[tied][n - 1] > 0).sum()) for tied in (False, True)]

    def draw(n):
        return figures.GradientRows(norms[False][n - 1], norms[True][n - 1], n)

    def describe(n):
        untied, tied = counts(n)
        return (
            f"With untied tables, the {untied} rows that were looked up get a gradient; the other "
            f"{vocab_size - untied} get exactly 0. With tied tables, {tied} of {vocab_size} rows get one, "
            "because each row also computes its token's logit."
        )

    return LiveFigure(draw, {"n": slider("stories in the batch", 1, 1, len(stories), 1)}, describe)


def _row_gradients(stories: Sequence[Sequence[int]], vocab_size: int, tied: bool) -> Tensor:
    """Return the size of each row's gradient after the first 1, 2, … n stories, (n, V)."""
    T = max(map(len, stories))
    config = TransformerConfig(vocab_size, d_model=16, n_heads=2, n_layers=1, max_seq_len=T, tie_weights=tied)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = DecoderOnly(config)
    norms = []
    for ids in stories:
        row = torch.tensor([ids])
        model(row[:, :-1], row[:, 1:])[1].backward()
        gradient = model.token_embedding.weight.grad
        assert gradient is not None
        norms.append(gradient.norm(dim=1))
    return torch.stack(norms)


# -------------------------------------------------------------------------------------------------------------- scaling
STARTS = {"N(0, 1), nn.Embedding's default": 1.0, "N(0, 0.02²), GPT-2's": 0.02, "N(0, 1/d_model)": None}


def scaled_tokens() -> LiveFigure:
    """Show how large a token's features are compared with its position's: initial table, d_model, scaled or not."""

    def measure(d_model, start, scaled):
        generator = torch.Generator().manual_seed(0)
        embedding = TokenEmbedding(200, d_model, scale=scaled)
        std = STARTS[start] or d_model**-0.5
        embedding.weight.data = std * torch.randn(200, d_model, generator=generator)
        token = embedding(torch.arange(200)).detach()  # (200, d_model)
        position = sinusoidal_encoding(64, d_model)  # (64, d_model)
        here, there = token + position[3], token + position[40]
        same_word = F.cosine_similarity(here, there, dim=-1).mean().item()
        return token.square().mean().sqrt().item(), position.square().mean().sqrt().item(), same_word

    def draw(d_model, start, scaled):
        return figures.TokenAndPosition(*measure(d_model, start, scaled))

    def describe(d_model, start, scaled):
        token, position, same_word = measure(d_model, start, scaled)
        return (
            f"d_model = {d_model}: a token's features have size {token:.3g}, and its position's features have size "
            f"{position:.3g}. The same word at positions 3 and 40 has a cosine of {same_word:.2f}; a cosine of 1 means "
            "that the position has no effect."
        )

    sizes = widgets.SelectionSlider(options=[16, 32, 64, 128, 256, 512, 768, 1024], value=768, description="d_model")
    controls = {
        "d_model": sizes,
        "start": dropdown("initial table", list(STARTS), next(iter(STARTS))),
        "scaled": widgets.Checkbox(value=True, description="multiply by √d_model"),
    }
    return LiveFigure(draw, controls, describe)


# ------------------------------------------------------------------------------------------------------------ exercises
def _explore_nearest(function: Callable) -> LiveFigure:
    kinds = {
        "animals": [*ANIMAL_SOUNDS, *CLASSES["animals"]],
        "people": list(ROLES),
        "things": list(CLASSES["thing"]),
        "colours": list(CLASSES["colour"]),
    }
    return neighbours(embeddings_by_step(), load_pretrained("tinytown")[1], kinds, function)


def _explore_analogy(function: Callable) -> LiveFigure:
    return analogies(embeddings_by_step(), load_pretrained("tinytown")[1], function)


EXPLORERS = {
    "embeddings.lookup": pick_rows,
    "embeddings.one_hot": pick_rows,
    "embeddings.nearest": _explore_nearest,
    "embeddings.analogy": _explore_analogy,
}
