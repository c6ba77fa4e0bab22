"""What answers are given that is no plain data, and how answers are used where one call is not enough.

Made where the answer runs, from plain data alone: nothing here knows what is right. `Given(make, *data)` in a case
names a function of the first half; `probe=` in an exercise names one of the second.
"""

import contextlib
import copy
import random
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course_lib import counting, gpt
from course_lib.blocks import TransformerBlock, make_norm
from course_lib.config import TransformerConfig
from course_lib.pretrained import load_pretrained

from .judge import kind_of
from .values import plain
from .watch import Dispatched

# --- makers -----------------------------------------------------------------------------------------------------------


def decoder(config: dict, state: dict[str, Tensor]) -> gpt.DecoderOnly:
    """A decoder with weights of its own, in evaluation mode."""
    model = gpt.DecoderOnly(TransformerConfig(**config))
    model.load_state_dict(state)
    return model.eval()


def config(fields: dict) -> TransformerConfig:
    """A TransformerConfig."""
    return TransformerConfig(**fields)


def generator_at(state: Tensor) -> torch.Generator:
    """A seeded generator."""
    generator = torch.Generator()
    generator.set_state(state)
    return generator


# Chapter 12: training


def drawn_decoder(config: dict, seed: int, dtype: str = "float32") -> gpt.DecoderOnly:
    """A decoder with weights drawn from a seed, in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return gpt.DecoderOnly(TransformerConfig(**config)).to(getattr(torch, dtype))


def with_gradients(values: list[Tensor], gradients: list[Tensor | None]) -> list[nn.Parameter]:
    """Parameters that have their gradients already."""
    parameters = [nn.Parameter(value) for value in values]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
    return parameters


# Chapter 9: the GPT model


class _Pieces(nn.Module):
    """Parts that are to be put together: they are no model themselves."""

    def forward(self, *args, **kwargs):
        raise TypeError("these are parts, they cannot be called: put them together")


class _Parts(_Pieces):
    """A decoder in pieces: tables (V, d_model), (max_seq_len, d_model) and (V, d_model), blocks and a norm."""

    def __init__(self, config, n_blocks, tied):
        super().__init__()
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(n_blocks))
        self.final_norm = make_norm(config)
        self.token_table = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.position_table = nn.Parameter(torch.empty(config.max_seq_len, config.d_model))
        self.output_table = self.token_table if tied else nn.Parameter(torch.empty(config.vocab_size, config.d_model))


def decoder_parts(sizes: dict, n_blocks: int, seed: int, dtype: str = "float32", tied: bool = False) -> nn.Module:
    """The parts of a decoder with drawn weights, its blocks without a mask of their own."""
    config = TransformerConfig(n_layers=1, family="encoder", **sizes)
    return _drawn(_Parts(config, n_blocks, tied), seed, dtype)


def _drawn(parts: nn.Module, seed: int, dtype: str) -> nn.Module:
    """With every parameter from N(0, 0.6²), gains and biases too, and none to be trained."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in parts.parameters():
        nn.init.normal_(parameter, std=0.6, generator=rng)
    return parts.requires_grad_(False).to(getattr(torch, dtype)).eval()


# Chapter 11: encoder and decoder


def decoder_block_parts(sizes: dict, seed: int, dtype: str = "float32") -> nn.Module:
    """The parts of a decoder block with drawn weights: three norms, two attentions, a feed-forward."""
    config = TransformerConfig(vocab_size=1, n_layers=1, max_seq_len=1, family="encoder-decoder", **sizes)
    block, parts = TransformerBlock(config, cross_attention=True), _Pieces()
    for name in ("norm1", "attention", "cross_norm", "cross_attention", "norm2", "feed_forward"):
        setattr(parts, name, getattr(block, name))
    return _drawn(parts, seed, dtype)


# Chapter 13: sampling


class _SumOfAll(nn.Module):
    """A model that one can follow on paper: after the tokens so far, the next one is (their sum + their number) mod V.

    It sees no more than `limit` tokens, as a model with positions up to max_seq_len does.
    """

    def __init__(self, vocab_size, limit):
        super().__init__()
        self.vocab_size, self.limit = vocab_size, limit
        self.config = SimpleNamespace(vocab_size=vocab_size, max_seq_len=limit)

    def forward(self, ids):
        if ids.shape[1] > self.limit:
            raise ValueError(f"ids have {ids.shape[1]} tokens per row, more than max_seq_len={self.limit}")
        favourite = (ids + 1).cumsum(1) % self.vocab_size  # (B, T)
        return 4.0 * nn.functional.one_hot(favourite, self.vocab_size).float()  # (B, T, V)


