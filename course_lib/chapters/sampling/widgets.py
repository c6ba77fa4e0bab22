"""Live figures of chapter 13: sliders on seven words, a sample by hand, and the trained model with every setting."""

from collections.abc import Callable, Sequence
from functools import cache

import ipywidgets as widgets
import numpy as np
import torch
from torch import Tensor

from course_lib.chapters.sampling import figures, smollm2
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.live.attempts import attempt
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.live.numbers import entropy
from course_lib.live.shared_figures import NextToken, what_is_left
from course_lib.pretrained import load_pretrained
from course_lib.sampling import (
    generate,
    next_token_distribution,
    sample_next_token,
    top_k_filter,
    top_p_filter,
)
from course_lib.tinytown import EOS, SENTENCE, Tinytown, WordTokenizer, join_words

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"live.seven_words": "temperature"}

# Seven words whose logits decrease in equal steps.
WORDS = ["the", "a", "my", "his", "some", "that", "one"]
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])

# Contexts in which Tinytown allows only one next word, and contexts in which it allows several.
OPENING = SENTENCE.partition(" .")[0] + " ."  # the sentence of the course, up to its first full stop
PROMPTS = {
    "… called tom .": OPENING,
    "… who chased the cow ? it was the": SENTENCE,
    "… tom wanted to eat": "once there was a boy called tom. tom wanted to eat",
    "… it was soft. yes, the": "once there was a girl called mia. the cat sat on the mat because it was soft. yes, the",
    "once there was a": "once there was a",
}
NEW_TOKENS = 25
DRAWS = 1000


def off(value, nothing):
    """Return None for a slider at its end, which leaves the filter out."""
    return None if value == nothing else value


def knobs(V: int) -> dict[str, widgets.Widget]:
    """Return the four sliders; top-k = V, top-p = 1 and min-p = 0 turn their filter off."""
    ks = [k for k in (1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 50, 100, 200) if k < V] + [V]
    return {
        "temperature": slider("temperature (0 = greedy)", 1.0, 0.0, 3.0, 0.1),
        "top_k": widgets.SelectionSlider(
            options=[(f"{k}" if k < V else "off", k) for k in ks], value=V, description="top-k"
        ),
        "top_p": slider("top-p (1 = off)", 1.0, 0.05, 1.0, 0.05),
        "min_p": slider("min-p (0 = off)", 0.0, 0.0, 0.5, 0.02),
    }


def settings_of(V: int, temperature: float, top_k: int, top_p: float, min_p: float) -> dict:
    """Return the sliders' values as arguments of `next_token_distribution`."""
    return {"temperature": temperature, "top_k": off(top_k, V), "top_p": off(top_p, 1.0), "min_p": off(min_p, 0.0)}


# ---------------------------------------------------------------------------------------------------------- seven words
def seven_words() -> LiveFigure:
    """Show temperature and the three filters on the seven logits."""
    model = LOGITS.softmax(dim=-1).cpu().numpy()

    def distribution(**state):
        return next_token_distribution(LOGITS, **settings_of(len(WORDS), **state)).cpu().numpy()

    def draw(**state):
        return NextToken(WORDS, model, distribution(**state), model_name="T = 1, unfiltered")

    def describe(**state):
        now = distribution(**state)
        kept = ", ".join(f"{word} {p:.3f}" for word, p in zip(WORDS, now) if p > 0)
        return f"{what_is_left(WORDS, now)}. Probabilities: {kept}."

    controls = knobs(len(WORDS))
    controls["top_p"].value = 0.9  # a first state in which a filter removes something
    return LiveFigure(draw, controls, describe)


