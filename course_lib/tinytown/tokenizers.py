"""Tokenizers: text into ids and back, by words or by pieces of words."""

import re
from collections.abc import Iterable, Iterator, Sized
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from course_lib import checks
from course_lib.arguments import require_arguments
from course_lib.tinytown.grammar import BOS, EOS, PAD, join_words, split_words
from course_lib.tinytown.stories import Tinytown

ALPHABET = set(pre_tokenizers.ByteLevel.alphabet())  # a sign for each byte


class _Vocabulary(Sized):
    """What every tokenizer can do: name the id of a token, and refuse what it does not know."""

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        raise NotImplementedError

    def id(self, token: str) -> int:
        """The id of one token. Errors: ValueError, with the nearest ones, if there is no such token."""
        checks.require_text(token)
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
        require_arguments(WordTokenizer.__init__, locals())
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
        checks.require_text(text, end=end)
        ids = [self.bos_id] + [self.id(token) for token in split_words(text.lower())]
        return [*ids, self.eos_id] if end else ids

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """The text of these ids (a list or a one-dimensional tensor), without the special tokens."""
        return join_words(self.tokens[i] for i in checks.require_known_ids(ids, len(self)) if i > self.eos_id)


class SubwordTokenizer(_Vocabulary):
    """Any tokenizer of the `tokenizers` package, such as a real model's: its tokens are words and pieces of words.

    Args:
        tokenizer: a `tokenizers.Tokenizer`, such as `Tokenizer.from_file("tokenizer.json")`. Many files ask for every
            text to be cut or padded to one length; this is switched off, so that nothing is lost unseen.

    Errors: ValueError for a token that is not in the vocabulary (with the nearest ones) and for an id outside [0, V).
    """

    def __init__(self, tokenizer: Tokenizer):
        require_arguments(SubwordTokenizer.__init__, locals())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text. special=True adds what the model wants around it, such as [CLS] … [SEP]."""
        checks.require_text(text, special=special)
        return self.tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Iterable[int] | Tensor, special: bool = False) -> str:
        """The text of these ids (a list or a one-dimensional tensor). special=True shows the special tokens too."""
        checks.require_switches(special=special)
        return self.tokenizer.decode(checks.require_known_ids(ids, len(self)), skip_special_tokens=not special)

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
    Special tokens are one token each wherever they stand, whole; where several begin, the longest is taken.
    """

    @classmethod
    def train(cls, text: str, vocab_size: int = 512, special_tokens: Iterable[str] = ()) -> "BytePairTokenizer":
        """Learn merges on `text` until there are `vocab_size` tokens, or nothing occurs twice. The 256 bytes are always
        there, and have the first ids; special tokens have the last ones, and no merge looks across them.

        Of pairs that occur equally often, the one whose left part has the smaller id is merged first, and of those the
        one with the smaller right part: older tokens before younger ones. (Others take the pair that is last in the
        alphabet; both are byte-pair encoding, and their ids differ.)

        Errors: TypeError if text is no string; ValueError for a vocab_size without room for bytes and special tokens,
            or a special token in signs of the byte alphabet, such as "č", which stands for a carriage return.
        """
        checks.require_text(text)
        special = checks.require_special_tokens(special_tokens, ALPHABET)
        checks.require_at_least_one(vocab_size=vocab_size)
        if vocab_size < 256 + len(special):
            raise ValueError(
                f"vocab_size must be at least {256 + len(special)}, one token for each byte and special token, got "
                f"{vocab_size}"
            )
        trainer = trainers.BpeTrainer(
            vocab_size=min(vocab_size - len(special), 256 + len(text)),  # a merge each, at most: room is made for all
            initial_alphabet=list(ALPHABET), min_frequency=2, show_progress=False,
        )  # fmt: skip
        self = cls._on_bytes(models.BPE())
        texts = re.split("|".join(map(re.escape, sorted(special, key=len, reverse=True))), text) if special else [text]
        # Word by word, for the merges never cross a space. A word of a million letters would take minutes: it is cut.
        words = (word for each in texts for word in re.findall(r"\s{0,99}\S{1,999}|\s{1,99}", each))
        self.tokenizer.train_from_iterator(words, trainer)
        self.tokenizer.add_special_tokens(special)
        return self

    @classmethod
    def from_files(
        cls, encoder_json: str | Path, vocab_bpe: str | Path, special_tokens: Iterable[str] = ("<|endoftext|>",)
    ) -> "BytePairTokenizer":
        """The tokenizer of OpenAI's two GPT-2 files. `<|endoftext|>` in a text is one token; a special token that the
        files lack is left out.

        Errors: ValueError if a file is missing or is not what its name says."""
        require_arguments(BytePairTokenizer.from_files, locals())
        try:
            self = cls._on_bytes(models.BPE.from_file(str(encoder_json), str(vocab_bpe)))
        except Exception as error:  # the package raises nothing narrower
            raise ValueError(
                f"encoder_json={str(encoder_json)!r} and {vocab_bpe} are not a vocabulary and its merges: {error}"
            ) from error
        special = checks.require_special_tokens(special_tokens, ALPHABET)
        self.tokenizer.add_special_tokens([each for each in special if self.tokenizer.token_to_id(each) is not None])
        return self

    def encode_iterable(self, texts: Iterable[str], block: int = 1 << 16) -> Iterator[int]:
        """Yield the ids of a long text that comes in parts, such as the lines of an open file: those of
        `encode("".join(texts))`, however the text is cut, without ever holding more than a part of it.

        No token reaches from a letter into the space after it. So what has come is encoded up to the last such place,
        about every `block` characters; memory depends on the longest stretch without one, not on the text's length.

        Errors: TypeError for a part that is no string, or one string in place of many.
        """
        checks.require_texts(texts)
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
            wanted = max(block, 2 * size)  # a stretch without a space is not searched again for every part
        yield from self.encode("".join(held))

    @classmethod
    def _on_bytes(cls, model: models.BPE) -> "BytePairTokenizer":
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return cls(tokenizer)


def _last_cut(text: str, inside: tuple[str, ...]) -> int:
    """Return the last place where a letter ends and a space begins, and no special token whose beginnings these are."""
    for cut in range(len(text) - 1, 0, -1):
        if text[cut] in " \n" and text[cut - 1].isalnum() and not text.endswith(inside, 0, cut):
            return cut
    return 0