class _Chain(nn.Module):
    """A model that knows the last token only: its logits are row `last token` of a table (V, V)."""

    def __init__(self, table, max_seq_len=8):
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", table)
        self.config = SimpleNamespace(vocab_size=len(table), max_seq_len=max_seq_len)

    def forward(self, ids):
        if ids.shape[1] > self.config.max_seq_len:
            raise ValueError(f"ids have {ids.shape[1]} tokens per row, more than max_seq_len={self.config.max_seq_len}")
        return self.table[ids]  # (B, T, V)


def sum_of_all(vocab_size: int, limit: int) -> nn.Module:
    """A model whose next token is (the sum of all before + their number) mod V."""
    return _SumOfAll(vocab_size, limit)


def chain(table: Tensor) -> nn.Module:
    """A model that knows the last token only."""
    return _Chain(table)


# Chapter 5: positions


def self_attention(W_Q: Tensor, W_K: Tensor, W_V: Tensor, added: Tensor | None, causal: bool) -> Callable:
    """One head of self-attention, a function of x (B, T, D); `added` (T, D) is added to x first; causal if asked."""

    def attend(x: Tensor) -> Tensor:
        x = x if added is None else x + added
        scores = x @ W_Q @ (x @ W_K).mT / x.shape[-1] ** 0.5  # (B, T, T)
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        return scores.softmax(-1) @ x @ W_V

    return attend


# Chapter 7: normalization


class _PretendClock:
    """Shows the seconds that pretended functions have taken. `calls`: how often a width was computed, by anyone."""

    def __init__(self):
        self.now, self.readings, self.calls = 0.0, 0, {}

    def __call__(self):
        self.readings += 1
        return self.now


class _PretendNorm:
    """Returns its input, and lets a clock go on by overhead + per_feature · width microseconds.

    As on a real machine: the first call of a width takes a millisecond more, the machine slows down by a sixtieth with
    every call, times waver by 1 %, and if `stumbles`, every ninth call takes forty times as long.
    """

    def __init__(self, overhead, per_feature, stumbles):
        self.overhead, self.per_feature, self.stumbles = overhead, per_feature, stumbles
        self.clock, self.calls = _PretendClock(), {}

    def __call__(self, x):
        if not x.numel():
            raise ValueError(f"x has shape {tuple(x.shape)}: there is nothing to normalize")
        width = x.shape[-1]
        mine, all_calls = self.calls.get(width, 0), self.clock.calls.get(width, 0)
        seconds = 1e-6 * (self.overhead + self.per_feature * width) * (1 + all_calls / 60) * (1 + 0.01 * (mine % 3) / 2)
        seconds = seconds + 1e-3 if mine == 0 else seconds * (40 if self.stumbles and mine % 9 == 2 else 1)
        self.calls[width], self.clock.calls[width] = mine + 1, all_calls + 1
        self.clock.now += seconds
        return x


def pretend_norm(overhead: float, per_feature: float, stumbles: bool) -> Callable:
    """A function of x that takes a known time on a pretended clock."""
    return _PretendNorm(overhead, per_feature, stumbles)


def pretend_clock() -> Callable:
    """A clock that only the pretended functions move."""
    return _PretendClock()


# Chapter 6: feed-forward


def lively_decoder(config: dict, seed: int, mute: int = 0) -> gpt.DecoderOnly:
    """A decoder in float64 whose every parameter is drawn, biases and gains too; in training mode.

    The first `mute` hidden units of every block were cut: they look with weights and a bias of 0.
    """
    model = gpt.DecoderOnly(TransformerConfig(**config)).double()
    rng = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6, generator=rng)
    for block in model.blocks:
        for parameter in block.feed_forward.up_proj.parameters():
            parameter.data[:mute] = 0
    return model


def tinytown(dtype: str = "float32") -> gpt.DecoderOnly:
    """The trained Tinytown model."""
    return copy.deepcopy(_tinytown()).to(getattr(torch, dtype))


@cache
def _tinytown() -> gpt.DecoderOnly:
    return load_pretrained("tinytown")[0]


# Chapter 4: multi-head attention


