"""Chapter 11's encoder that fills blanks: the model, its passages with hidden words, and its recipe."""

import re
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.chapters.encoder_decoder.translator import stack
from course_lib.claims.registry import recipe
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import IGNORED, evaluating, next_token_loss
from course_lib.masks import padding_mask
from course_lib.pretrained import save_json, save_pretrained
from course_lib.tinytown import Tinytown, WordTokenizer
from course_lib.training import train

MASK = "<mask>"


def masked_tokenizer() -> WordTokenizer:
    """Return a tokenizer for Tinytown's words and <mask>."""
    return WordTokenizer([*Tinytown().vocabulary, MASK])


class MaskedReader(nn.Module):
    """Guess hidden words with an encoder: hidden states times the token table give logits, as in BERT.

    BERT has one more linear layer and a norm before the table (Devlin et al. 2019); here there is only the final
    norm."""

    def __init__(self, encoder: EncoderOnly):
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config

    def forward(self, ids: Tensor, mask: Tensor | None = None, targets: Tensor | None = None):
        """Return logits (B, T, V) of the word at every position; with targets also the loss, as in DecoderOnly."""
        logits = self.encoder(ids, mask) @ self.encoder.token_embedding.weight.T  # (B, T, d_model) @ (d_model, V)
        return logits if targets is None else (logits, next_token_loss(logits, targets))


SENTENCES = 2  # number of sentences in a passage


def passage(story: str, at: int = 0) -> str:
    """Return two neighbouring sentences of a story. `at` chooses where they begin; 0 is the beginning."""
    sentences = re.findall(r"[^.?]+[.?]", story)
    first = at % max(1, len(sentences) - SENTENCES + 1)
    return "".join(sentences[first : first + SENTENCES]).strip()


class MaskedBatches:
    """Yield (ids (B, T), mask, targets (B, T)) without end. A fraction of the words is hidden, and only these are
    targets.

    BERT leaves one in ten of these words unchanged and replaces another one by a random word, so that it learns to read
    text without <mask> too. Here all are hidden. The texts are passages of two sentences, so short that the reader
    learns in minutes. `generator` samples passages and positions; `train` saves its state."""

    def __init__(self, tokenizer: WordTokenizer, n_stories: int, batch_size: int, share: float, seed: int = 0):
        self.passages = [
            tokenizer.encode(passage(story, i)) for i, story in enumerate(Tinytown(seed).sample(n_stories))
        ]
        self.tokenizer, self.batch_size, self.share = tokenizer, batch_size, share
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor, Tensor]:
        chosen = torch.randint(len(self.passages), (self.batch_size,), generator=self.generator, device="cpu").tolist()
        rows = [self.passages[i] for i in chosen]
        ids = stack(rows, self.tokenizer.pad_id)  # (B, T)
        drawn = torch.rand(ids.shape, generator=self.generator) < self.share
        hidden = drawn & (ids > self.tokenizer.eos_id)  # only words, not <pad>, <bos> or <eos>
        mask = padding_mask([len(row) for row in rows], ids.shape[1])
        return ids.masked_fill(hidden, self.tokenizer.id(MASK)), mask, ids.masked_fill(~hidden, IGNORED)


def fill(encoder: EncoderOnly, tokenizer: WordTokenizer, text: str, k: int = 3) -> list[list[tuple[str, float]]]:
    """Return for each <mask> in the text the k most probable words with their probabilities."""
    ids = torch.tensor([tokenizer.encode(text)])  # (1, T)
    with evaluating(encoder):
        p = MaskedReader(encoder)(ids)[0].softmax(dim=-1)  # (T, V)
    best = p[ids[0] == tokenizer.id(MASK)].topk(k)
    return [[(tokenizer.tokens[i], q) for i, q in zip(row, ps)] for row, ps in zip(best.indices, best.values.tolist())]


@dataclass(frozen=True)
class MaskedRecipe:
    """Hold all settings that determine the shipped encoder that fills blanks."""

    steps: int = 8000
    batch_size: int = 64
    share: float = 0.25
    stories: int = 40_000
    peak: float = 5e-3
    warmup: int = 100
    seed: int = 0
    d_model: int = 64
    n_heads: int = 4
    n_layers: int = 3


@recipe("masked")
def train_masked(folder: str | Path, progress: bool = True, plan: MaskedRecipe | None = None) -> dict:
    """Train the encoder that fills blanks from scratch (a few minutes; resumable) and write it to `folder`."""
    plan = plan or MaskedRecipe()
    torch.set_num_threads(1)
    torch.manual_seed(plan.seed)
    tokenizer = masked_tokenizer()
    encoder = EncoderOnly(
        TransformerConfig(
            vocab_size=len(tokenizer),
            d_model=plan.d_model,
            n_heads=plan.n_heads,
            n_layers=plan.n_layers,
            max_seq_len=96,
            family="encoder",
            positions="rope",
        )
    )
    batches = MaskedBatches(tokenizer, plan.stories, plan.batch_size, plan.share, plan.seed)
    unfinished = Path(f"{folder}.part")
    history = train(
        MaskedReader(encoder), batches, plan.steps, plan.peak, plan.warmup, checkpoint=unfinished, progress=progress
    )
    save_pretrained(folder, encoder, tokenizer)
    figures = {
        "loss_of_last_50_steps": round(statistics.fmean(history.losses[-50:]), 4),
        "right_of_hidden": round(share_filled(encoder, tokenizer, HELD_OUT_SEED), 4),
    }
    save_json(Path(folder) / "figures.json", {"figures": figures, "recipe": asdict(plan)})
    unfinished.unlink()
    return figures


def share_filled(encoder: EncoderOnly, tokenizer: WordTokenizer, seed: int, n_stories: int = 500) -> float:
    """Return the fraction of hidden words, one in ten of held-out stories, for which the first guess is correct."""
    ids, mask, targets = next(MaskedBatches(tokenizer, n_stories, n_stories, 0.1, seed))
    reader = MaskedReader(encoder)
    with evaluating(reader):
        guesses = reader(ids, mask).argmax(dim=-1)  # (B, T)
    return (guesses == targets)[targets != IGNORED].float().mean().item()
