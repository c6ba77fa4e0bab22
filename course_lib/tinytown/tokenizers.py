"""Tokenizers: text into ids and back, by words or by pieces of words."""

import re
from collections.abc import Iterable, Sized
from difflib import get_close_matches
from functools import cached_property
from operator import index
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from course_lib.tinytown.grammar import BOS, EOS, PAD, join_words, split_words
from course_lib.tinytown.stories import Tinytown


class _Vocabulary(Sized):
    """What every tokenizer can do: name the id of a token, and refuse what it does not know."""

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        raise NotImplementedError

    def id(self, token: str) -> int:
        """The id of one token. Errors: ValueError, with the nearest ones, if there is no such token."""
        if token not in self.ids:
            near = [repr(other) if " " in other else other for other in get_close_matches(token, self.ids, n=3)]
            hint = f"; near it: {', '.join(near)}" if near else ""
            raise ValueError(f"{token!r} is not among the {len(self)} tokens of this vocabulary{hint}")
        return self.ids[token]


class WordTokenizer(_Vocabulary):
    """One token per word or punctuation mark. The vocabulary is fixed; the first three ids are `<pad>`, `<bos>`,
    `<eos>`.

    Args:
        words: the vocabulary, without the three special tokens; Tinytown's if left out.

    Errors: ValueError for a word outside the vocabulary (with the nearest ones) and for an id outside [0, V).
    """

    def __init__(self, words: Iterable[str] | None = None):
        words = Tinytown().vocabulary if words is None else list(words)
        if len(set(words)) != len(words):
            raise ValueError("words must not hold the same word twice")
        self.tokens = [PAD, BOS, EOS, *words]
        self.pad_id, self.bos_id, self.eos_id = 0, 1, 2

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, end: bool = True) -> list[int]:
        """`<bos>`, the words, `<eos>`. With end=False there is no `<eos>`: a prompt to be continued."""
        require_text(text)
        ids = [self.bos_id] + [self.id(token) for token in split_words(text.lower())]
        return [*ids, self.eos_id] if end else ids

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """The text of these ids (a list or a one-dimensional tensor), without the special tokens."""
        return join_words(self.tokens[i] for i in require_known_ids(ids, len(self)) if i > self.eos_id)


class SubwordTokenizer(_Vocabulary):
    """Any tokenizer of the `tokenizers` package, such as a real model's: its tokens are words and pieces of words.

    Args:
        tokenizer: a `tokenizers.Tokenizer`, such as `Tokenizer.from_file("tokenizer.json")`. Many files ask for every
            text to be cut or padded to one length; this is switched off, so that nothing is lost unseen.

    Errors: ValueError for a token that is not in the vocabulary (with the nearest ones) and for an id outside [0, V).
    """

    def __init__(self, tokenizer: Tokenizer):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text. special=True adds what the model wants around it, such as [CLS] … [SEP]."""
        require_text(text)
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Iterable[int] | Tensor, special: bool = False) -> str:
        """The text of these ids (a list or a one-dimensional tensor). special=True shows the special tokens too."""
        return self.tokenizer.decode(require_known_ids(ids, len(self)), skip_special_tokens=not special)

    def pieces(self, text: str, special: bool = False) -> list[str]:
        """The text of each token, in order; a character of several bytes that was split shows as �."""
        return [self.decode([i], special=True) for i in self.encode(text, special)]

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id, each token as `pieces` shows it: " cat" with its space, "##ing", "[CLS]". What is not a text by
        itself, such as half a character, is left out."""
        pieces = {self.decode([i], special=True): i for i in range(len(self))}
        return {piece: i for piece, i in pieces.items() if "�" not in piece}


class BytePairTokenizer(SubwordTokenizer):
    """Byte-pair encoding (Gage 1994; Sennrich et al. 2016) on bytes, as in GPT-2 (Radford et al. 2019): start from the
    256 bytes, then merge the commonest neighbours again and again. No text is ever outside its vocabulary.

    `BytePairTokenizer.train(text, vocab_size)` learns the merges; `from_files` reads the ones that OpenAI learned.
    """

    @classmethod
    def train(cls, text: str, vocab_size: int = 512) -> "BytePairTokenizer":
        """Learn merges on `text` until there are `vocab_size` tokens, or nothing occurs twice. The 256 bytes are always
        there."""
        if vocab_size < 256:
            raise ValueError(f"vocab_size must be at least 256, one token for each byte, got {vocab_size}")
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=alphabet, min_frequency=2, show_progress=False
        )
        self = cls._on_bytes(models.BPE())
        # Word by word, for the merges never cross a space. A word of a million letters would take minutes: it is cut.
        self.tokenizer.train_from_iterator(re.findall(r"\s{0,99}\S{1,999}|\s{1,99}", text), trainer)
        return self

    @classmethod
    def from_files(cls, encoder_json: str | Path, vocab_bpe: str | Path) -> "BytePairTokenizer":
        """The tokenizer of OpenAI's two GPT-2 files. `<|endoftext|>` in a text is one token.

        Errors: ValueError if a file is missing or is not what its name says."""
        try:
            self = cls._on_bytes(models.BPE.from_file(str(encoder_json), str(vocab_bpe)))
        except Exception as error:  # the package raises nothing narrower
            raise ValueError(f"{encoder_json} and {vocab_bpe} are not a vocabulary and its merges: {error}") from error
        if self.tokenizer.token_to_id("<|endoftext|>") is not None:
            self.tokenizer.add_special_tokens(["<|endoftext|>"])
        return self

    @classmethod
    def _on_bytes(cls, model: models.BPE) -> "BytePairTokenizer":
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return cls(tokenizer)


def require_text(text: object) -> None:
    """Raise TypeError unless text is a string."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}: encode one text at a time")


def require_known_ids(ids: Iterable[int] | Tensor, vocab_size: int) -> list[int]:
    """Return the ids as a list. TypeError unless they are whole numbers in a row; ValueError outside [0, V)."""
    try:
        row = [index(i) for i in ids]
    except TypeError:
        raise TypeError(f"ids must be one row of whole numbers, got {ids!r}") from None
    for i in row:
        if not 0 <= i < vocab_size:
            raise ValueError(f"id {i} is outside the vocabulary: ids run from 0 to {vocab_size - 1}")
    return row
