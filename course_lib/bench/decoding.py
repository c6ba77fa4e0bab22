"""Generation compared with its peers: 128 tokens, one at a time, with the cache."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from course_lib.bench.peers import PlainLoop, same_weights
from course_lib.bench.report import Point, Row
from course_lib.bench.rounds import in_turns
from course_lib.cache import KVCache
from course_lib.config import PRESETS, TransformerConfig
from course_lib.counting import forward_flops, kv_cache_bytes
from course_lib.efficiency import speculate, to_int8
from course_lib.fast import fast
from course_lib.gpt import DecoderOnly
from course_lib.sampling import generate

TOKENS = 128  # generated per run
PROMPT = torch.tensor([[464]])
FEW = 16  # tokens for the loop without a cache, whose time grows quadratically
READ = 512  # tokens of the prompt before the first token


class BareWeights:
    """Only the matrix–vector products of a model's linear layers: a lower bound on the time of generation.

    multiply: computes a product; by default, with the model's layers. `bytes`: the number of bytes read per token.
    """

    def __init__(self, model: DecoderOnly, multiply: Callable[[nn.Linear, Tensor], Tensor] = lambda W, x: W(x)):
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        self.work = [(layer, torch.randn(1, layer.in_features, dtype=layer.weight.dtype)) for layer in layers]
        self.bytes = sum(layer.weight.numel() * layer.weight.element_size() for layer in layers)
        self.multiply = multiply

    @torch.no_grad()
    def __call__(self, tokens: int) -> None:
        for _ in range(tokens):
            for layer, x in self.work:
                self.multiply(layer, x)


def writer(model: nn.Module, tokens: int | None = None, rows: int = 1) -> Callable[[], object]:
    """Return a function that generates `tokens` (by default TOKENS) greedily, for `rows` texts at once."""
    tokens, ids = TOKENS if tokens is None else tokens, PROMPT.repeat(rows, 1)
    return lambda: generate(model, ids, tokens, temperature=0)


def measure(rounds: int) -> Iterator[Row | Point]:
    """Measure generation in GPT-2 small's shape.

    The rows compare ours with transformers, with the bare weights and with a loop without a cache. Further rows cover
    bfloat16 and int8, a batch, and speculative decoding."""
    config = PRESETS["gpt2"]
    models = same_weights(config)
    ours, theirs = fast(models["ours"]).eval(), models["transformers"].model.eval()
    del models
    bare, plain = BareWeights(ours), BareWeights(ours, nn.Linear.forward)
    contest = in_turns(
        {
            "ours": writer(ours),
            "transformers": lambda: theirs.generate(
                PROMPT, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, pad_token_id=0
            ),
            "bare": lambda: bare(TOKENS),
            "nn.Linear": lambda: plain(TOKENS),
            "ours, few": writer(ours, FEW),
            "plain": lambda: PlainLoop(ours)(PROMPT, FEW),
        },
        rounds,
        "writing",
    )
    each = contest.of("ours") / TOKENS
    name = "GPT-2 small, float32"
    yield Row("decode", name, "transformers", contest.times_as_fast("ours", "transformers"), each, "per token", 1.05)
    yield Row("decode", name, "the bare weights", contest.times_as_fast("ours", "bare"), each, "per token", 0.95)
    ratio = contest.times_as_fast("ours", "nn.Linear")
    yield Row("decode", name, "the bare weights by nn.Linear", ratio, each, "per token", 0.95)
    few = contest.of("ours, few") / FEW
    note = f"the first {FEW} tokens; the loop's time per token grows with the text"
    ratio = contest.times_as_fast("ours, few", "plain")
    yield Row("decode", name, "a loop without a cache", ratio, few, "per token", note=note)
    yield point("writing, float32", config, 4, bare.bytes, each)
    yield first_token(ours, theirs, rounds)
    del theirs
    yield from lighter(ours, config, rounds)
    yield from batches(ours, rounds)
    yield from speculation(ours, rounds)


def first_token(ours: DecoderOnly, theirs: Any, rounds: int) -> Row:
    """Measure the time to the first token: the model reads a prompt and generates one token."""
    prompt = torch.randint(ours.config.vocab_size, (1, READ), generator=torch.Generator().manual_seed(0))
    contest = in_turns(
        {
            "ours": lambda: generate(ours, prompt, 1, temperature=0),
            "transformers": lambda: theirs.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=1, do_sample=False, pad_token_id=0
            ),
        },
        rounds,
        "the first token",
    )
    ratio = contest.times_as_fast("ours", "transformers")
    what = f"GPT-2 small, first token after {READ}"
    return Row("decode", what, "transformers", ratio, contest.of("ours"), "per prompt", 1.2)


def point(name: str, config: TransformerConfig, size: int, weights: int, seconds: float) -> Point:
    """Return the roofline's point for one token, which reads the weights once, and on average half the final cache."""
    cache = kv_cache_bytes(config, TOKENS // 2, 1, size)
    return Point(name, forward_flops(config, 1, S=None, cached=TOKENS // 2), weights + cache, seconds)


def lighter(ours: DecoderOnly, config: TransformerConfig, rounds: int) -> Iterator[Row | Point]:
    """Compare the model in bfloat16 and in int8 with the same model in float32."""
    half, bytes_ = fast(DecoderOnly(config)).to(torch.bfloat16).eval(), to_int8(ours)
    half.load_state_dict(ours.state_dict())
    contest = in_turns(
        {"float32": writer(ours), "bfloat16": writer(half), "int8": writer(bytes_)}, rounds, "lighter weights"
    )
    for name, goal, size in (("bfloat16", 2.0, 2), ("int8", 3.0, 1)):
        each = contest.of(name) / TOKENS
        ratio = contest.times_as_fast(name, "float32")
        yield Row("decode", f"GPT-2 small, {name} weights", "itself in float32", ratio, each, "per token", goal)
        yield point(f"writing, {name}", config, 4, size * BareWeights(ours).bytes // 4, each)


def batches(ours: DecoderOnly, rounds: int, B: int = 16) -> Iterator[Row]:
    """Measure a batch, which reads the weights once for all its rows."""
    contest = in_turns({"batch": writer(ours, TOKENS // 4, B), "one": writer(ours, TOKENS // 4)}, rounds, "a batch")
    ratio = contest.times_as_fast("batch", "one")
    each = contest.of("batch") / (B * TOKENS // 4)
    many = type(ratio)(*(B * number for number in ratio))
    yield Row("decode", f"GPT-2 small, {B} texts at once", "one text", many, each, "per token")


def speculation(ours: DecoderOnly, rounds: int, k: int = 4) -> Iterator[Row]:
    """Measure speculative decoding in its two extremes: a draft that is always right, and a draft that never is.

    The weights are random here, so no real draft could predict the model's output. `Told` therefore reads its guesses
    from a prepared text.
    """
    text = cast(Tensor, generate(ours, PROMPT, TOKENS, temperature=0))
    for what, answers in (("all guesses kept", text), ("no guess kept", (text + 1) % ours.config.vocab_size)):
        draft = Told(ours.config, answers)
        contest = in_turns(
            {
                "guessed": partial(speculate, ours, draft, PROMPT, TOKENS, k, temperature=0),
                "alone": writer(ours),
            },
            rounds,
            f"speculation, {what}",
        )
        each = contest.of("guessed") / TOKENS
        ratio = contest.times_as_fast("guessed", "alone")
        note = f"k = {k}; the draft itself costs nothing here"
        yield Row("decode", f"speculative, {what}", "the model alone", ratio, each, "per token", note=note)


class Told(nn.Module):
    """A draft that takes no time: it predicts each next token by reading it from a given text, (1, T)."""

    def __init__(self, config: TransformerConfig, text: Tensor):
        super().__init__()
        self.config, self.text = config, text

    def new_cache(self) -> list[tuple[KVCache, KVCache]]:
        """Return a cache that only counts the tokens read so far."""
        return [(KVCache(), KVCache())]

    def forward(self, ids: Tensor, cache: Sequence[tuple[KVCache, KVCache]]) -> Tensor:
        own = cache[0][0]
        own.append(torch.zeros(1, 1, ids.shape[1], 1), torch.zeros(1, 1, ids.shape[1], 1))
        following = self.text[:, len(own) - ids.shape[1] + 1 : len(own) + 1]  # (1, n)
        return torch.full((1, ids.shape[1], self.config.vocab_size), -torch.inf).scatter(-1, following[..., None], 0.0)
