"""Live figures of chapter 11: a translation and its attention; a blank, guessed with and without its right side."""

import copy
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_lib.chapters.encoder_decoder import figures
from course_lib.chapters.encoder_decoder.masked_reader import MASK, MaskedReader
from course_lib.chapters.encoder_decoder.translator import cross_weights, pair_batch, source_batch, translate
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import WordTokenizer, join_words, split_words
from course_lib.tinytown.french import TinytownPairs
from course_lib.trace import trace

SUBJECTS = ("the cat", "the dog", "a mouse", "her dog", "the hens", "two wolves")
SIZES = ("", "big", "old", "beautiful")
COLOURS = ("", "black", "white", "green")
PREDICATES = {
    "was tired": "were tired",
    "was not happy": "were not happy",
    "slept in his house": "",
    "did not bite a cow": "",
    "chased the cow": "",
    "took the small key": "",
}  # singular: plural if it differs
N_GUESSES = 5


def sentence(subject: str, size: str, colour: str, predicate: str) -> str:
    """Return the English sentence with these parts, such as "an old black mouse was tired."."""
    determiner, noun = subject.split()
    if noun in ("hens", "wolves"):
        predicate = PREDICATES[predicate] or predicate
    words = " ".join(filter(None, (determiner, size, colour, noun, predicate)))
    return f"{words}.".replace("a old", "an old")


class Look(NamedTuple):
    """Hold one translation and its weights (H, T, S). aligned: the grammar's alignment; empty if the translation is
    wrong.

    problem: the reason why there is nothing to show. note: a further sentence.
    """

    french: str
    source: list[str]
    target: list[str]
    weights: Tensor
    aligned: list[tuple[int, int]]
    problem: str = ""
    note: str = ""


def translation_explorer(model: EncoderDecoder, tokenizer: WordTokenizer, layer: int = 0) -> LiveFigure:
    """Show an English sentence to build, the model's French, and the weights of a head of its cross-attention.

    The circles show the grammar's own alignment, for comparison.
    """

    def look(english: str) -> Look:
        french = translate(model, tokenizer, [english])[0]
        source, target, weights = cross_weights(model, tokenizer, english, french)
        return Look(french, source, target, weights[layer], _alignment(english, french))

    return _translations(look, model.config.n_heads, head=0)


def _alignment(english: str, french: str) -> list[tuple[int, int]]:
    """Return (English word, French word) for a correct translation; nothing for a wrong one."""
    pairs = TinytownPairs()
    return pairs.alignment(english) if french == pairs.translate(english) else []


def _translations(look: Callable[..., Look], n_heads: int, head: int | None = None, **more) -> LiveFigure:
    """Show the live figure of a translation. look(english, …) returns its content. more: further controls."""
    look = cache(look)

    def shown(head: int, weights: Tensor) -> tuple[str, Tensor]:
        return ("mean of the heads", weights.mean(dim=0)) if head == n_heads else (f"head {head}", weights[head])

    def draw(subject, size, colour, predicate, head, **more):
        seen = look(sentence(subject, size, colour, predicate), **more)
        name, rows = shown(head, seen.weights)
        title = "Nothing to show" if seen.problem else ""
        return figures.AlignmentMap(rows.cpu().numpy(), seen.source, seen.target, seen.aligned, name, title)

    def describe(subject, size, colour, predicate, head, **more):
        english = sentence(subject, size, colour, predicate)
        seen = look(english, **more)
        if seen.problem:
            return seen.problem
        name, rows = shown(head, seen.weights)
        elsewhere = [
            f"“{seen.target[t]}” looks at “{seen.source[int(rows[t].argmax())]}”"
            for s, t in seen.aligned
            if int(rows[t].argmax()) != s
        ]
        if seen.aligned:
            said = f"{english} → {seen.french} (right). {name.capitalize()}: "
            said += f"{', '.join(elsewhere)}." if elsewhere else "every word looks at the word that it translates."
        else:
            said = f"{english} → {seen.french} (wrong: it should be {TinytownPairs().translate(english)})."
        return f"{said} {seen.note}" if seen.note else said

    controls = {
        "subject": dropdown("subject", SUBJECTS, "the cat"),
        "size": dropdown("size", {word or "(none)": word for word in SIZES}, "big"),
        "colour": dropdown("colour", {word or "(none)": word for word in COLOURS}, "black"),
        "predicate": dropdown("what happened", list(PREDICATES), "did not bite a cow"),
        "head": dropdown(
            "head",
            {**{str(i): i for i in range(n_heads)}, "mean of all": n_heads},
            n_heads - 1 if head is None else head,
        ),
    }
    controls |= more
    for control in controls.values():
        control.layout.width = "410px"  # two of them side by side
    return LiveFigure(draw, controls, describe)


