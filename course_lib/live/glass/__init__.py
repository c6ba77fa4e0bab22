"""The glass model: a small decoder that runs in the page itself, every intermediate of it open to the eye.

`engine.js` computes, without a kernel; `view.js` draws; `pack` hands a model of the library to them.
"""

import base64
import inspect
import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import torch

from course_lib.config import TransformerConfig
from course_lib.contents import BY_SLUG
from course_lib.embeddings import TokenEmbedding
from course_lib.feed_forward import FeedForward, SwiGLU
from course_lib.gpt import DecoderOnly
from course_lib.heads import MultiHeadAttention
from course_lib.live.glass.pack import pack
from course_lib.pretrained import load_pretrained
from course_lib.sampling import next_token_distribution
from course_lib.tinytown import WordTokenizer
from course_lib.trace import evaluating

HERE = Path(__file__).parent
SENTENCES = (  # each leaves a word open that the model can know
    "once there was a prince called adam . adam went to portugal . the capital of portugal is",
    "the black owl sat on the red rug because it was sad . yes , the black",
    "paul gave emma a yellow ring . now emma has the yellow",
    "the baker followed the painter . who followed the painter ? it was the",
    "clara said : stone sand moon . jack said it too : stone sand",
)
SLIDERS = (  # name in engine.js, label, lowest, highest, step, where it begins; all but the first are off there
    ("temperature", "temperature", 0, 2, 0.05, 1),
    ("topK", "top-k", 1, 50, 1, 50),
    ("topP", "top-p", 0.05, 1, 0.05, 1),
    ("minP", "min-p", 0, 0.5, 0.01, 0),
)


def glass(
    model: DecoderOnly | None = None, tokenizer: WordTokenizer | None = None, text: str = "", part: str | None = None
) -> None:
    """Show a model in a notebook, so that it can be taken apart. It runs in the page: the kernel may do something else.

    Args: model, tokenizer: as in `html`. text: to begin with. part: that is open at the beginning: "embedding", "next",
        or of a layer and a head, counted from 0, "1.head.2", "1.feed_forward", "1.lens".

    Errors: as `html`; ValueError for a text or a part that the model does not have.
    """
    from course_lib.live.glass.widget import GlassModel
    from course_lib.live.page import publish

    model, tokenizer = _either(model, tokenizer)
    about = about_of(model, tokenizer, text, part)
    words = in_words(model, tokenizer, about["sentences"][0])
    publish(GlassModel(packed=pack(model, tokenizer), about=about), still(words), f"[glass model] {words}")


