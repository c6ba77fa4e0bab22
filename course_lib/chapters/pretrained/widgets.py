"""Live figures of chapter 15."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from torch import Tensor

from course_lib.chapters.pretrained import figures
from course_lib.chapters.pretrained.claims import gpt2_layout
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.live.shared_figures import NextToken
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import SubwordTokenizer, WordTokenizer
from course_lib.trace import trace


def attention_of(
    model: DecoderOnly | EncoderOnly, tokenizer: WordTokenizer | SubwordTokenizer, text: str
) -> tuple[list[str], Tensor]:
    """Return the tokens of a text and all attention weights (L, H, T, T), with the special tokens the model expects."""
    if isinstance(tokenizer, WordTokenizer):
        ids = tokenizer.encode(text, end=False)
        tokens = [tokenizer.tokens[i] for i in ids]
    else:
        ids = tokenizer.encode(text, special=True)
        tokens = [piece.strip() or piece for piece in tokenizer.pieces(text, special=True)]
    with evaluating(model), trace(model, "blocks.*.attention.weights") as seen:
        model(torch.tensor([ids], device=next(model.parameters()).device))
    return tokens, torch.stack([weights[0].float().cpu() for weights in seen.values()])


# Sentences in which an adjective decides what “it” is: animal, its adjective, the other adjective, the beginning.
IT_SENTENCES = (
    ("dog", "tired", "soft", "The dog slept on the rug"),
    ("horse", "tired", "wide", "The horse did not cross the road"),
    ("animal", "tired", "wide", "The animal did not cross the street"),
    ("bird", "hungry", "strong", "The bird sat on the branch"),
    ("cow", "tired", "soft", "The cow lay on the grass"),
    ("mouse", "afraid", "dark", "The mouse hid in the box"),
    ("lion", "sleepy", "warm", "The lion lay on the rock"),
    ("pig", "happy", "cool", "The pig rolled in the mud"),
    ("goat", "hungry", "green", "The goat climbed the hill"),
    ("rabbit", "scared", "empty", "The rabbit crossed the field"),
)


def head_that_moves(model: EncoderOnly, tokenizer: SubwordTokenizer) -> list[float]:
    """Find the head whose weight from “it” to the cat changes most between “tired” and “soft”, and measure the same
    head in IT_SENTENCES.

    Returns: the number of heads, the layer and the head, its change, the mean change of all heads, and its change in
    each of IT_SENTENCES.
    """

    def change(animal: str, adjective: str, other_adjective: str, beginning: str) -> Tensor:
        """Return the weight from “it” to the animal, with one adjective minus with the other: (L, H)."""
        weights = []
        for why in (adjective, other_adjective):
            tokens, maps = attention_of(model, tokenizer, f"{beginning} because it was {why}.")
            weights.append(maps[:, :, tokens.index("it"), tokens.index(animal)])
        return weights[0] - weights[1]

    first = change("cat", "tired", "soft", "The cat sat on the mat")
    layer, head = divmod(int(first.argmax()), first.shape[1])
    again = [change(*sentence)[layer, head].item() for sentence in IT_SENTENCES]
    return [first.numel(), layer, head, first[layer, head].item(), first.mean().item(), *again]


def attention_viewer(
    model: DecoderOnly | EncoderOnly,
    tokenizer: WordTokenizer | SubwordTokenizer,
    sentences: Mapping[str, str],
    layer: int = 0,
    head: int = 0,
    query: str | None = None,
    drawn_from: int = 0,
) -> LiveFigure:
    """Show the attention weights of any token of a sentence: one head as lines, and all heads next to it.

    Args:
        sentences: short name -> text.
        layer, head: those shown first, counted from 0.
        query: the token chosen at first (its first position in the first sentence); by default the last token.
        drawn_from: the tokens before this position, a common beginning, are not drawn.

    Errors: ValueError if query is not a token of the first sentence.
    """
    seen = {}
    for name, text in sentences.items():
        all_tokens, all_weights = attention_of(model, tokenizer, text)
        seen[name] = all_tokens[drawn_from:], all_weights[:, :, drawn_from:, drawn_from:]
    first = next(iter(seen))
    tokens, weights = seen[first]
    if query is not None and query not in tokens:
        raise ValueError(f"query={query!r} is not a token of the first sentence: {' '.join(tokens)}")
    asks = len(tokens) - 1 if query is None else tokens.index(query)
    places = max(len(tokens) for tokens, _ in seen.values())

    def look(sentence, asks):
        tokens, weights = seen[sentence]
        return (
            tokens,
            weights.cpu().numpy(),
            min(asks - drawn_from, len(tokens) - 1),
        )  # the last token of a shorter sentence

    def draw(sentence, layer, head, asks):
        tokens, weights, asks = look(sentence, asks)
        return figures.AttentionLines(weights, tokens, layer, head, asks, places)

    def describe(sentence, layer, head, asks):
        tokens, weights, asks = look(sentence, asks)
        row = weights[layer, head, asks]
        best = (-row).argsort(kind="stable")[:3]
        top = ", ".join(f"{tokens[i]} (position {i + drawn_from}) {row[i]:.2f}" for i in best)
        who = f"layer {layer}, head {head}, position {asks + drawn_from}, “{tokens[asks]}”"
        return f"{sentence}: {who}, looks most at {top}."

    n_layers, n_heads = weights.shape[:2]
    controls = {
        "sentence": dropdown("sentence", list(seen), first),
        "layer": slider("layer", layer, 0, n_layers - 1, 1),
        "head": slider("head", head, 0, n_heads - 1, 1),
        "asks": slider("position of the query", drawn_from + asks, drawn_from, drawn_from + places - 1, 1),
    }
    return LiveFigure(draw, controls, describe)


# --------------------------------------------------------------------------- the learner's own mapping and measurement
ONCE = "once there was a king called tom . "
BEGINNINGS = {
    "the capital of france is": ONCE + "tom went to france . the capital of france is",
    "it was soft . yes , the": ONCE + "the cat sat on the mat because it was soft . yes , the",
    "who bit the cat ? it was the": ONCE + "the dog bit the cat . who bit the cat ? it was the",
    "once there was a": "once there was a",
}


def mapping_explorer(function: Callable) -> LiveFigure:
    """Show Tinytown's weights as a GPT-2 checkpoint, loaded by your `from_gpt2`, and the model's next word."""
    model, tokenizer = load_pretrained("tinytown")

    @cache
    def mapped() -> tuple[DecoderOnly | None, str]:
        """Return (the model with your tensors, what went wrong)."""
        theirs, _ = gpt2_layout(model)
        try:
            ours = function(theirs)
        except Exception as error:
            return None, went_wrong(error)
        if not isinstance(ours, Mapping) or not all(isinstance(tensor, Tensor) for tensor in ours.values()):
            return None, f"Expected a dictionary of tensors; your function returned one {type(ours).__name__}."
        yours = DecoderOnly(model.config).eval()
        wanted = yours.state_dict()
        missing = [name for name in wanted if name not in ours and name != "output.weight"]
        extra = [name for name in ours if name not in wanted]
        wrong = [name for name in wanted if name in ours and ours[name].shape != wanted[name].shape]
        if missing or extra:
            what, name = ("lacks", missing[0]) if missing else ("has the unknown name", extra[0])
            return None, f"Your dictionary {what} {name}."
        if wrong:
            got, expected = (tuple(state[wrong[0]].shape) for state in (ours, wanted))
            return None, f"{wrong[0]} has the shape {got}; the model needs {expected}."
        yours.load_state_dict({name: ours[name] for name in wanted if name in ours}, strict=False)
        return yours, ""

    def measure(beginning: str) -> tuple[np.ndarray, np.ndarray, float, str]:
        """Return (the original's probabilities (V,), yours, largest difference of a logit, what went wrong)."""
        yours, problem = mapped()
        ids = torch.tensor([tokenizer.encode(BEGINNINGS[beginning], end=False)])
        with torch.no_grad():
            original = model(ids)[0, -1]
            logits = original if yours is None else yours(ids)[0, -1]
        right, now = original.softmax(dim=-1).cpu().numpy(), logits.softmax(dim=-1).cpu().numpy()
        if not np.isfinite(now).all():
            problem = "The model with your tensors gives numbers that are not finite."
        now = np.zeros_like(right) if problem else now
        return right, now, (logits - original).abs().max().item(), problem

    def draw(beginning):
        right, now, apart, problem = measure(beginning)
        same = "the same" if apart < 1e-3 else f"logits differ by up to {apart:.1f}"
        title = "Nothing to show yet" if problem else f"… {beginning}: {same}"
        original, yours = "the original", "with your mapping"
        return NextToken(tokenizer.tokens, right, now, rows=8, model_name=original, now_name=yours, title=title)

    def describe(beginning):
        right, now, apart, problem = measure(beginning)
        if problem:
            return problem
        words = [tokenizer.tokens[int(p.argmax())] for p in (right, now)]
        if apart < 1e-3:
            return f"“… {beginning}”: the original predicts “{words[0]}”; with your mapping every logit is the same."
        return (
            f"“… {beginning}”: the original predicts “{words[0]}”, with your mapping it predicts “{words[1]}”. Names "
            f"and shapes fit, and logits differ by up to {apart:.1f}."
        )

    first = next(iter(BEGINNINGS))
    return LiveFigure(draw, {"beginning": dropdown("beginning", list(BEGINNINGS), first)}, describe)


ROLES = ("previous", "first", "induction")


def roles_explorer(function: Callable) -> LiveFigure:
    """Show your `head_roles(model, ids)` for Tinytown's sixteen heads, trained and untrained, on repeated random
    words."""
    trained, tokenizer = load_pretrained("tinytown")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untrained = DecoderOnly(trained.config).eval()
    models = {"trained": trained, "untrained": untrained}
    names = [f"layer {i}, head {j}" for i in range(trained.config.n_layers) for j in range(trained.config.n_heads)]

    @cache
    def measure(model: str, n: int) -> tuple[dict[str, np.ndarray], str]:
        """Return (the scores of the heads by role, what went wrong)."""
        nothing = {role: np.full(len(names), np.nan) for role in ROLES}
        words = torch.randint(3, len(tokenizer), (16, n), generator=torch.Generator().manual_seed(n))
        try:
            scores = function(models[model], torch.cat([words, words], dim=1))
        except Exception as error:
            return nothing, went_wrong(error)
        if not isinstance(scores, Mapping) or set(scores) != set(ROLES):
            return nothing, f"Expected a dictionary with the keys {', '.join(ROLES)}."
        try:
            found = {role: torch.as_tensor(scores[role]).detach().float().flatten().cpu().numpy() for role in ROLES}
        except Exception:
            return nothing, "Expected three tables of numbers, (L, H) each."
        if any(values.shape != (len(names),) for values in found.values()):
            shape = f"({trained.config.n_layers}, {trained.config.n_heads})"
            return nothing, f"Expected three tables of shape {shape}, one score per head."
        return found, ""

    def even_share(role: str, n: int) -> float:
        """Return the score of a head with uniform attention to all tokens that it may see."""
        places = torch.arange(n if role == "induction" else 1, 2 * n)
        return (1 / (places + 1.0)).mean().item()

    def draw(role, model, n):
        scores, problem = measure(model, n)
        title = f"{model}, {role}; dashed: a uniform share, {even_share(role, n):.2f}"
        title = "Nothing to show yet" if problem else title
        return figures.HeadScores(names, scores[role], title, even=even_share(role, n))

    def describe(role, model, n):
        scores, problem = measure(model, n)
        if problem:
            return problem
        if not np.isfinite(scores[role]).all():
            return f"The scores for {role} are not all numbers."
        best = int(scores[role].argmax())
        return (
            f"{model}, {n} random words twice, {role}: most in {names[best]}, {scores[role][best]:.2f}; the mean of "
            f"all heads is {scores[role].mean():.2f}, a uniform share {even_share(role, n):.2f}."
        )

    controls = {
        "role": dropdown("role", list(ROLES), ROLES[0]),
        "model": dropdown("model", list(models), "trained"),
        "n": slider("words, given twice", 12, 3, 40, 1),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"pretrained.map_gpt2": mapping_explorer, "pretrained.head_roles": roles_explorer}