def explore_attention(function: Callable) -> LiveFigure:
    """Show the weights of your `cross_attention` for the trained translator's queries and keys.

    The values are one-hot vectors, so the output at a position is its weights.
    """
    model, tokenizer = load_pretrained("translator")

    def look(english: str, padding: int) -> Look:
        french = translate(model, tokenizer, [english])[0]
        source_ids, target_ids, _, _ = pair_batch([(english, french)], tokenizer)
        with (
            evaluating(model),
            trace(model, "*cross_attention.query", "*cross_attention.key") as seen,
        ):
            model(source_ids, target_ids)
        query, key = (value[0] for value in list(seen.values())[:2])  # (H, T, D), (H, S, D) of the first block
        source, target, weights = cross_weights(model, tokenizer, english, french)
        right = torch.nn.functional.pad(weights[0], (0, padding))  # (H, T, S + padding)
        found, problem = _try_attention(function, query, key, padding, right)
        note = (
            "The library has the same weights."
            if torch.allclose(found, right, atol=1e-4)
            else (f"The library's weights differ by up to {(found - right).abs().max():.2f}.")
        )
        lost = found[..., len(source) :].sum(-1).mean().item()
        if lost > 1e-3:
            note += f" Padding gets {lost:.2f} of each word's weight on average; it should get 0."
        if (found.sum(-1) - 1).abs().max() > 1e-3:
            note += " Your rows do not sum to 1."
        return Look(french, source + ["<pad>"] * padding, target, found, _alignment(english, french), problem, note)

    return _translations(look, model.config.n_heads, padding=slider("tokens of padding", 0, 0, 4, 1))


def _try_attention(function: Callable, query: Tensor, key: Tensor, padding: int, right: Tensor) -> tuple[Tensor, str]:
    """Return (the weights (H, T, S + padding) from your function, what went wrong)."""
    (H, T, D), S = query.shape, key.shape[1]
    N = S + padding
    width = D + N  # of a head: its features, and then a one-hot vector that identifies the source token
    asks = torch.cat([query, query.new_zeros(H, T, N)], dim=-1)  # (H, T, width)
    key = torch.cat([key, key[:, :padding]], dim=1)  # (H, N, D): padding that looks like the first words
    answers = torch.cat([key, torch.eye(N).expand(H, N, N)], dim=-1)  # (H, N, width)
    x, y = (part.transpose(0, 1).reshape(1, -1, H * width) for part in (asks, answers))
    rng = torch.Generator().manual_seed(0)
    turn, back = (torch.linalg.qr(torch.randn(H * width, H * width, generator=rng))[0] for _ in range(2))
    feature = (torch.arange(H * width) % width < D).float()  # 1 for features, 0 for the one-hot part
    args = (x @ turn, y @ back, turn.T * (width / D) ** 0.5, back.T * feature, back.T * (1 - feature))
    try:
        result = function(*(arg.clone() for arg in args), torch.eye(H * width), H, torch.tensor([S]))
    except Exception as error:
        return torch.zeros_like(right), went_wrong(error)
    if not isinstance(result, Tensor) or result.shape != x.shape:
        got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        return torch.zeros_like(right), f"The result should have the shape {tuple(x.shape)}. Yours: {got}."
    if not result.isfinite().all():
        return torch.zeros_like(right), "Your result holds NaN or infinity."
    return result.detach().float().view(T, H, width)[..., D:].transpose(0, 1), ""


