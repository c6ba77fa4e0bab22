"""The text of a speedrun: Tinytown's stories, in which every word has a new number."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories

STORIES = 60_000  # of one run; no two seeds have the same
PAD, BOS, EOS = 0, 1, 2


@dataclass
class Text:
    """Hold the text of one run. A file's `train(text, seed)` gets it, and nothing else.

    Fields: ids (N,), all stories in one long row, each from <bos> to <eos>; vocab_size V; bos_id; longest, the number
    of tokens in the longest story.

    The words have new numbers in each run, so a model cannot bring knowledge about them along.
    """

    ids: Tensor
    vocab_size: int
    bos_id: int = BOS
    longest: int = 80
    on_step: Callable[[int, int], None] = lambda done, total: None

    def batches(self, rows: int, length: int, generator: Generator | None = None, whole: bool = False) -> Batches:
        """Yield (inputs, targets) without end, (rows, length) each. whole: every row begins with a story."""
        return Batches(self.ids, rows, length, generator, start_id=self.bos_id if whole else None)

    def steps(self, n: int) -> Iterator[int]:
        """Yield 0 … n − 1, and move the progress bar: `for step in text.steps(1000)`."""
        for step in range(n):
            self.on_step(step, n)
            yield step
        self.on_step(n, n)


def renaming(seed: int) -> Tensor:
    """Return the new number of each word: (V,). <pad>, <bos> and <eos> keep theirs."""
    V = len(WordTokenizer().tokens)
    others = torch.randperm(V - 3, generator=torch.Generator().manual_seed(seed)) + 3
    return torch.cat([torch.arange(3), others])


def stories(seed: int, n: int, renamed: Tensor) -> Tensor:
    """Return n stories of Tinytown as one row of new numbers: (N,)."""
    return renamed[encode_stories(Tinytown(seed).sample(n), WordTokenizer())]
