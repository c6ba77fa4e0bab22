"""Chapter 11's translator of Tinytown's pairs: its batches, its recipe, its translations and its attention weights."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from course_lib.claims.registry import recipe
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.gpt import IGNORED, evaluating
from course_lib.masks import padding_mask
from course_lib.pretrained import save_json, save_pretrained
from course_lib.sampling import generate
from course_lib.tinytown import WordTokenizer
from course_lib.tinytown.french import TinytownPairs
from course_lib.trace import trace
from course_lib.training import train


def stack(rows: Sequence[list[int]], fill: int) -> Tensor:
    """Return rows of different lengths as one tensor (B, T), with `fill` at the end of the shorter ones."""
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows])


def source_batch(sentences: Sequence[str], tokenizer: WordTokenizer) -> tuple[Tensor, Tensor]:
    """Return (source_ids (B, S), source_mask (B, 1, 1, S)): the words and <eos>; the mask is True at words."""
    rows = [tokenizer.encode(sentence)[1:] for sentence in sentences]
    source_ids = stack(rows, tokenizer.pad_id)  # (B, S)
    return source_ids, padding_mask([len(row) for row in rows], source_ids.shape[1])


def pair_batch(pairs: Sequence[tuple[str, str]], tokenizer: WordTokenizer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the inputs of EncoderDecoder: (source_ids (B, S), target_ids (B, T), source_mask (B, 1, 1, S), targets (B,
    T)).

    The decoder reads <bos> and the translation, and predicts the translation and <eos>. It predicts each word from the
    correct words before it (teacher forcing)."""
    source_ids, source_mask = source_batch([english for english, _ in pairs], tokenizer)
    rows = [tokenizer.encode(french) for _, french in pairs]
    target_ids = stack([row[:-1] for row in rows], tokenizer.pad_id)  # (B, T)
    return source_ids, target_ids, source_mask, stack([row[1:] for row in rows], IGNORED)


def pair_batches(tokenizer: WordTokenizer, batch_size: int, seed: int = 0) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches without end, from the pairs of that seed."""
    pairs = TinytownPairs(seed).pairs()
    while True:
        yield pair_batch([next(pairs) for _ in range(batch_size)], tokenizer)


def translate(
    model: EncoderDecoder, tokenizer: WordTokenizer, sentences: Sequence[str], use_mask: bool = True
) -> list[str]:
    """Return the model's own translations, word by word, always with the most probable next word."""
    source_ids, source_mask = source_batch(sentences, tokenizer)
    begin = torch.full((len(sentences), 1), tokenizer.bos_id)  # (B, 1)
    written = generate(
        model,
        begin,
        model.config.max_seq_len - 1,
        temperature=0,
        stop=tokenizer.eos_id,
        source_ids=source_ids,
        source_mask=source_mask if use_mask else None,
    )
    return [tokenizer.decode(row) for row in written]


def share_right(model: EncoderDecoder, tokenizer: WordTokenizer, pairs: Sequence[tuple[str, str]]) -> float:
    """Return the fraction of sentences that the model translates exactly."""
    found = translate(model, tokenizer, [english for english, _ in pairs])
    return statistics.fmean(ours == french for ours, (_, french) in zip(found, pairs))


def cross_weights(
    model: EncoderDecoder, tokenizer: WordTokenizer, english: str, french: str
) -> tuple[list[str], list[str], Tensor]:
    """Return the attention weights for the translation `french`: (source words, target words, weights (layers, H, T,
    S)).

    Row t is the step that writes target word t, when the decoder has read the words before it."""
    source_ids, target_ids, _, targets = pair_batch([(english, french)], tokenizer)
    with evaluating(model), trace(model, "*cross_attention.weights") as seen:
        model(source_ids, target_ids)
    weights = torch.cat(list(seen.values()))  # (layers, H, T, S)
    return [tokenizer.tokens[i] for i in source_ids[0]], [tokenizer.tokens[i] for i in targets[0]], weights


# ------------------------------------------------------------------------------------------------------- the translator
@dataclass(frozen=True)
class TranslatorRecipe:
    """Hold all settings that determine the shipped translator."""

    steps: int = 2000
    batch_size: int = 32
    peak: float = 5e-3
    warmup: int = 50
    seed: int = 0


def translator_config(tokenizer: WordTokenizer, **changes) -> TransformerConfig:
    """Return a config with one encoder block and one decoder block of 64 features and two heads, so you can look at
    every attention."""
    small = TransformerConfig(
        vocab_size=len(tokenizer),
        d_model=64,
        n_heads=2,
        n_layers=1,
        max_seq_len=16,
        activation="relu",
        positions="sinusoidal",
        family="encoder-decoder",
    )
    return replace(small, **changes)


@recipe("translator")
def train_translator(folder: str | Path, progress: bool = True, plan: TranslatorRecipe | None = None) -> dict:
    """Train the translator from scratch (about a minute) and write it to `folder` with its test results."""
    plan = plan or TranslatorRecipe()
    torch.set_num_threads(1)
    torch.manual_seed(plan.seed)
    tokenizer = TinytownPairs().tokenizer()
    model = EncoderDecoder(translator_config(tokenizer))
    batches = pair_batches(tokenizer, plan.batch_size, plan.seed)
    history = train(model, batches, plan.steps, plan.peak, plan.warmup, progress=progress)
    save_pretrained(folder, model, tokenizer)
    figures = {
        "exactly_right": share_right(model, tokenizer, TinytownPairs(HELD_OUT_SEED).sample(1000)),
        "loss_of_last_50_steps": round(statistics.fmean(history.losses[-50:]), 5),
    }
    save_json(Path(folder) / "figures.json", {"figures": figures, "recipe": asdict(plan)})
    return figures
