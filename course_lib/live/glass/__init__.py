"""The glass model: a small decoder that runs in the page itself and shows every intermediate value.

`engine.js` computes without a kernel, `view.js` draws, and `pack` converts a model of the library for them.
"""

import base64
import copy
import gzip
import inspect
import json
import re
from collections.abc import Callable, Sequence
from colorsys import hls_to_rgb
from html import escape
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from course_lib.config import TransformerConfig
from course_lib.course.contents import BY_SLUG
from course_lib.embeddings import TokenEmbedding
from course_lib.feed_forward import FeedForward, SwiGLU
from course_lib.gpt import DecoderOnly
from course_lib.heads import MultiHeadAttention
from course_lib.live.glass.pack import MOST_IN_HALVES, pack
from course_lib.live.numbers import share
from course_lib.live.palette import BLUE, GREEN, ORANGE, PURPLE, RED, SKY
from course_lib.pretrained import load_pretrained
from course_lib.sampling import next_token_distribution
from course_lib.tinytown import SubwordTokenizer, WordTokenizer
from course_lib.trace import evaluating

HERE = Path(__file__).parent
MODULES = ("text.js", "engine.js", "flow.js", "address.js", "still.js", "view.js")  # each after those it imports
SENTENCES = (  # each stops before a word that the model can know
    "once there was a prince called adam . adam went to portugal . the capital of portugal is",
    "the black owl sat on the red rug because it was sad . yes , the black",
    "paul gave emma a yellow ring . now emma has the yellow",
    "the baker followed the painter . who followed the painter ? it was the",
    "clara said : stone sand moon . jack said it too : stone sand",
)
IN_DIALOGUE = (  # for a model with the chat template of chapter 16
    "<user> what is the capital of norway ? <assistant>",
    "<user> the pig said what ? <assistant>",
    "<user> the dog bit the cat . who bit the cat ? <assistant>",
)
IN_ENGLISH = (  # for a model with subword tokens
    "When Mary and John went to the store, John gave a drink to",
    "The capital of France is",
    "One, two, three, four, five,",
    "The cat sat on the mat because it was tired. The cat",
    "To be, or not to be, that is the",
)
OF_A_MODEL = {  # the first sentences for models trained on other text
    "stories15m": (
        "Lily and Ben went to the park. Lily gave her ball to",
        "Once upon a time, there was a little girl named",
        "Lily has a cat. The cat's name is Max. Lily loves",
        "The dog was sad because he lost his ball. Then he found his",
        "Ben was cold, so he put on his",
    ),
    "smollm2-135m": (
        "The capital of France is",
        "When Mary and John went to the store, John gave a drink to",
        "Dr. Baker plays the violin. At night Dr.",
        "The chemical symbol for gold is",
        "def add(a, b): return a +",
    ),
}
HEADINGS = {
    "stories15m": (
        '<p>This model of 15 million weights tells children\'s stories: <a href="https://github.com/karpathy/llama2.c">'
        'Karpathy 2023</a>, trained on <a href="https://arxiv.org/abs/2305.07759">TinyStories</a>; its weights are '
        "stored here in 8 bits. It reads and writes tokens, which are words or pieces of words: · is the space before "
        "a word, &lt;s&gt; the beginning of a story.</p>"
    ),
    "smollm2-135m": (
        "<p>The smallest SmolLM2, with 135 million weights, about the size of the smallest GPT-2: "
        '<a href="https://arxiv.org/abs/2502.02737">Ben Allal et al. 2025</a>, Hugging Face, under Apache-2.0. It was '
        "trained on 2 trillion tokens of web text and code, then to follow instructions. Its weights were downloaded "
        "in 4 bits and are stored in 8. It knows some facts and gets others wrong: try “Water is made of hydrogen "
        "and”. It reads and writes tokens, which are words or pieces of words: · is the space before a word, ↵ a "
        "new line.</p>"
    ),
}
OWN = """<header class="own"><h1>A small Transformer, taken apart</h1>
<p>This language model of {count:,} weights runs in your browser. Type a text, remove a part, and see what changes.
It belongs to the course {course}.</p></header>"""  # at the top of a page of its own
SLIDERS = (  # name in engine.js, label, minimum, maximum, step, initial value; all but the first are off at that value
    ("temperature", "temperature", 0, 2, 0.05, 1),
    ("topK", "top-k", 1, 50, 1, 50),
    ("topP", "top-p", 0.05, 1, 0.05, 1),
    ("minP", "min-p", 0, 0.5, 0.01, 0),
)