def html(
    model: DecoderOnly | None = None, tokenizer: WordTokenizer | None = None, text: str = "", part: str | None = None
) -> str:
    """Return a page, whole and on its own, in which a model can be taken apart: no kernel, no request to any server.

    Args:
        model: of the decoder family, small (see `pack`); Tinytown's if left out.
        tokenizer: the model's own; Tinytown's if left out.
        text, part: to begin with, as in `glass`.

    Errors: as `pack`; ValueError for a model without its tokenizer, or for a text or a part that it does not have.
    """
    model, tokenizer = _either(model, tokenizer)
    code = base64.b64encode(pack(model, tokenizer)).decode()
    told = json.dumps(about_of(model, tokenizer, text, part), ensure_ascii=False).replace("<", "\\u003c")
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>A small Transformer, taken apart</title>
<link rel="icon" href="data:,">
<style>body {{ margin: 0; }}
{(HERE / "glass.css").read_text(encoding="utf-8")}</style>
<main></main>
<script type="module">
{script()}
const bytes = Uint8Array.from(atob("{code}"), (letter) => letter.charCodeAt(0));
mount(document.querySelector("main"), bytes, {told});
</script>
</html>
"""


def script() -> str:
    """Return engine and view as one module, which imports nothing."""
    parts = "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("engine.js", "view.js"))
    return re.sub(r"^import .*\n|^export (?!default)", "", parts, flags=re.MULTILINE)


def about_of(model: DecoderOnly, tokenizer: WordTokenizer, text: str = "", part: str | None = None) -> dict[str, Any]:
    """Return what view.js has to know beside the weights. Errors: as `glass`."""
    if text:
        tokenizer.encode(text)  # names a word that it does not know
    config = model.config
    whole = {"embedding", "next", *(f"{i}.{name}" for i in range(config.n_layers) for name in ("feed_forward", "lens"))}
    whole |= {f"{i}.head.{h}" for i in range(config.n_layers) for h in range(config.n_heads)}
    if part is not None and part not in whole:
        raise ValueError(
            f'part must be "embedding", "next" or such as "0.head.0", "0.feed_forward", "0.lens", for '
            f"{config.n_layers} blocks of {config.n_heads} heads, got {part!r}"
        )
    known = set(tokenizer.tokens)
    fitting = [sentence for sentence in SENTENCES if known.issuperset(sentence.split())]
    sentences = [*([text] if text else []), *(fitting or [" ".join(tokenizer.tokens[3:8])])]
    return {"sentences": sentences, "sliders": SLIDERS, "parts": parts(config), "tour": tour(config), "open": part}


def in_words(model: DecoderOnly, tokenizer: WordTokenizer, text: str) -> str:
    """Return what the page shows first, as a sentence: the text and the words that may follow."""
    ids = torch.tensor([tokenizer.encode(text, end=False)], device=model.token_embedding.weight.device)
    with evaluating(model):
        likely = next_token_distribution(model(ids)[0, -1]).topk(3)
    found = [(p, i) for p, i in zip(likely.values.tolist(), likely.indices.tolist()) if p >= 0.005]
    words = [f"{tokenizer.tokens[i]} {p:.0%}" for p, i in found]
    return f"“{text}” … the next word: {', '.join(words)}."


def still(words: str) -> str:
    """Return what stands on the page where no widget can: the words, and how to see more."""
    return (
        f"<p>{escape(words)}</p><p>Run this cell to type a text of your own and follow each of its words through the "
        "model: every head, every unit, every block opens with its numbers.</p>"
    )


def _either(model: DecoderOnly | None, tokenizer: WordTokenizer | None) -> tuple[DecoderOnly, WordTokenizer]:
    if model is not None and tokenizer is not None:
        return model, tokenizer
    if model is not None or tokenizer is not None:
        raise ValueError("model and tokenizer belong together: give both, or neither for Tinytown's")
    return load_pretrained("tinytown")


WHERE_IT_STANDS = {  # how a config's positions reach a token
    "learned": "a second, learned table says where it stands. Their sum enters the model.",
    "sinusoidal": "sines and cosines say where it stands. Their sum enters the model.",
    "rope": "where it stands is told later: every head turns queries and keys by their positions.",
    "alibi": "where it stands is told later: every head takes something off the scores of what is far.",
    "none": "nothing but the mask tells where it stands.",
}


def parts(config: TransformerConfig) -> dict[str, dict[str, str | int]]:
    """Return what each part of the page says of itself: title, text, formula, chapter, and the library's own line."""
    gated, added = config.activation == "swiglu", config.positions in ("learned", "sinusoidal")
    return {
        "embedding": _part(
            "embeddings", TokenEmbedding.forward, "Embedding and position" if added else "Embedding",
            f"Each token is a row of a learned table; {WHERE_IT_STANDS[config.positions]}",
            "x[t] = token_embedding[id[t]]" + (" + position[t]" if added else ""),
        ),
        "head": _part(
            "heads", MultiHeadAttention.forward, "head",
            "The chosen token asks with its query; each earlier one answers with its key. Softmax turns scores into "
            "weights, and these mix the values.",
            "weights = softmax(query · keyᵀ / √D), output = weights · value",
        ),
        "feed_forward": _part(
            "feed_forward", SwiGLU.forward if gated else FeedForward.forward, "feed-forward network",
            "Each unit asks one question of the token's vector, and adds its own answer as far as it fires.",
            "W_down (silu(W_gate x) ⊙ W_up x)" if gated else f"W_down {config.activation}(W_up x + b_up) + b_down",
        ),
        "lens": _part(
            "gpt", DecoderOnly.forward, "residual stream and logit lens",
            "Both branches of the block add to the residual stream. Read after this block as if it were the last, the "
            "stream says what the model would say by now.",
            "logits = output(final_norm(x))",
        ),
        "next": _part(
            "sampling", next_token_distribution, "The next word",
            "The logits are divided by the temperature, the filters put out what is improbable, softmax makes "
            "probabilities of what is left, and one word is drawn.",
            "p = softmax(filters(logits / T))",
        ),
    }  # fmt: skip


def tour(config: TransformerConfig) -> list[dict[str, str | None]]:
    """Return the steps of "Show me around": the part that opens, what is marked, and what to see and to try there."""
    last = config.n_layers - 1
    steps = (
        (None, "tokens", """
            Your text is cut into tokens; here each word and each punctuation mark is one. Choose a token, and
            everything below follows it. Now it is the last one: at its position the next word is predicted."""),
        ("embedding", "panel", f"""
            The token's id picks a row of a table: {config.d_model} numbers, the same wherever the word stands. They
            enter the model as the token's vector, and every part below adds to it."""),
        (f"{last}.head.0", "panel", """
            Each small map is an attention head: a row for each token that asks, dark where it looks. This one is
            open, with all its words. Press “Play this row” and watch query times keys, softmax, mix."""),
        (f"{last}.head.0", "path", """
            Remove this head, and every later number follows at once. Which heads are missed, and which are not?
            “Put this head back” undoes it."""),
        (f"{last}.feed_forward", "panel", f"""
            The feed-forward network reads what the heads have gathered, one token at a time. It has {config.d_ff}
            units, of which few fire strongly. Each can be removed by itself."""),
        ("0.lens", "path", """
            Each block adds to the vector that it was given. “Would say” reads the sum as if the model ended there:
            go down the column, and see in which block the answer appears."""),
        ("next", "filters", """
            In the end every word that the model knows has a probability. Move the temperature, then top-k, top-p
            and min-p, and see which words are left."""),
        ("next", "write", """
            Write the next word: it is drawn from the words that are left and joins the text, and the way begins
            again. What was computed for earlier words is kept; chapter 14 calls that the cache."""),
    )  # fmt: skip
    return [{"part": part, "marks": marks, "text": " ".join(text.split())} for part, marks, text in steps]


def _part(slug: str, code: Callable, title: str, text: str, formula: str) -> dict[str, str | int]:
    """Return the words of a part, and where the library computes it: a line that is looked up, so never wrong."""
    function = inspect.unwrap(code)
    path = Path(function.__code__.co_filename).name
    return {
        "title": title, "text": text, "formula": formula, "chapter": BY_SLUG[slug].number,
        "code": function.__qualname__, "line": f"course_lib/{path}, line {function.__code__.co_firstlineno}",
    }  # fmt: skip