def draw_by_hand() -> LiveFigure:
    """Show a random number u on a slider, and the segment of the line from 0 to 1 in which it falls."""

    def distribution(temperature):
        return next_token_distribution(LOGITS, temperature).cpu().numpy()

    def draw(u, temperature):
        return figures.UnitInterval(WORDS, distribution(temperature), u)

    def describe(u, temperature):
        ends = distribution(temperature).cumsum()
        pieces = ", ".join(f"{word} to {end:.2f}" for word, end in zip(WORDS, ends))
        return f"At T = {temperature:.1f} the pieces end at: {pieces}. u = {u:.2f}."

    controls = {
        "u": slider("random number u", 0.62, 0.0, 0.99, 0.01),
        "temperature": slider("temperature", 1.0, 0.0, 3.0, 0.1),
    }
    return LiveFigure(draw, controls, describe)


# ---------------------------------------------------------------------------------------------------- the trained model
def every_knob(model: DecoderOnly, tokenizer: WordTokenizer) -> LiveFigure:
    """Show the trained model after a prompt: the next token, with Tinytown's own probabilities, and a text.

    The text has at most 25 new tokens, so that it can be rewritten whenever a slider moves. One more prompt shows
    SmolLM2's recorded distribution, without a text.
    """
    V, town = len(tokenizer), Tinytown()

    @cache  # texts for neighbouring settings have the same beginning
    def logits_after(ids: tuple[int, ...]) -> Tensor:
        with evaluating(model):
            return model(torch.tensor([ids]))[0, -1]  # (V,)

    @cache
    def known(prompt: str) -> tuple[Sequence[str], Tensor, np.ndarray | None]:
        """Return the tokens, their logits (V,) and, in Tinytown, their exact probabilities (V,)."""
        if prompt == smollm2.PROMPT:
            return *smollm2.recorded_next_token(), None
        exact = town.next_word(prompt)
        truth = np.array([exact.get(token, 0.0) for token in tokenizer.tokens])
        return tokenizer.tokens, logits_after(tuple(tokenizer.encode(prompt, end=False))), truth

    def distribution(prompt, **settings):
        _, logits, _ = known(prompt)
        return next_token_distribution(logits, **settings_of(V, **settings)).cpu().numpy()

    def draw(prompt, seed, **settings):
        now, (tokens, logits, truth) = distribution(prompt, **settings), known(prompt)
        before = logits.softmax(dim=-1).cpu().numpy()
        title = what_is_left(tokens, now).partition(", as in")[0] if truth is None else ""
        return NextToken(tokens, before, now, truth, rows=8, title=title, room="49,144 more")

    def describe(prompt, seed, **settings):
        now, (tokens, _, truth) = distribution(prompt, **settings), known(prompt)
        left = what_is_left(tokens, now)
        if truth is None:
            return f"{left}. The {smollm2.NAMED} most probable tokens have {now[: smollm2.NAMED].sum():.0%} in total."
        return (
            f"{left}. Tinytown allows {int((truth > 0).sum())} here, with "
            f"an entropy of {entropy(truth):.2f} nats. Probability of impossible words: {now[truth == 0].sum():.3f}."
        )

    def write(prompt, seed, **settings):
        generator = torch.Generator().manual_seed(seed)
        tokens, logits, truth = known(prompt)
        if truth is None:
            found = sample_next_token(logits.expand(10, -1), **settings_of(V, **settings), generator=generator)
            drawn = ", ".join(tokens[i] for i in found.tolist())
            return f"Ten samples with seed {seed} (… is a token that is not among the {smollm2.NAMED}): {drawn}"
        ids = tokenizer.encode(prompt, end=False)
        for _ in range(NEW_TOKENS):
            logits = logits_after(tuple(ids))
            ids.append(int(sample_next_token(logits, **settings_of(V, **settings), generator=generator)))
            if ids[-1] == tokenizer.eos_id:
                break
        new = join_words(tokenizer.tokens[i] for i in ids[len(tokenizer.encode(prompt, end=False)) :])
        end = "" if ids[-1] == tokenizer.eos_id else " …"
        return f"Seed {seed} writes: {prompt} ▸ {new.replace(EOS, '(the end)')}{end}"

    controls = {
        "prompt": dropdown("prompt", {**PROMPTS, f"SmolLM2: {smollm2.PROMPT}": smollm2.PROMPT}, OPENING),
        **knobs(V),
        "seed": slider("seed", 0, 0, 9, 1),
    }
    controls["temperature"].value = 2.0  # a first state in which the tail is visible
    return LiveFigure(draw, controls, describe, write)


