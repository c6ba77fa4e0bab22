"""Tokenizers: convert text into ids and back, by words or by subwords."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from difflib import get_close_matches
from functools import cached_property
from operator import index
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from course_lib import checks
from course_lib.tinytown.grammar import BOS, EOS, PAD, join_words, split_words
from course_lib.tinytown.stories import Tinytown

ALPHABET = set(pre_tokenizers.ByteLevel.alphabet())  # one character for each byte


class _Vocabulary(Sized):
    """Look up the id of a token, and raise an error for an unknown one. All tokenizers share this."""

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the ids by token."""
        raise NotImplementedError

    def id(self, token: str) -> int:
        """Return the id of one token. Errors: ValueError, with similar tokens, if there is no such token."""
        checks.require_text(token)
        if token not in self.ids:
            near = [repr(other) if " " in other else other for other in get_close_matches(token, self.ids, n=3)]
            hint = f"; similar spellings: {', '.join(near)}" if near else ""
            raise ValueError(f"{token!r} is not among the {len(self)} tokens of this vocabulary{hint}")
        return self.ids[token]


class WordTokenizer(_Vocabulary):
    """Split text into words and punctuation marks, one token each. The vocabulary is fixed, and its first three ids are
    `<pad>`, `<bos>` and `<eos>`.

    Args:
        words: the vocabulary, without the three special tokens. None: Tinytown's vocabulary.

    Errors: ValueError for a word outside the vocabulary (with similar words) and for an id outside [0, V).
    """

    def __init__(self, words: Iterable[str] | None = None):
        if words is not None:
            checks.require_texts(words=words)
        words = Tinytown().vocabulary if words is None else list(words)
        if len(set(words)) != len(words):
            raise ValueError("words must not contain the same word twice")
        self.tokens = [PAD, BOS, EOS, *words]
        self.pad_id, self.bos_id, self.eos_id = 0, 1, 2

    @cached_property
    def ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, end: bool = True) -> list[int]:
        """Return the ids of `<bos>`, the words and `<eos>`. end=False leaves `<eos>` out, for a prompt."""
        checks.require_text(text, end=end)
        ids = [self.bos_id] + [self.id(token) for token in split_words(text.lower())]
        return [*ids, self.eos_id] if end else ids

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Return the text of these ids (a list or a one-dimensional tensor), without the special tokens."""
        return join_words(self.tokens[i] for i in _require_known_ids(ids, len(self)) if i > self.eos_id)


class SubwordTokenizer(_Vocabulary):
    """Wrap a tokenizer of the `tokenizers` package, such as a real model's. Its tokens are words and parts of words.

    Args:
        tokenizer: a `tokenizers.Tokenizer`, such as `Tokenizer.from_file("tokenizer.json")`. Many files truncate or pad
            every text to a fixed length. We turn this off, so that no text is lost unnoticed.

    Errors: ValueError for a token that is not in the vocabulary (with similar tokens) and for an id outside [0, V).
    """

    def __init__(self, tokenizer: Tokenizer):
        checks.require_kind(Tokenizer, tokenizer=tokenizer)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return the ids of a text. special=True adds the model's special tokens around it, such as [CLS] … [SEP]."""
        checks.require_text(text, special=special)
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Iterable[int] | Tensor, special: bool = False) -> str:
        """Return the text of these ids (a list or a one-dimensional tensor). special=True includes special tokens."""
        checks.require_switches(special=special)
        return self.tokenizer.decode(_require_known_ids(ids, len(self)), skip_special_tokens=not special)

    def pieces(self, text: str, special: bool = False) -> list[str]:
        """Return the text of each token, in order. A token with only part of a character's bytes is shown as �."""
        return [self.decode([i], special=True) for i in self.encode(text, special)]

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the ids by token, each token as `pieces` shows it: " cat" with its space, "##ing", "[CLS]". Tokens
        that are not valid text, such as half a character, are left out."""
        pieces = {self.decode([i], special=True): i for i in range(len(self))}
        return {piece: i for piece, i in pieces.items() if "�" not in piece}


class BytePairTokenizer(SubwordTokenizer):
    """Tokenize by byte-pair encoding (Gage 1994; Sennrich et al. 2016) on bytes, as in GPT-2 (Radford et al. 2019):
    start from the 256 bytes, then repeatedly merge the most frequent pair of neighbours. It can encode any text.

    `BytePairTokenizer.train(text, vocab_size)` learns the merges; `from_files` reads the merges that OpenAI learned.
    Each special token in a text is encoded as one token. If several begin at the same position, the longest is used.
    """

    @classmethod
    def train(cls, text: str, vocab_size: int = 512, special_tokens: Iterable[str] = ()) -> "BytePairTokenizer":
        """Learn merges from `text` until there are `vocab_size` tokens or no pair occurs twice. The 256 bytes always
        have the first ids. The special tokens have the last ids, and no merge crosses them.

        If several pairs occur equally often, the pair whose left token has the smallest id is merged first, and among
        these the pair whose right token has the smallest id. (Other implementations merge the alphabetically last pair.
        Both are byte-pair encoding, but their ids differ.)

        Errors: TypeError if text is not a string; ValueError if vocab_size is too small for the bytes and special
            tokens, or if all characters of a special token represent bytes, such as "č" (carriage return).
        """
        checks.require_text(text)
        special = _require_special_tokens(special_tokens, ALPHABET)
        checks.require_at_least_one(vocab_size=vocab_size)
        if vocab_size < 256 + len(special):
            raise ValueError(
                f"vocab_size must be at least {256 + len(special)}, one token for each byte and special token, got "
                f"{vocab_size}"
            )
        trainer = trainers.BpeTrainer(
            vocab_size=min(vocab_size - len(special), 256 + len(text)),  # memory is reserved for this many
            initial_alphabet=list(ALPHABET),
            min_frequency=2,
            show_progress=False,
        )
        self = cls._on_bytes(models.BPE())
        texts = re.split("|".join(map(re.escape, sorted(special, key=len, reverse=True))), text) if special else [text]
        # Train on words, because merges never cross a space. Long words are cut: a million letters would take minutes.
        words = (word for each in texts for word in re.findall(r"\s{0,99}\S{1,999}|\s{1,99}", each))
        self.tokenizer.train_from_iterator(words, trainer)
        self.tokenizer.add_special_tokens(special)
        return self

    @classmethod
    def from_files(
        cls, encoder_json: str | Path, vocab_bpe: str | Path, special_tokens: Iterable[str] = ("<|endoftext|>",)
    ) -> "BytePairTokenizer":
        """Read the tokenizer from OpenAI's two GPT-2 files. `<|endoftext|>` in a text is one token. A special token
        that is not in the files is ignored.

        Errors: ValueError if a file is missing or does not have the expected content."""
        try:
            self = cls._on_bytes(models.BPE.from_file(str(encoder_json), str(vocab_bpe)))
        except Exception as error:  # the package raises nothing narrower
            raise ValueError(
                f"encoder_json={str(encoder_json)!r} and {vocab_bpe} are not a vocabulary and its merges: {error}"
            ) from error
        special = _require_special_tokens(special_tokens, ALPHABET)
        self.tokenizer.add_special_tokens([each for each in special if self.tokenizer.token_to_id(each) is not None])
        return self

    def encode_iterable(self, texts: Iterable[str], block: int = 1 << 16) -> Iterator[int]:
        """Yield the ids of a long text given in parts, such as the lines of an open file, without keeping the entire
        text in memory. The ids are the same as `encode("".join(texts))` gives, however the text is divided.

        No token contains a letter and the space after it. So about every `block` characters, the text is encoded up to
        the last such boundary. Memory depends on the longest string without a boundary, not on the length of the text.

        Errors: TypeError if a part is not a string, or if texts is one string instead of several.
        """
        checks.require_texts(texts=texts)
        checks.require_at_least_one(block=block)
        special = [token.content for token in self.tokenizer.get_added_tokens_decoder().values()]
        inside = tuple({token[:i] for token in special for i in range(1, len(token)) if token[i] in " \n"})
        held, size, wanted = [""], 0, block
        for text in texts:
            checks.require_text(text)
            held.append(text)
            if (size := size + len(text)) < wanted:
                continue
            whole = "".join(held)
            cut = _last_cut(whole, inside)
            yield from self.encode(whole[:cut])
            held, size = [whole[cut:]], size - cut
            wanted = max(block, 2 * size)  # do not search a long string without spaces for every part
        yield from self.encode("".join(held))

    @classmethod
    def _on_bytes(cls, model: models.BPE) -> "BytePairTokenizer":
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return cls(tokenizer)


def _last_cut(text: str, inside: tuple[str, ...]) -> int:
    """Return the last boundary between a letter and a space that is not inside a special token; 0 without one.
    `inside` has the beginnings of the special tokens."""
    for cut in range(len(text) - 1, 0, -1):
        if text[cut] in " \n" and text[cut - 1].isalnum() and not text.endswith(inside, 0, cut):
            return cut
    return 0


def _require_special_tokens(special_tokens: object, alphabet: set[str]) -> list[str]:
    """Return the special tokens. Raise TypeError or ValueError unless they are distinct, non-empty strings that
    the byte alphabet cannot produce."""
    if isinstance(special_tokens, (str, bytes, Mapping)) or not isinstance(special_tokens, Iterable):
        raise TypeError(f"special_tokens must be a list of strings, got {special_tokens!r}: write [special_token]")
    special = list(special_tokens)
    if not all(isinstance(token, str) for token in special):
        raise TypeError(f"special_tokens must be a list of strings, got {special!r}")
    if "" in special or len(set(special)) < len(special):
        raise ValueError(f"special_tokens must be different from each other and not empty, got {special!r}")
    for token in special:
        checks.require_text(token)
    for token in special:
        if alphabet.issuperset(token) and (len(token) == 1 or not token.isascii()):
            raise ValueError(
                f"special_tokens must not hold {token!r}: the byte alphabet uses its characters for bytes, so that "
                "texts could change when decoded. Use at least two ASCII characters, such as '<|end|>'"
            )
    return special


def _require_known_ids(ids: Iterable[int] | Tensor, vocab_size: int) -> list[int]:
    """Return the ids as a list. Raise TypeError unless they are whole numbers in a row; ValueError outside [0, V)."""
    try:
        given = ids.tolist() if isinstance(ids, Tensor) else ids  # from a GPU, all at once
        row = [index(i) for i in given]
        if isinstance(ids, bytes) or any(map(checks.is_truth, given)):
            raise TypeError
    except (TypeError, RuntimeError):
        raise TypeError(f"ids must be one row of whole numbers, got {ids!r}") from None
    for i in row:
        if not 0 <= i < vocab_size:
            raise ValueError(f"id {i} is outside the vocabulary: ids run from 0 to {vocab_size - 1}")
    return row