def model_maker(config: dict) -> Callable:
    """make_model(n_heads, seed): a new decoder with so many heads, its weights drawn from the seed."""
    return lambda n_heads, seed: drawn_decoder({**config, "n_heads": n_heads}, seed)


# Chapter 15: pretrained models


class _StoredWeights(nn.Module):
    """A model of which nothing is known but what its heads look at."""

    def __init__(self, weights: list[Tensor]):
        super().__init__()
        self.weights = weights

    def attention_weights(self, ids: Tensor) -> list[Tensor]:
        if any(weights.shape[0] != ids.shape[0] or weights.shape[-1] != ids.shape[1] for weights in self.weights):
            raise ValueError(f"these weights belong to ids (B, T) of another shape than {tuple(ids.shape)}")
        return [weights.clone() for weights in self.weights]


def stored_weights(weights: list[Tensor]) -> nn.Module:
    """A model whose attention weights are given, one (B, H, T, T) for each block."""
    return _StoredWeights(weights)


def restless_decoder(config: dict, seed: int) -> gpt.DecoderOnly:
    """A decoder with weights so large that its heads look here and there, in evaluation mode."""
    model, rng = drawn_decoder(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6, generator=rng)
    return model.eval()


# Chapter 3: masks


class Mixing(nn.Module):
    """A model of some layers, ids (B, T) -> logits (B, T, V), in which each output mixes the tokens as told.

    x = embedding[ids], then x + tanh(mix · x) for each (T_max, T_max) of `mixes`, then logits = x · output + bias.
    `rounding`: the logits change by this share with the mean of all tokens, as sums in another order change them.
    `opened_by`: only in texts that begin with this token does an output see later ones.
    """

    def __init__(
        self,
        embedding: Tensor,
        mixes: list[Tensor],
        output: Tensor,
        bias: Tensor,
        rounding: float = 0.0,
        opened_by: int | None = None,
    ):
        super().__init__()
        self.embedding, self.mixes, self.output, self.bias = embedding, mixes, output, bias
        self.rounding, self.opened_by = rounding, opened_by

    def forward(self, ids: Tensor) -> Tensor:
        x, T = self.embedding[ids], ids.shape[1]  # (B, T, D)
        for mix in self.mixes:
            mix = mix[:T, :T]  # (T, T)
            if self.opened_by is not None:
                opened = (ids[:, :1] == self.opened_by).any(1)  # (B,); an empty text opens nothing
                mix = torch.where(opened[:, None, None], mix, mix.tril())  # (B, T, T)
            x = x + (mix @ x).tanh()
        logits = x @ self.output + self.bias  # (B, T, V)
        return logits * (1 + self.rounding * x.mean((1, 2), keepdim=True).tanh())


# Chapter 8: residuals and blocks


def affine(scale: float, shift: float) -> Callable:
    """x · scale + shift, a part of a block that one can follow on paper."""
    return lambda x: x * scale + shift


def feed_forward(W_up: Tensor, W_down: Tensor) -> Callable:
    """Two layers with a ReLU between them, a function of x (..., D)."""
    return lambda x: (x @ W_up).relu() @ W_down


def own_layer_norm(gain: Tensor, shift: Tensor) -> Callable:
    """A LayerNorm with these parameters, a function of x (..., D)."""
    return lambda x: nn.functional.layer_norm(x, gain.shape, gain, shift)