SEE_MORE = (
    "<p>The glass model takes a text of your own, and you follow each of its words through it: every head, every unit, "
    "every block opens with its numbers.</p>"
)
Words = WordTokenizer | SubwordTokenizer


def glass(
    model: DecoderOnly | None = None, tokenizer: Words | None = None, text: str = "", part: str | None = None
) -> None:
    """Show a model in a notebook, so that it can be taken apart. It runs in the page, so the kernel is free for other
    work. The notebook keeps a picture of the last text and of the part that was open.

    Args:
        model, tokenizer: as in `html`.
        text: the first text.
        part: the part that is open at first: "embedding", "next", or a part of a layer such as "1.head.2",
            "1.feed_forward" or "1.lens", counted from 0.

    Errors: as `html`; ValueError for a text or a part that the model does not have. ValueError also for a model of more
        than five million weights, which is too large for a cell: `html` writes it as a separate page.
    """
    from course_lib.live.glass.widget import GlassModel
    from course_lib.live.page import publish

    model, tokenizer = _either(model, tokenizer)
    if (count := sum(weight.numel() for weight in model.parameters())) > MOST_IN_HALVES:
        raise ValueError(
            f"model has {count:,} weights, too many for a notebook's cell ({MOST_IN_HALVES:,}): write it as a page of "
            "its own with `python -m course_lib glass --model NAME`"
        )
    about, packed = about_of(model, tokenizer, text, part), pack(model, tokenizer)  # both check their arguments
    as_packed = copy.deepcopy(model)  # the page keeps this model even if training continues
    first = {"text": about["sentences"][0], "open": part, "view": about["view"]}
    shown = GlassModel(packed=packed, about=about, seen=first)
    keep = publish(shown, *kept(as_packed, tokenizer, first["text"], part))
    shown.observe(lambda seen: keep(*kept(as_packed, tokenizer, seen.new["text"], seen.new["open"])), "seen")