class _Yours(nn.Module):
    """Run a decoder block of the translator with the learner's function."""

    def __init__(self, function: Callable, block: nn.Module):
        super().__init__()
        self.function, self.parts = function, block

    def forward(self, x, mask, context, context_mask, **_unused):
        y = self.function(x.clone(), context.clone(), self.parts, context_mask)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"the result should have the shape of x, {tuple(x.shape)}, but is {got}")
        if not y.isfinite().all():
            raise ValueError("the result contains NaN or infinity")
        return y


def explore_block(function: Callable) -> LiveFigure:
    """Show the trained translator with your `decoder_block` replacing the library's: its translation and its
    weights."""
    model, tokenizer = load_pretrained("translator")
    model = copy.deepcopy(model).eval().requires_grad_(False)
    model.decoder.add_module("blocks", nn.ModuleList(_Yours(function, block) for block in model.decoder.blocks))

    def look(english: str) -> Look:
        source_ids, source_mask = source_batch([english], tokenizer)
        source = [tokenizer.tokens[i] for i in source_ids[0].tolist()]
        encoded = model.encode(source_ids, source_mask)
        ids = [tokenizer.bos_id]
        try:
            while len(ids) <= model.config.max_seq_len and ids[-1] != tokenizer.eos_id:
                with trace(model, "decoder.blocks.0.parts.cross_attention.weights") as seen:
                    logits = model.decode(torch.tensor([ids]), encoded, source_mask)
                ids.append(int(logits[0, -1].argmax()))
        except Exception as error:
            nothing = torch.zeros(model.config.n_heads, 1, len(source))
            return Look("", source, ["?"], nothing, [], problem=went_wrong(error))
        target = [tokenizer.tokens[i] for i in ids[1:]]
        french = tokenizer.decode([i for i in ids if i != tokenizer.eos_id])
        weights, note = next(iter(seen.values()), torch.zeros(0))[0:1], ""
        if weights.shape[-2:] != (len(target), len(source)):
            weights, note = (
                torch.zeros(1, model.config.n_heads, len(target), len(source)),
                "It never looks at the source.",
            )
        return Look(french, source, target, weights[0], _alignment(english, french), note=note)

    return _translations(look, model.config.n_heads, head=0)


def blank_explorer(
    encoder: EncoderOnly, tokenizer: WordTokenizer, decoder: DecoderOnly, words: WordTokenizer, story: str, place: int
) -> LiveFigure:
    """Show a story with one hidden word, an encoder's guesses from both sides, and a decoder's guesses from the left.

    Args:
        place: the position of the word that is hidden first, counted from 1.
    """
    said = split_words(story)
    ids = torch.tensor([words.encode(story)])  # (1, T): <bos>, the words, <eos>

    def best(p: Tensor, names: WordTokenizer, hidden: str) -> list[tuple[str, float]]:
        ids = p.topk(N_GUESSES).indices.tolist()
        if names.id(hidden) not in ids:
            ids[-1] = names.id(hidden)  # the hidden word is always shown
        return [(names.tokens[i], p[i].item()) for i in ids]

    @cache
    def guess(place: int) -> tuple[list, list]:
        hidden = torch.tensor([tokenizer.encode(story)])  # (1, T)
        hidden[0, place] = tokenizer.id(MASK)
        with evaluating(encoder), evaluating(decoder):
            both = MaskedReader(encoder)(hidden)[0, place].softmax(dim=-1)  # (V,)
            left = decoder(ids[:, :place])[0, -1].softmax(dim=-1)  # (V,)
        return best(both, tokenizer, said[place - 1]), best(left, words, said[place - 1])

    def draw(place):
        return figures.BlankGuesses(*guess(place), said[place - 1])

    def describe(place):
        both, left = guess(place)
        (first, p), (other, q) = both[0], left[0]
        blank = join_words([*said[: place - 1], "___", *said[place:]])
        return f"{blank} — first guess from both sides: {first} ({p:.2f}), from the left: {other} ({q:.2f})."

    return LiveFigure(draw, {"place": slider("hidden word", place, 1, len(said), 1)}, describe)


EXPLORERS = {"encoder_decoder.attention": explore_attention, "encoder_decoder.decoder_block": explore_block}