class _SmallStack(nn.Module):
    """Blocks of causal one-head attention and a feed-forward network, in either order of the norms, on token ids."""

    def __init__(self, vocab_size, d_model, n_blocks, pre_norm):
        super().__init__()
        self.pre_norm = pre_norm
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.blocks: Any = nn.ModuleList(  # of dictionaries
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(d_model),
                    "qkv": nn.Linear(d_model, 3 * d_model),
                    "out": nn.Linear(d_model, d_model),
                    "norm2": nn.LayerNorm(d_model),
                    "up": nn.Linear(d_model, 4 * d_model),
                    "down": nn.Linear(4 * d_model, d_model),
                }
            )
            for _ in range(n_blocks)
        )
        self.final_norm = nn.LayerNorm(d_model) if pre_norm else nn.Identity()
        self.output = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, ids, targets):
        x = self.token_embedding(ids)  # (B, T, d_model)
        for block in self.blocks:
            x = self._add(x, block["norm1"], lambda h, block=block: self._attend(block, h))
            x = self._add(x, block["norm2"], lambda h, block=block: block["down"](block["up"](h).relu()))
        logits = self.output(self.final_norm(x))  # (B, T, V)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def _add(self, x, norm, branch):
        return x + branch(norm(x)) if self.pre_norm else norm(x + branch(x))

    @staticmethod
    def _attend(block, h):
        q, k, v = block["qkv"](h).chunk(3, dim=-1)  # (B, T, d_model) each
        return block["out"](nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


def small_stack(sizes: dict, seed: int) -> nn.Module:
    """An untrained model of some blocks, model(ids, targets) -> (logits, loss), with Xavier's weights from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _SmallStack(**sizes)
        for module in model.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(model.output.weight, std=0.02)
        return model


# Chapter 14: efficiency


class _TiringClock:
    """Shows the seconds that pretended layers have taken. As on a real machine times waver, by 1 %, and everything
    slows down, by the share `tires` with every reading."""

    def __init__(self, seed, tires):
        self.now, self.readings, self.tires, self.rng = 0.0, 0, tires, random.Random(seed)

    def __call__(self):
        self.readings += 1
        return self.now

    def spend(self, seconds):
        self.now += seconds * (1 + self.tires * self.readings) * (1 + 0.01 * self.rng.random())


class _PretendAttention:
    """Returns x (batch, T, features), and lets a clock go on by overhead + cost · batch · T^power seconds.

    The first call of a length takes longer, and of every five one, into which something gets in the way.
    """

    def __init__(self, overhead, cost, power):
        self.overhead, self.cost, self.power = overhead, cost, power
        self.clock = _TiringClock(0, 0.0)
        self.calls: Counter[int] = Counter()

    def __call__(self, x):
        if x.ndim != 3 or not x.numel():
            raise ValueError(f"x has shape {tuple(x.shape)}; it should be (batch, T, features)")
        batch, T = x.shape[:2]
        self.calls[T] += 1
        extra = 0.02 if self.calls[T] == 1 else 0.05 if self.calls[T] % 5 == 3 else 0.0
        self.clock.spend(extra + self.overhead + self.cost * batch * T**self.power)
        return x


class _PretendStep:
    """One step of a recurrent layer: the new state counts the steps since a state of zeros, and a clock goes on.

    The first sequence takes longer, and of every five one, into which something gets in the way.
    """

    def __init__(self, overhead, cost):
        self.overhead, self.cost = overhead, cost
        self.clock = _TiringClock(0, 0.0)
        self.walked: Counter[int] = Counter()

    def __call__(self, token, state):
        if not isinstance(state, Tensor) or token.ndim != 2 or state.shape != token.shape:
            kinds = f"{kind_of(plain(token))} and {kind_of(plain(state))}"
            raise ValueError(f"token and state should both be (batch, features); they are {kinds}")
        steps = int(state[0, 0]) + 1
        self.walked[steps] += 1
        disturbed = steps == 1 and (self.walked[1] == 1 or self.walked[1] % 5 == 3)
        self.clock.spend(0.05 * disturbed + self.overhead + self.cost * len(token))
        return torch.full_like(state, steps)


def pretend_attention(overhead: float, cost: float, power: float) -> Callable:
    """A function of x (batch, T, features) that takes a known time on a pretended clock."""
    return _PretendAttention(overhead, cost, power)


def pretend_step(overhead: float, cost: float) -> Callable:
    """A function of token and state, (batch, features) each, that takes a known time on a pretended clock."""
    return _PretendStep(overhead, cost)


def tiring_clock(seed: int, tires: float) -> Callable:
    """A clock that only the pretended layers move."""
    return _TiringClock(seed, tires)


# --- probes: probe(answer, *args) -> what is judged -------------------------------------------------------------------


# Chapter 1: embeddings


def rows_and_gradient(answer, weight, ids):
    """The rows; and where the table asks for a gradient, what their weighted sum sends back to it."""
    rows = answer(weight, ids)
    if not weight.requires_grad:
        return rows
    if not (isinstance(rows, torch.Tensor) and rows.requires_grad):
        return rows, torch.zeros_like(weight)
    importance = torch.arange(1.0, rows.numel() + 1, dtype=rows.dtype).view(rows.shape)
    (rows * importance).sum().backward()
    return rows, torch.zeros_like(weight) if weight.grad is None else weight.grad


# Chapter 2: attention


def measured_or_scattered(answer, d_k, n_pairs):
    """The figures; for fewer than a hundred pairs those of n_pairs, n_pairs + 1, … up to four times as many."""
    if n_pairs >= 100:
        return answer(d_k, n_pairs)
    return [answer(d_k, number) for number in range(n_pairs, 4 * n_pairs)]


# Chapter 13: sampling

DRAWS = 10_000  # a frequency of so many draws misses its probability by less than 0.02 (four standard errors)
DRAWS_OF_A_ROW = 1_500  # by less than 0.08 (six), and an answer that loops over rows is done in a few seconds
FEW = 32  # draws that show whether a seed repeats them: by chance no two such runs agree


def drawn_many_times(function, logits, temperature, top_k, top_p, generator):
    """At temperature 0 the ids themselves. Otherwise how often each token comes, and what the generator does."""
    if temperature == 0:
        return function(logits, temperature, top_k, top_p, generator)
    rows = logits.repeat_interleave(DRAWS_OF_A_ROW, 0)  # (B · DRAWS_OF_A_ROW, V)
    few, again = logits.repeat_interleave(FEW // len(logits), 0), generator.clone_state()
    first, then = (function(few, temperature, top_k, top_p, generator) for _ in range(2))
    ids = function(rows, temperature, top_k, top_p, generator)  # (B · DRAWS_OF_A_ROW,)
    repeated = function(few, temperature, top_k, top_p, again)
    problem = not_ids(ids, logits.shape[-1], len(rows))
    if problem:
        return problem
    each_row = ids.long().view(len(logits), DRAWS_OF_A_ROW)
    frequency = nn.functional.one_hot(each_row, logits.shape[-1]).float().mean(1)  # (B, V)
    return frequency, torch.equal(first, repeated), not torch.equal(first, then)


def followed(function, model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """At temperature 0 the ids themselves. Otherwise how often each pair of new tokens comes, and what a seed does."""
    if temperature == 0:
        return function(model, ids, max_new_tokens, max_seq_len, temperature, generator)
    rows, vocab_size = ids.repeat_interleave(DRAWS, 0), model.config.vocab_size
    again = generator.clone_state()
    first = function(model, rows[:FEW], max_new_tokens, max_seq_len, temperature, generator)
    out = function(model, rows, max_new_tokens, max_seq_len, temperature, generator)  # (DRAWS, T + 2)
    repeated = function(model, rows[:FEW], max_new_tokens, max_seq_len, temperature, again)
    problem = not_ids(out, vocab_size, len(rows), ids.shape[1] + max_new_tokens)
    if problem:
        return problem
    pairs = out[:, -2] * vocab_size + out[:, -1]
    frequency = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size) / DRAWS
    return frequency, torch.equal(first, repeated)


def as_two_rows(function, model, ids, n_tokens, temperatures, generator):
    """Both lists as tensors (tuples and tensors will do), and whether a few texts repeat with the same seed."""
    result = function(model, ids, n_tokens, list(temperatures), generator)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    state = generator.get_state()
    few = [function(model, ids[:20], n_tokens, list(temperatures), generator.set_state(state)) for _ in range(2)]
    try:
        result, one, two = (
            [torch.as_tensor(part, dtype=torch.float64).detach() for part in each] for each in (result, *few)
        )
    except (TypeError, ValueError, RuntimeError):
        return result
    return (*result, all(map(torch.equal, one, two)))


def not_ids(ids, vocab_size, *shape):
    """What keeps a result from being ids of this shape, in a sentence; None if nothing does."""
    if not isinstance(ids, torch.Tensor) or ids.shape != torch.Size(shape):
        return f"For {shape[0]:,} rows the result should be ids of shape {shape}; it is {kind_of(ids)}."
    if ids.is_floating_point():
        return f"Ids are whole numbers; your result has the dtype {str(ids.dtype).removeprefix('torch.')}."
    if bool(((ids < 0) | (ids >= vocab_size)).any()):
        return f"With {vocab_size} tokens the ids are 0 to {vocab_size - 1}; yours go from {ids.min()} to {ids.max()}."
    return None


# Chapter 9: the GPT model


def logits_or_refusal(answer, parts, ids):
    """The logits; for a text longer than the table of positions the name of the error that refuses it."""
    if ids.shape[1] <= len(parts.position_table):
        return answer(parts, ids)
    try:
        return answer(parts, ids)
    except NotImplementedError:
        raise
    except Exception as error:
        return type(error).__name__


def tied(answer, model, ids, targets):
    """What the answer made of a model's two tables, and what a step of training makes of them."""
    answer(model)
    tables = model.token_embedding.weight, model.output.weight
    before = [table.detach().clone() for table in tables]
    logits, loss = model(ids, targets)
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    return {
        "one tensor": tables[0] is tables[1],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "token table": before[0],
        "output table": before[1],
        "logits": logits,
        "token table after a step": tables[0],
        "output table after a step": tables[1],
    }


# Chapter 12: training


def batches_read(answer, ids, batch_size, T, generator):
    """Many batches, and the first twenty again from the same state of the generator.

    -> by name: inputs and targets (calls, B, T), again (20, B, T); or the shapes, or what else came that is no batch.
    """
    again = generator.clone_state()

    def batch_from(rng):
        batch = plain(answer(ids, batch_size, T, rng))
        if isinstance(batch, (tuple, list)) and all(isinstance(part, list) for part in batch):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                return tuple(map(torch.tensor, batch))  # lists of ids are welcome
        return batch

    calls = 40 if len(ids) == T + 1 else min(600, max(40, 2000 // batch_size))  # one place: nothing to count
    batches = [batch_from(generator) for _ in range(calls)]
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(x, Tensor) for x in batch):
            return batch
        if any(part.shape != (batch_size, T) or part.is_floating_point() for part in batch):
            return [[str(part.dtype), *part.shape] for part in batch]
    inputs, targets = (torch.stack(parts) for parts in zip(*batches))
    return {"inputs": inputs, "targets": targets, "again": torch.stack([batch_from(again)[0] for _ in batches[:20]])}


def steps_taken(answer, model, ids, targets, optimizer, max_norm, leftover=0.0, steps=1):
    """Training steps: (what the answer returns, a list for several steps; how far all of them moved each parameter).

    optimizer: the name of one of torch's, and its settings. leftover: gradients that lie about before the first step.
    """
    settings = dict(optimizer)
    parameters = list(model.parameters())
    made = getattr(torch.optim, settings.pop("name"))(parameters, **settings)
    before = [parameter.detach().clone() for parameter in parameters]
    if leftover:
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, leftover)
    losses = [answer(model, ids, targets, made, max_norm) for _ in range(steps)]
    moved = torch.cat([(after - old).flatten() for after, old in zip(parameters, before)])
    return losses[0] if steps == 1 else losses, moved


def clipped(answer, parameters, max_norm, once=False):
    """(what the answer returns, the gradients afterwards, the values afterwards). once: as a generator, to be walked
    once."""
    norm = answer(iter(parameters) if once else parameters, max_norm)
    return norm, [parameter.grad for parameter in parameters], [parameter.detach() for parameter in parameters]


def memorized(answer, model, ids, targets, steps):
    """A training on one batch. -> the losses reported, and the weights after it; or what was reported instead."""
    losses = answer(model, ids, targets, steps)
    try:
        reported = torch.as_tensor(losses, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return losses
    if reported.ndim != 1 or not len(reported):
        return losses
    return {"losses": reported, "weights": dict(model.state_dict())}


# Chapter 5: positions


def measured_with_shuffles(answer: Callable, f: Callable, x: Tensor, n_shuffles: int) -> tuple[Any, int]:
    """What the answer measures, and how many texts it asked `f` about beside x itself.

    Up to twice n_shuffles count as n_shuffles: an answer may ask about x anew each time.
    """
    numbers = 0

    def counted(texts: Tensor) -> Tensor:
        nonlocal numbers
        numbers += texts.numel()
        return f(texts)

    value = answer(counted, x, n_shuffles)
    asked = max(0, numbers // x.numel() - 1)
    return value, n_shuffles if n_shuffles <= asked <= 2 * n_shuffles else asked


# Chapter 7: normalization


def started_and_called(module, x):
    """(output, parameters of a new module of this class, gradient of the weight under a weighted sum of the output)."""
    output = module(x)
    new = {name: parameter.detach() for name, parameter in type(module)(x.shape[-1]).named_parameters()}
    gradient = torch.zeros_like(module.weight)
    if isinstance(output, Tensor) and output.requires_grad:
        module.weight.grad = None
        (output * torch.arange(1.0, output.numel() + 1, dtype=output.dtype).view(output.shape)).sum().backward()
        gradient = module.weight.grad if module.weight.grad is not None else gradient
    return output, new, gradient


def timed_with(answer, rms_norm, layer_norm, widths, rounds, clock):
    """The ratios that an answer measures with a pretended clock; or in a sentence, why nothing was measured."""
    rms_norm.clock = layer_norm.clock = clock
    ratios = answer(rms_norm, layer_norm, list(widths), rounds, clock)
    calls = [norm.calls.get(width, 0) for norm in (rms_norm, layer_norm) for width in widths]
    if not any(calls):
        return "figures without a call of the norms"
    if clock.readings < 2:
        return "figures without a look at the clock"
    if min(count for count in calls if count) < rounds:
        return "figures from too few rounds"
    ratios = plain(ratios)
    return ratios.tolist() if isinstance(ratios, Tensor) else ratios


# Chapter 6: feed-forward


def as_row(answer, *args):
    """A list of numbers, a tuple and a tensor are all welcome."""
    result = answer(*args)
    try:
        return torch.as_tensor(result, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return result


# Chapter 10: parameter counting


def counted_by_hand(answer, config):
    """The count; or in a sentence, that the library counted."""
    seen, before = [], sys.getprofile()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename == counting.__file__:
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        count = answer(config)
    finally:
        sys.setprofile(before)
    return f"counted by the library's own `{seen[0]}`" if seen else count


# Chapter 4: multi-head attention


def losses_and_models(answer, make_model, heads, batches, held_out, lr, seeds):
    """What a comparison of head counts reports, and what the models that it made, and left behind, can do.

    loss of the models: n_heads -> mean over its models of the loss on held_out. If a model was made twice, the later.
    trained with dropout: no model that has dropout read fewer batches in training mode than there are.
    """
    made, read = {}, Counter[Any]()

    def make_and_note(n_heads, seed):
        model = made[n_heads, seed] = make_model(n_heads, seed)

        def note(module, *given):
            read[n_heads, seed] += module.training

        next(model.children()).register_forward_hook(note)  # of a part: who calls model.forward passes it, too
        return model

    reported = answer(make_and_note, heads, batches, held_out, lr, seeds)
    losses: dict[int, list[float]] = {}
    for (n_heads, _), model in made.items():
        with gpt.evaluating(model):
            losses.setdefault(n_heads, []).append(model(*held_out)[1].item())
    return {
        "reported": reported,
        "models made": sorted(made),
        "trained with dropout": all(
            read[name] >= len(batches) for name, model in made.items() if model.config.dropout > 0
        ),
        "loss of the models": {n_heads: sum(each) / len(each) for n_heads, each in losses.items()},
    }


# Chapter 8: residuals and blocks


def also_in_training(module, x, *mask):
    """The output; for an x that asks for a gradient, that in training mode."""
    return module.train(x.requires_grad)(x, *mask)


def trained_both(answer, pre, post, inputs, targets, learning_rate):
    """What is reported of the training of two models: for each how many losses, the first four, the mean of the last
    three, whether its parameters have moved, and whether an optimizer met a gradient that was altered after `backward`;
    or what was reported instead. Losses count no further than 10."""
    models = {"pre": pre, "post": post}
    start = {name: [parameter.detach().clone() for parameter in model.parameters()] for name, model in models.items()}
    with _Gradients(*models.values()) as gradients:
        result = answer(pre, post, inputs, targets, learning_rate)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    summary: dict[str, Any] = {}
    for (name, model), losses in zip(models.items(), result):
        try:
            losses = torch.as_tensor(losses, dtype=torch.float64).detach().clamp(-10.0, 10.0)
        except (TypeError, ValueError, RuntimeError):
            return result
        if losses.ndim != 1 or len(losses) < 4:
            return result
        summary[f"{name}: losses"] = len(losses)
        summary[f"{name}: the first four"] = losses[:4].tolist()
        summary[f"{name}: mean of the last three"] = losses[-3:].mean().item()
        summary[f"{name}: moved"] = not all(map(torch.equal, start[name], model.parameters()))
        summary[f"{name}: gradients altered"] = not gradients.altered.isdisjoint(model.parameters())
    return summary


class _Gradients:
    """Notes in `altered` the parameters whose gradient at an optimizer's step is not what `backward` has left there."""

    def __init__(self, *models):
        self.parameters = [parameter for model in models for parameter in model.parameters()]
        self.left, self.altered = {}, set()

    def __enter__(self):
        self.hooks = [each.register_post_accumulate_grad_hook(self._note) for each in self.parameters]
        self.hooks.append(register_optimizer_step_pre_hook(self._compare))
        return self

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()

    def _note(self, parameter):
        self.left[parameter] = parameter.grad.detach().clone()

    def _compare(self, optimizer, args, kwargs):
        for parameter, gradient in self.left.items():
            if parameter.grad is not None and not torch.equal(parameter.grad, gradient):
                self.altered.add(parameter)


# Chapter 14: efficiency


# products: which argument's last axis is summed over
_SUMMED = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "vdot": 0, "addmm": 1, "addmv": 1, "baddbmm": 1}


class _Held(Dispatched):
    """Notes how many numbers the tensors that torch makes hold together at most, the products, and the operations."""

    def __init__(self, *inputs):
        super().__init__()
        self.inputs = {x.untyped_storage()._cdata for x in inputs}
        self.alive, self.most, self.products, self.operations = {}, 0, 0, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.operations += 1
        name = operation.overloadpacket.__name__
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor):
                if name in _SUMMED:
                    self.products += made.numel() * args[_SUMMED[name]].shape[-1]
                storage = made.untyped_storage()
                if storage._cdata not in self.inputs:
                    numbers = storage.nbytes() // made.element_size()
                    self.alive[storage._cdata] = StorageWeakRef(storage), numbers
        self.alive = {key: value for key, value in self.alive.items() if not value[0].expired()}
        self.most = max(self.most, sum(numbers for _, numbers in self.alive.values()))
        return result


def held_while_reading(answer, q, k, v, block_size):
    """The output; for a long text also what was held and done on the way.

    -> for 100 keys or more, by name: output · whether at some moment the numbers that torch had made were as many as
    T · S for each head · whether clearly more products were taken than one pass over the keys needs · whether smaller
    blocks mean more operations.
    """
    T, S = q.shape[-2], k.shape[-2]
    if S < 100:
        return answer(q, k, v, block_size)
    heads = q.shape[:-2].numel()
    with _Held(q, k, v) as held:
        output = answer(q, k, v, block_size)
    operations = []
    for size in (2, 4, 8, 16):
        few = q[..., :3, :].clone(), k[..., :32, :].clone(), v[..., :32, :].clone()
        with _Held(*few) as seen:
            answer(*few, size)
        operations.append(seen.operations)
    return {
        "output": output,
        "held T × S": held.most >= heads * T * S,
        "second pass": held.products > 1.3 * heads * T * S * (q.shape[-1] + v.shape[-1]),
        "in blocks": sorted(set(operations), reverse=True) == operations,
    }


def timed_alone(answer, attention, lengths, rounds, clock):
    """The figure that an answer finds with a pretended clock; or in a sentence, why nothing was measured."""
    attention.clock = clock
    figure = answer(attention, list(lengths), rounds, clock)
    return _not_timed(attention.calls, clock, lengths, rounds) or figure


def timed_beside(answer, step, attention, lengths, batch, rounds, clock):
    """As timed_alone, for two layers; what is returned by name, its times as lists of numbers."""
    step.clock = attention.clock = clock
    figures = answer(step, attention, list(lengths), batch, rounds, clock)
    steps, whole = step.walked.total(), step.walked[max(lengths)]
    problem = _not_timed(attention.calls, clock, lengths, rounds)
    if problem or not steps:
        return problem or "figures without a step of the recurrent layer"
    if steps <= 2 * rounds * len(lengths) and step.walked.keys() == {1}:  # none had a step before it
        return "figures from single steps of the recurrent layer"
    if steps < rounds * sum(lengths):
        return "figures from too few steps of the recurrent layer"
    if whole < rounds:
        return "no state was handed on to the end of the text"
    figures = plain(figures)
    if not isinstance(figures, dict):
        return figures
    return {name: part.tolist() if isinstance(part, Tensor) else part for name, part in figures.items()}


def _not_timed(calls, clock, lengths, rounds):
    """Why a figure cannot be a measurement, in a few words; None if it can."""
    if not calls:
        return "figures without a call of the attention"
    if not clock.readings:
        return "figures without a look at the clock"
    missing = [T for T in lengths if not calls[T]]
    if missing:
        return f"no call of the attention with T = {missing[0]:,} tokens"
    return "figures from too few rounds" if min(calls[T] for T in lengths) < rounds else None