def html(
    model: DecoderOnly | None = None,
    tokenizer: Words | None = None,
    text: str = "",
    part: str | None = None,
    sentences: Sequence[str] = (),
    beside: str = "",
    heading: str = "",
    home: str = "",
) -> str:
    """Return a complete page in which a model can be taken apart, without a kernel and without requests to a server.

    Its address follows what the reader does, and a link to it shows the same: the text, the view, the open part, the
    chosen token, the removed parts and the sliders, as in `glass.html#text=the+dog&part=2.head.3&without=1.head.0`.
    Within another page it follows that page's theme (see web/course.js).

    Args:
        model: a decoder of up to 200 million weights (see `pack`); Tinytown's by default.
        tokenizer: the model's own; Tinytown's by default.
        text, part: the first text and the first open part, as in `glass`.
        sentences: sentences to choose from, in place of the usual ones.
        `beside`: the name of a file in the page's own folder with `packed_small(model, tokenizer)`. The page fetches
        this
            file, so it needs a server. Without it, the page itself contains the weights.
        heading: HTML above the model, such as a description of it.
        home: the address of the course, for the link at the top. Without it, the page names the course only.

    Errors: as `pack`; ValueError for a model without its tokenizer, or for a text or a part that it does not have.
    """
    model, tokenizer = _either(model, tokenizer)
    packed = pack(model, tokenizer)  # raises an error for a model that the page cannot show
    code = "" if beside else base64.b64encode(packed).decode()
    told = json.dumps(about_of(model, tokenizer, text, part, sentences), ensure_ascii=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>A small Transformer, taken apart</title>
<link rel="icon" href="data:,">
<style>body {{ margin: 0; }} main, header {{ margin: auto; }}
@media (prefers-color-scheme: dark) {{ body:not([data-jp-theme-light]) {{ background: #17191c; }} }}
{(HERE / "glass.css").read_text(encoding="utf-8")}</style>
<noscript><style>main.glass .note {{ display: none; }}</style></noscript>
{OWN.format(count=sum(weight.numel() for weight in model.parameters()), course=_course(home))}
{heading and f'<header class="glass">{heading}</header>'}
<main class="glass"><p class="note" role="status">The model is on its way …</p>
<noscript>{_without_scripts(model, tokenizer, text, part, sentences)}</noscript></main>
<script type="text/plain" id="packed">{code}</script>
<script type="module">
{script()}
{(HERE / "page.js").read_text(encoding="utf-8")}
const bytes = await {f"fetched({json.dumps(beside)})" if beside else "inThePage()"};
play(bytes, {told});
</script>
</html>
"""


def _without_scripts(
    model: DecoderOnly, tokenizer: Words, text: str, part: str | None, sentences: Sequence[str]
) -> str:
    """Return what the page shows in a browser that runs no scripts: one sentence, and a picture of a small model."""
    said = (
        "<p>The model needs JavaScript to run, and your browser does not run it here. With JavaScript, you can type a "
        "text of your own, open each head and remove parts.</p>"
    )
    if sum(weight.numel() for weight in model.parameters()) > MOST_IN_HALVES:
        return said  # its maps are too many for a picture
    first = text or next(iter(sentences or _sentences(tokenizer)))
    return kept(model, tokenizer, first, part, below=said)[0]


def _course(home: str) -> str:
    """Return the course's name, as a link if its address is known."""
    return f'<a href="{escape(home)}" target="_top">Transformers, Measured</a>' if home else "“Transformers, Measured”"


def packed_small(model: DecoderOnly, tokenizer: Words) -> bytes:
    """Return the output of `pack`, compressed, for `html(…, beside=…)`. Errors: as `pack`."""
    return gzip.compress(pack(model, tokenizer), mtime=0)


def script() -> str:
    """Return engine and view as one module without imports."""
    parts = "\n".join((HERE / name).read_text(encoding="utf-8") for name in MODULES)
    return re.sub(r"^import .*\n|^export (?!default)", "", parts, flags=re.MULTILINE)


def about_of(
    model: DecoderOnly, tokenizer: Words, text: str = "", part: str | None = None, sentences: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what view.js needs in addition to the weights. Errors: as `glass`."""
    if text:
        tokenizer.encode(text)  # raises an error for an unknown word
    config = model.config
    whole = {"embedding", "next", *(f"{i}.{name}" for i in range(config.n_layers) for name in ("feed_forward", "lens"))}
    whole |= {f"{i}.head.{h}" for i in range(config.n_layers) for h in range(config.n_heads)}
    if part is not None and part not in whole:
        raise ValueError(
            f'part must be "embedding", "next", or a part such as "0.head.0", "0.feed_forward", "0.lens" of '
            f"{config.n_layers} blocks of {config.n_heads} heads, got {part!r}"
        )
    sentences = [*([text] if text else []), *(sentences or _sentences(tokenizer))]
    few = config.n_layers * config.n_heads <= FEW_HEADS
    one = "word" if isinstance(tokenizer, WordTokenizer) else "token"  # what the model writes in one step
    shown = most_missed(model, _ids(model, tokenizer, sentences[0])) if few else (config.n_layers - 1, 0)
    return {
        "sentences": sentences,
        "whole": sorted(whole),
        "sliders": SLIDERS,
        "parts": parts(config, one),
        "tour": tour(config, shown, one),
        "open": part,
        "view": "maps" if part else "flow",
        "colours": _colours(config.n_heads),
        "one": one,
    }


def _sentences(tokenizer: Words) -> list[str]:
    """Return the first sentences that the tokenizer knows."""
    if isinstance(tokenizer, SubwordTokenizer):
        return list(IN_ENGLISH)
    known = set(tokenizer.tokens)
    return [each for each in (*IN_DIALOGUE, *SENTENCES) if known.issuperset(each.split())] or [
        " ".join(tokenizer.tokens[3:8])
    ]


def _colours(n_heads: int) -> list[str]:
    """Return a colour for each head: the course's colours if they suffice, otherwise evenly spaced hues."""
    if n_heads <= len(named := [BLUE, ORANGE, GREEN, RED, PURPLE, SKY]):
        return named[:n_heads]
    hues = ((205 / 360 + h / n_heads) % 1 for h in range(n_heads))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue, 0.48, 0.7)) for hue in hues]


def in_words(model: DecoderOnly, tokenizer: Words, text: str) -> str:
    """Return a sentence about the first view of the page: the text and the most probable next words."""
    ids = _ids(model, tokenizer, text)
    with evaluating(model):
        likely = next_token_distribution(model(ids)[0, -1]).topk(3)
    found = [(p, i) for p, i in zip(likely.values.tolist(), likely.indices.tolist()) if p >= 0.005]
    names = [
        tokenizer.tokens[i] if isinstance(tokenizer, WordTokenizer) else tokenizer.decode([i]).strip() for _, i in found
    ]
    words = [f"{name} {share(p)}" for name, (p, _) in zip(names, found)]
    return f"“{text}” … the next word: {', '.join(words)}."


def _ids(model: DecoderOnly, tokenizer: Words, text: str) -> Tensor:
    """Return the ids of a text, (1, T), without an end token and at most as long as the page reads."""
    ids = (
        tokenizer.encode(text, end=False)
        if isinstance(tokenizer, WordTokenizer)
        else tokenizer.encode(text, special=True)
    )
    return torch.tensor([ids[: model.config.max_seq_len - 1]], device=model.token_embedding.weight.device)


def kept(model: DecoderOnly, tokenizer: Words, text: str, part: str | None, below: str = SEE_MORE) -> tuple[str, str]:
    """Return what replaces the widget on a page without a kernel, as HTML and as plain text.

    The HTML has a picture of this text and this part, the words, and the HTML `below`, which says how to see more.
    """
    from course_lib.live.figure import as_html, few_colours, png
    from course_lib.live.glass.picture import draw, in_a_sentence, look

    def name(token: int) -> str:
        return tokenizer.tokens[token] if isinstance(tokenizer, WordTokenizer) else spelt(tokenizer.decode([token]))

    words, ids = in_words(model, tokenizer, text), _ids(model, tokenizer, text)
    seen = look(model, ids, [name(token) for token in ids[0].tolist()])
    figure = draw(seen, name, part, _colours(model.config.n_heads))
    below = f"<p>{escape(words)}</p>{below}"
    still = as_html(few_colours(png(figure)), figure, f"{words} {in_a_sentence(seen, name, part)}.", below)
    return still, f"[glass model] {words}" + (f" Open: {part}." if part else "")


def spelt(piece: str) -> str:
    """Return a subword as the page shows it, with signs for a space and a new line."""
    return piece.replace(" ", "·").replace("\n", "↵")


def _either(model: DecoderOnly | None, tokenizer: Words | None) -> tuple[DecoderOnly, Words]:
    if model is not None and tokenizer is not None:
        return model, tokenizer
    if model is not None or tokenizer is not None:
        raise ValueError("model and tokenizer belong together: give both, or neither for Tinytown's")
    return load_pretrained("tinytown")


WHERE_IT_STANDS = {  # how each kind of positions reaches a token
    "learned": "a second learned table has a row for its position. Their sum enters the model.",
    "sinusoidal": "sines and cosines encode its position. Their sum enters the model.",
    "rope": "its position is added later: every head rotates queries and keys by their positions.",
    "alibi": "its position is used later: every head lowers the scores of distant tokens.",
    "none": "only the mask gives away its position.",
}


def parts(config: TransformerConfig, one: str = "word") -> dict[str, dict[str, str | int]]:
    """Return what the page says about each part: title, text, formula, chapter, and the library's own line."""
    gated, added = config.activation == "swiglu", config.positions in ("learned", "sinusoidal")
    return {
        "embedding": _part(
            "embeddings",
            TokenEmbedding.forward,
            "Embedding and position" if added else "Embedding",
            f"Each token is a row of a learned table; {WHERE_IT_STANDS[config.positions]}",
            "x[t] = token_embedding[id[t]]" + (" + position[t]" if added else ""),
        ),
        "head": _part(
            "heads",
            MultiHeadAttention.forward,
            "head",
            "The query of the chosen token is compared with the keys of this token and of all earlier ones. Softmax "
            "turns the scores into weights, and the head outputs the weighted mean of the values.",
            "weights = softmax(query · keyᵀ / √D), output = weights · value",
        ),
        "feed_forward": _part(
            "feed_forward",
            SwiGLU.forward if gated else FeedForward.forward,
            "feed-forward network",
            "Each unit compares the token's vector with its own pattern, and adds its own vector in proportion.",
            "W_down (silu(W_gate x) ⊙ W_up x)" if gated else f"W_down {config.activation}(W_up x + b_up) + b_down",
        ),
        "lens": _part(
            "gpt",
            DecoderOnly.forward,
            "residual stream and logit lens",
            "Both branches of the layer add to the residual stream. The logit lens reads the stream as if this layer "
            "were the last, and shows what the model would predict here.",
            "logits = output(final_norm(x))",
        ),
        "next": _part(
            "sampling",
            next_token_distribution,
            f"The next {one}",
            "The logits are divided by the temperature, the filters remove improbable candidates, softmax turns the "
            f"rest into probabilities, and one {one} is sampled.",
            "p = softmax(filters(logits / T))",
        ),
    }


FEW_HEADS = 64  # up to this many heads are removed one at a time


def most_missed(model: DecoderOnly, ids: Int[Tensor, "1 T"]) -> tuple[int, int]:
    """Return the layer and the head without which the next token's distribution changes most, in total variation."""
    found = {}
    with evaluating(model):
        whole = model(ids)[0, -1].softmax(-1)
        for layer, block in enumerate(model.blocks):
            for head in range(model.config.n_heads):
                columns = slice(head * model.config.d_head, (head + 1) * model.config.d_head)

                def silence(_module: nn.Module, inputs: tuple[Tensor], columns: slice = columns) -> tuple[Tensor]:
                    heads = inputs[0].clone()
                    heads[..., columns] = 0
                    return (heads,)

                hook = block.attention.out_proj.register_forward_pre_hook(silence)
                found[layer, head] = (model(ids)[0, -1].softmax(-1) - whole).abs().sum().item()
                hook.remove()
    return max(found, key=lambda place: found[place])


def tour(config: TransformerConfig, head: tuple[int, int] = (0, 0), one: str = "word") -> list[dict[str, str | None]]:
    """Return the steps of "Show me around": the open part, the marked place, and the text about it.

    head: the layer and the head that the tour opens and removes.
    """
    last, shown = config.n_layers - 1, f"{head[0]}.head.{head[1]}"
    steps = (
        (
            None,
            "tokens",
            f"""
            Your text is split into tokens, small pieces that each have a number. Choose a token, and everything below
            shows that token. The last one is chosen now: at its position the model predicts the next {one}. (If a text
            begins with <bos> or <s>, that token marks the beginning.)""",
        ),
        (
            None,
            "path",
            """
            From left to right, layer by layer, ribbons carry information from other tokens to the chosen one. Each
            attention head has its own colour, and a wider ribbon carries a vector of greater norm. Press “Play”.
            Click a ribbon to open its head, with ribbons for the query, the keys and the values.""",
        ),
        (
            "embedding",
            "panel",
            f"""
            Now you see maps instead of ribbons; the two buttons above switch between them. A token's path begins with
            its id, which picks a row of a table: {config.d_model} numbers, the same wherever the word appears. This row
            enters the model as the token's vector, and every layer adds to it.""",
        ),
        (
            shown,
            "panel",
            """
            Each small map above is an attention head. It has one row for each query token, dark where the weight is
            large. This one is open, with all its words. Press “Play this row” to see the query times the keys, the
            softmax, and the mixing of the values.""",
        ),
        (
            shown,
            "panel",
            f"""
            Press “Remove this head”, and every later number changes at once, up to the next {one}. Which heads does
            the model need? The parts you removed are listed above the tokens; click one there to put it back. The next
            step of this tour also puts it back.""",
        ),
        (
            f"{last}.feed_forward",
            "panel",
            f"""
            The feed-forward network reads what the heads have gathered, one token at a time. It has {config.d_ff}
            units; the ones that fire most here are listed. You can remove each of them.""",
        ),
        (
            "0.lens",
            "path",
            """
            Each layer adds to its input vector. “Would say” reads the sum as if the model ended there: go down the
            column and find the layer in which the answer appears.""",
        ),
        (
            "next",
            "filters",
            f"""
            In the end every {one} that the model knows has a probability. Move the temperature, then top-k, top-p
            and min-p, and see which {one}s remain.""",
        ),
        (
            "next",
            "write",
            f"""
            Write the next {one}: it is sampled from the {one}s that remain and is added to the text, and the model runs
            again. The results for earlier words are kept; chapter 14 calls this the cache.""",
        ),
    )
    return [
        {"part": part, "view": "maps" if part else "flow", "marks": marks, "text": " ".join(text.split())}
        for part, marks, text in steps
    ]


def _part(slug: str, code: Callable, title: str, text: str, formula: str) -> dict[str, str | int]:
    """Return the words about a part, and the line where the library computes it. The line is looked up, so it stays
    correct."""
    function = inspect.unwrap(code)
    path = Path(function.__code__.co_filename).name
    return {
        "title": title,
        "text": text,
        "formula": formula,
        "chapter": BY_SLUG[slug].number,
        "code": function.__qualname__,
        "line": f"course_lib/{path}, line {function.__code__.co_firstlineno}",
    }