# ----------------------------------------------------------------------------------------- driven by the learner's code
def beside_the_library(
    yours: Callable[..., tuple[Tensor | None, str]], library: Callable[..., Tensor], controls
) -> LiveFigure:
    """Show your distribution over the seven words as bars, and the library's as diamonds.

    yours(**state) -> (probabilities (7,) or None, problem); library(**state) -> probabilities (7,).
    """
    model = LOGITS.softmax(dim=-1).cpu().numpy()

    def measured(state):
        got, problem = yours(**state)
        return (np.zeros(len(WORDS)) if got is None else got.double().cpu().numpy()), problem

    def draw(**state):
        drawn = np.clip(measured(state)[0], 0, 1)
        expected = library(**state).cpu().numpy()
        return NextToken(WORDS, model, drawn, expected, now_name="yours", truth_name="the library's")

    def describe(**state):
        got, problem = measured(state)
        if problem:
            return problem
        expected = library(**state).double().cpu().numpy()
        gap = np.abs(got - expected)
        if abs(got.sum() - 1) > 1e-3:
            return f"Your probabilities sum to {got.sum():.3f}; they should sum to 1."
        if gap.max() < 1e-5:
            return "Yours and the library's are the same."
        worst = int(gap.argmax())
        return f"Largest difference, at “{WORDS[worst]}”: yours {got[worst]:.3f}, the library's {expected[worst]:.3f}."

    return LiveFigure(draw, controls, describe)


def explore_temperature(function: Callable) -> LiveFigure:
    """Show your `temperature_softmax(logits, temperature)` on the seven words."""
    return beside_the_library(
        lambda temperature: attempt(function, LOGITS.clone(), temperature, shape=(len(WORDS),)),
        lambda temperature: next_token_distribution(LOGITS, temperature),
        {"temperature": slider("temperature (0 = greedy)", 1.0, 0.0, 5.0, 0.1)},
    )


def explore_filter(function: Callable, library: Callable, controls: dict) -> LiveFigure:
    """Show your filter on the seven words, in any order; the bars are the softmax of its result."""

    def shared(filtered: Tensor | None, problem: str, places: Tensor) -> tuple[Tensor | None, str]:
        if filtered is None:
            return None, problem
        if not (filtered > -torch.inf).any():
            return None, "Your filter leaves no token: every logit is −inf."
        return filtered.float().softmax(dim=-1)[places.argsort()], ""

    def places(shuffled: bool) -> Tensor:
        return torch.tensor([3, 0, 6, 1, 5, 2, 4]) if shuffled else torch.arange(len(WORDS))

    def yours(shuffled, **setting):
        order = places(shuffled)
        return shared(*attempt(function, LOGITS[order], *setting.values(), shape=(len(WORDS),)), order)

    def right(shuffled, **setting):
        return library(LOGITS, *setting.values()).softmax(dim=-1)

    shuffled = widgets.Checkbox(value=False, description="pass the logits in a different order")
    return beside_the_library(yours, right, {**controls, "shuffled": shuffled})


def explore_top_k(function: Callable) -> LiveFigure:
    """Show your `top_k_filter(logits, k)`; the slider for k goes beyond the seven tokens."""
    return explore_filter(function, top_k_filter, {"k": slider("k", 3, 1, 9, 1)})


def explore_top_p(function: Callable) -> LiveFigure:
    """Show your `top_p_filter(logits, p)`."""
    return explore_filter(function, top_p_filter, {"p": slider("p", 0.9, 0.05, 1.0, 0.05)})


def explore_next_token(function: Callable) -> LiveFigure:
    """Show how often your `sample_next_token` samples each of the seven words, with the library's probabilities."""

    def yours(seed, temperature, top_k, top_p):
        settings = settings_of(len(WORDS), temperature, top_k, top_p, 0.0)
        rows = LOGITS.expand(DRAWS, -1).clone()
        generator = torch.Generator().manual_seed(seed)
        ids, problem = attempt(
            function, rows, temperature, settings["top_k"], settings["top_p"], generator, shape=(DRAWS,)
        )
        if ids is None:
            return None, problem
        if ids.is_floating_point() or ids.min() < 0 or ids.max() >= len(WORDS):
            return (
                None,
                f"Your function returned something that is no id: ids are whole numbers from 0 to {len(WORDS) - 1}.",
            )
        return torch.bincount(ids.long(), minlength=len(WORDS)) / DRAWS, ""

    def right(seed, temperature, top_k, top_p):
        return next_token_distribution(LOGITS, **settings_of(len(WORDS), temperature, top_k, top_p, 0.0))

    controls = {name: control for name, control in knobs(len(WORDS)).items() if name != "min_p"}
    return beside_the_library(yours, right, {"seed": slider("seed", 1, 0, 9, 1), **controls})


def explore_generate(function: Callable) -> LiveFigure:
    """Show a Tinytown text from your `generate`, and how much each of its words surprised the model."""
    model, tokenizer = load_pretrained("tinytown")
    prompt = torch.tensor([tokenizer.encode("once there was a", end=False)])  # (1, T)
    n = 20
    shape = (1, prompt.shape[1] + n)

    @cache
    def text(temperature: float, seed: int) -> tuple[Tensor, str]:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            ids, problem = attempt(
                function, model, prompt.clone(), n, model.config.max_seq_len, temperature, generator, shape=shape
            )
        if ids is not None and (ids.is_floating_point() or ids.min() < 0 or ids.max() >= len(tokenizer)):
            ids, problem = None, "Your text contains something that is no id of the vocabulary."
        if ids is not None and not torch.equal(ids[:, : prompt.shape[1]], prompt):
            problem = "Your text does not begin with the prompt."
        return (torch.zeros(shape, dtype=torch.int64) if ids is None else ids), problem

    def surprises(ids: Tensor) -> np.ndarray:
        with evaluating(model):
            log_p = model(ids[:, :-1]).log_softmax(dim=-1).gather(-1, ids[:, 1:, None])  # (1, T − 1, 1)
        return -log_p.flatten().cpu().numpy()

    def draw(temperature, seed):
        ids, _ = text(temperature, seed)
        written = ids.any()
        words = [tokenizer.tokens[i] if written else "" for i in ids[0, 1:]]
        nats = surprises(ids) if written else np.zeros(len(words))
        return figures.Surprise(words, nats, prompt.shape[1] - 1)

    def describe(temperature, seed):
        ids, problem = text(temperature, seed)
        if problem:
            return problem
        if temperature == 0:
            right = generate(model, prompt, n, temperature=0)
            assert isinstance(right, Tensor)
            if not torch.equal(ids, right):
                return "At temperature 0 there is only one correct text, and yours is different."
        nats = surprises(ids)[prompt.shape[1] - 1 :]
        return f"Temperature {temperature:.1f}, seed {seed}: {nats.mean():.2f} nats per new word."

    def read(temperature, seed):
        ids, _ = text(temperature, seed)
        return f"Your function wrote: {tokenizer.decode(ids[0])}" if ids.any() else ""

    controls = {"temperature": slider("temperature", 0.0, 0.0, 2.0, 0.1), "seed": slider("seed", 0, 0, 9, 1)}
    return LiveFigure(draw, controls, describe, read)


EXPLORERS = {
    "sampling.temperature": explore_temperature,
    "sampling.top_k": explore_top_k,
    "sampling.top_p": explore_top_p,
    "sampling.next_token": explore_next_token,
    "sampling.generate": explore_generate,
}
