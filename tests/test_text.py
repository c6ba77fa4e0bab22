"""Tokenizers against independent ones and by their properties; batches by their properties."""

import json
import re
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Tokenizer

from course_lib.tinytown import (
    Batches,
    BytePairTokenizer,
    SubwordTokenizer,
    Tinytown,
    WordTokenizer,
    encode_stories,
    join_words,
    split_words,
)

TRICKY = (
    "The cat sat on the mat.",
    "  two  spaces \n\n\ttab\r\n",
    "don't we'll I'd 'quoted'",
    "naïve café 你好 🙂👩‍👩‍👧 e\u0301 \u00a0\u200b",
    "3.14159 (x**2) # _ok_",
    "",
    "the cat<|endoftext|>the mat",
)


# ---------------------------------------------------------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yes, it is.", ["yes", ",", "it", "is", "."]),
        ("who? <eos> the cat!", ["who", "?", "<eos>", "the", "cat", "!"]),
        ("le chat n'était pas noir.", ["le", "chat", "n'", "était", "pas", "noir", "."]),
        ("l'ours, d'or", ["l'", "ours", ",", "d'", "or"]),
    ],
)
def test_words_and_marks_come_apart_and_together_again(text, words):
    assert split_words(text) == words
    assert split_words(join_words(words)) == words
    assert join_words(words) == text


# ----------------------------------------------------------------------------------------------------------- tokenizers
def test_word_tokenizer_gives_back_what_it_was_given():
    tokenizer = WordTokenizer()
    for story in Tinytown(9).sample(200):
        ids = tokenizer.encode(story)
        assert ids[0] == tokenizer.bos_id
        assert ids[-1] == tokenizer.eos_id
        assert tokenizer.decode(ids) == story
        assert tokenizer.decode(torch.tensor(ids)) == story
        assert tokenizer.encode(story, end=False) == ids[:-1]


def test_unknown_words_and_ids_are_named():
    tokenizer = WordTokenizer()
    with pytest.raises(ValueError, match=r"'catt'.*cat"):
        tokenizer.encode("the catt sat")
    with pytest.raises(ValueError, match=str(len(tokenizer))):
        tokenizer.decode([len(tokenizer)])
    with pytest.raises(ValueError, match="twice"):
        WordTokenizer(["cat", "cat"])


# ------------------------------------------------------------------------------------------------------------- subwords
@pytest.fixture(scope="module")
def stories():
    return " ".join(Tinytown(0).sample(300))


@pytest.fixture(scope="module")
def byte_pairs(stories):
    return BytePairTokenizer.train(stories, vocab_size=400)


@pytest.fixture(scope="module")
def word_pieces():
    """A tokenizer as BERT has them: it cuts and fills every text to six tokens, and puts [CLS] and [SEP] around it."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##believ", "##able", "cat", "the"]
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(vocabulary[:4])
    tokenizer.enable_truncation(6)
    tokenizer.enable_padding(length=6)
    return SubwordTokenizer(tokenizer)


def test_byte_pairs_shorten_what_they_were_trained_on(byte_pairs, stories):
    assert 256 < len(byte_pairs) <= 400
    assert len(byte_pairs.encode(stories[:2000])) < 2000 / 2
    assert len(byte_pairs.encode("你")) == 3, "an unseen character falls back to its bytes"


@given(st.text())
def test_any_text_comes_back_from_byte_pairs(byte_pairs, text):
    ids = byte_pairs.encode(text)
    assert byte_pairs.decode(ids) == byte_pairs.decode(torch.tensor(ids, dtype=torch.long)) == text
    for i, piece in zip(ids, byte_pairs.pieces(text), strict=True):
        assert "�" in piece or byte_pairs.id(piece) == i


def test_every_merge_joins_a_commonest_pair_and_encoding_repeats_the_merges(byte_pairs, stories):
    """Against the algorithm as Sennrich et al. (2016) print it, on words with the space before them."""
    model = json.loads(byte_pairs.tokenizer.to_str())["model"]
    counts = Counter(word.replace(" ", "Ġ") for word in re.findall(r" ?\w+|[^\w\s]", stories))
    words = {word: list(word) for word in counts}
    for merge in map(tuple, model["merges"]):
        pairs = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        assert pairs[merge] == max(pairs.values()), f"{merge} is not the commonest pair"
        for pieces in words.values():
            for i in reversed(range(len(pieces) - 1)):
                if tuple(pieces[i : i + 2]) == merge:
                    pieces[i : i + 2] = ["".join(merge)]
    for word, pieces in words.items():
        assert byte_pairs.encode(word.replace("Ġ", " ")) == [model["vocab"][piece] for piece in pieces], word


def test_files_of_gpt2_give_the_ids_of_its_own_tokenizer(byte_pairs, tmp_path):
    byte_pairs.tokenizer.model.save(str(tmp_path))
    encoder, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    vocabulary = json.loads(encoder.read_text(encoding="utf-8"))
    encoder.write_text(json.dumps(vocabulary | {"<|endoftext|>": len(vocabulary)}), encoding="utf-8")
    ours, theirs = BytePairTokenizer.from_files(encoder, merges), GPT2Tokenizer(str(encoder), str(merges))
    assert len(ours) == len(theirs) == len(vocabulary) + 1
    for text in TRICKY:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text), special=True) == text
    assert ours.decode(ours.encode(TRICKY[-1])) == "the catthe mat"
    with pytest.raises(ValueError, match=r"missing\.bpe"):
        BytePairTokenizer.from_files(encoder, tmp_path / "missing.bpe")
    with pytest.raises(ValueError, match="not a vocabulary"):
        BytePairTokenizer.from_files(merges, encoder)


def test_a_word_without_end_is_learned_in_parts():
    tokenizer = BytePairTokenizer.train("a" * 20_000, vocab_size=300)
    assert 100 < max(map(len, tokenizer.ids)) < 1000


def test_merging_stops_where_no_pair_occurs_twice():
    tokenizer = BytePairTokenizer.train("abab cd", vocab_size=300)
    assert len(tokenizer) == 256 + 1
    assert tokenizer.pieces("abab cd") == ["ab", "ab", " ", "c", "d"]


def test_byte_pair_vocabulary_holds_every_byte():
    assert len(BytePairTokenizer.train("", vocab_size=300)) == 256
    with pytest.raises(ValueError, match="256"):
        BytePairTokenizer.train("abc", vocab_size=100)


def commonest_pairs_merged(text, n, special=()):
    """Byte-pair encoding from its definition, ties by the ids of the parts: the merges, as pairs of ids."""
    parts = re.split("|".join(map(re.escape, special)), text) if special else [text]
    words = [list(word.encode()) for part in parts for word in GPT2_WORDS.findall(part)]
    order = {byte: i for i, byte in enumerate(ids_of_bytes())}
    words, merges = [[order[byte] for byte in word] for word in words], []
    while len(merges) < n:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [256 + len(merges)]
                i += 1
        merges.append(best)
    return merges


GPT2_WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+")


def ids_of_bytes():
    """The 256 bytes in the order of their ids: what can be printed comes first, as GPT-2's table has it."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return printed + [byte for byte in range(256) if byte not in printed]


@given(st.text("abc ", max_size=60))
def test_of_equally_common_pairs_the_older_tokens_are_merged_first(text):
    model = json.loads(BytePairTokenizer.train(text, 276).tokenizer.to_str())["model"]
    merged = [(model["vocab"][left], model["vocab"][right]) for left, right in model["merges"]]
    assert merged == commonest_pairs_merged(text, 20)


def test_a_tie_is_settled_by_ids_and_not_by_the_alphabet():
    """Each pair occurs twice: the smallest ids come first, where an alphabet read from its end would take "zy"."""
    tokenizer = BytePairTokenizer.train("zy ba dc zy ba dc", vocab_size=259)
    assert [tokenizer.decode([i]) for i in range(256, 259)] == ["ba", "dc", "zy"]


SPECIAL = ("<|end|>", "<|end|><|end|>", "<|a b|>", "<|e")


@pytest.fixture(scope="module")
def with_special(stories):
    return BytePairTokenizer.train(stories, 400, SPECIAL)


def test_of_special_tokens_that_overlap_the_longest_is_taken(with_special):
    once, twice, spaced, short = (with_special.tokenizer.token_to_id(token) for token in SPECIAL)
    assert sorted((once, twice, spaced, short)) == [396, 397, 398, 399], "the last ids, in the order given"
    assert with_special.encode("<|end|><|end|><|end|>") == [twice, once]
    assert with_special.encode("<|end|><|e<|a b|>") == [once, short, spaced]
    assert with_special.decode(with_special.encode("a<|end|><|end|> b"), special=True) == "a<|end|><|end|> b"
    assert with_special.decode(with_special.encode("a<|end|> b")) == "a b"


def test_no_merge_looks_across_a_special_token():
    """Without it "ab" would occur twice; the vocabulary counts it."""
    tokenizer = BytePairTokenizer.train("a<|end|>b a<|end|>b", 300, ["<|end|>"])
    assert len(tokenizer) == 257
    with pytest.raises(ValueError, match="257"):
        BytePairTokenizer.train("ab", 256, ["<|end|>"])


@pytest.mark.parametrize(
    ("special", "error"), [("<|end|>", TypeError), ([1], TypeError), ([""], ValueError), (["x", "x"], ValueError)]
)
def test_special_tokens_are_different_words(special, error):
    with pytest.raises(error, match="special_tokens"):
        BytePairTokenizer.train("ab", 300, special)


PARTS = st.lists(st.text() | st.sampled_from([*SPECIAL, "<|a", " b|>", "the king", " ", "\n", "  ", "'s", "\x1c", " "]))


@pytest.mark.usefixtures("as_a_learner")
@given(
    special=st.lists(st.text("Ġčé<ab \r", min_size=1, max_size=3), min_size=1, max_size=2, unique=True),
    words=st.text("Ġčé<ab \r", min_size=1, max_size=9),
    text=st.text("Ġčé<ab \r", max_size=20),
)
def test_a_special_token_that_would_be_taken_for_text_is_refused_and_beside_others_every_text_comes_back(
    special, words, text
):
    """The byte alphabet writes the byte 13 as č, and a space before a word as Ġ."""
    try:
        tokenizer = BytePairTokenizer.train(words * 9, 300, special)
    except ValueError as error:
        said = str(error)
        assert "byte" in said
        assert any(repr(each) in said for each in special)
        return
    assert tokenizer.decode(tokenizer.encode(text), special=True) == text
    assert len({tokenizer.tokenizer.token_to_id(each) for each in special} - set(range(256))) == len(special)


@pytest.mark.usefixtures("as_a_learner")
def test_what_the_byte_alphabet_writes_is_no_special_token(tmp_path):
    with pytest.raises(ValueError, match=r"special_tokens must not hold 'č'.*byte alphabet.*'<\|end\|>'"):
        BytePairTokenizer.train("a\r\nb", 300, ["č"])
    with pytest.raises(ValueError, match=r"special_tokens must not hold 'Ġthe'.*byte alphabet"):
        BytePairTokenizer.train("the cat the mat the end " * 9, 300, ["<|end|>", "Ġthe"])
    BytePairTokenizer.train("the cat", 300).tokenizer.model.save(str(tmp_path))
    with pytest.raises(ValueError, match=r"special_tokens must not hold 'Ġ'.*byte alphabet"):
        BytePairTokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", ["Ġ"])
    with pytest.raises(
        ValueError, match=r"special_tokens must not hold '<début>'.*byte alphabet"
    ):  # é stands for the byte 233
        BytePairTokenizer.train("début", 300, ["<début>"])
    assert BytePairTokenizer.train("", 300, ["<始>"]).pieces("a <始>") == ["a", " ", "<始>"]


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize("text", ["a\ud800b", "\udfff", "é" * 99 + "\udc80"])
def test_half_a_character_is_refused_by_name(byte_pairs, text):
    attempts = (
        byte_pairs.encode,
        byte_pairs.pieces,
        lambda text: list(byte_pairs.encode_iterable(["a ", text])),
        lambda text: BytePairTokenizer.train(text, 300),
        lambda text: BytePairTokenizer.train("abc", 300, [text]),
        WordTokenizer().encode,
    )
    for attempt in attempts:
        with pytest.raises(ValueError, match=r"'\\ud.*half a character.*errors='replace'"):
            attempt(text)


@given(PARTS, st.integers(1, 12))
def test_a_text_in_parts_has_the_ids_of_the_whole(with_special, parts, block):
    assert list(with_special.encode_iterable(iter(parts), block)) == with_special.encode("".join(parts))


@pytest.mark.parametrize("n", [100, 1000])
def test_a_stream_is_read_no_further_ahead_than_a_block_and_a_word(byte_pairs, n):
    """Of a text of any length, what has been drawn and not been answered is bounded."""
    drawn, answered, furthest = 0, 0, 0

    def lines():
        nonlocal drawn
        for _ in range(n):
            drawn += len("once there was a king\n")
            yield "once there was a king\n"

    for i in byte_pairs.encode_iterable(lines(), block=200):
        answered += len(byte_pairs.decode([i]))
        furthest = max(furthest, drawn - answered)
    assert drawn == answered == 22 * n
    assert furthest < 200 + 22 + len(" king\n")


def test_a_stream_takes_texts_and_no_text(byte_pairs):
    for wrong in ("a text", b"bytes", 3, None):
        with pytest.raises(TypeError, match="texts"):
            list(byte_pairs.encode_iterable(wrong))
    with pytest.raises(TypeError, match="texts must contain only strings, got 1 among them"):
        list(byte_pairs.encode_iterable(["a", 1]))


def test_a_real_tokenizer_neither_cuts_nor_fills_and_adds_its_signs_when_asked(word_pieces):
    assert word_pieces.encode("unbelievable cat") == [4, 5, 6, 7]
    assert word_pieces.encode("unbelievable cat", special=True) == [2, 4, 5, 6, 7, 3]
    assert word_pieces.encode("cat " * 10) == [7] * 10
    assert word_pieces.pieces("unbelievable dog", special=True) == [
        "[CLS]",
        "un",
        "##believ",
        "##able",
        "[UNK]",
        "[SEP]",
    ]
    assert word_pieces.decode([2, 7, 3]) == "cat"
    assert word_pieces.decode([2, 7, 3], special=True) == "[CLS] cat [SEP]"
    assert len(word_pieces) == 9


def test_tokens_are_found_as_pieces_shows_them(word_pieces, byte_pairs):
    assert [word_pieces.id(token) for token in ("cat", "##able", "[CLS]")] == [7, 6, 2]
    assert byte_pairs.encode(" the") == [byte_pairs.id(" the")]
    for tokenizer, token, near in [
        (word_pieces, "##abel", "##able"),
        (byte_pairs, "Ġthe", " the"),
        (byte_pairs, "é", ""),
        (byte_pairs, "�", ""),
    ]:
        with pytest.raises(ValueError, match=f"{token}.*{near}"):
            tokenizer.id(token)
    for i in (-1, 9):
        with pytest.raises(ValueError, match=f"id {i} .* 0 to 8"):
            word_pieces.decode([7, i])


# -------------------------------------------------------------------------------------------------------------- batches
def test_targets_are_the_inputs_one_step_later():
    ids = torch.arange(50) * 3
    batches = Batches(ids, batch_size=8, T=7, generator=torch.Generator().manual_seed(0))
    seen = set()
    for _ in range(200):
        inputs, targets = next(batches)
        assert inputs.shape == targets.shape == (8, 7)
        assert torch.equal(targets, inputs + 3)
        seen |= set(inputs[:, 0].tolist())
    assert seen == set(ids[: 50 - 7].tolist()), "every place from which a row can be read is used, and no other"


def test_rows_can_begin_at_stories_only():
    tokenizer = WordTokenizer()
    ids = encode_stories(Tinytown(0).sample(50), tokenizer)
    inputs, _ = next(Batches(ids, 64, 20, torch.Generator().manual_seed(1), start_id=tokenizer.bos_id))
    assert (inputs[:, 0] == tokenizer.bos_id).all()


def test_same_generator_state_gives_the_same_batches():
    ids = torch.arange(100)
    first, second = (Batches(ids, 4, 5, torch.Generator().manual_seed(3)) for _ in range(2))
    for _ in range(5):
        assert torch.equal(next(first)[0], next(second)[0])


def test_a_text_that_is_too_short_is_refused():
    Batches(torch.arange(6), 1, 5)
    with pytest.raises(ValueError, match="at least 7 ids"):
        Batches(torch.arange(6), 1, 6)
    with pytest.raises(ValueError, match="start_id=9"):
        Batches(torch.arange(6), 1, 2, start_id=9)
    with pytest.raises(ValueError, match="shape"):
        Batches(torch.zeros(2, 3, dtype=torch.long), 1, 1)
    with pytest.raises(ValueError, match="batch_size"):
        Batches(torch.arange(6), 0, 2)
    with pytest.raises(TypeError, match=r"^ids must be a tensor, got list: .*torch\.tensor\(ids\)"):
        Batches([1, 2, 3, 4], 1, 2)
    with pytest.raises(ValueError, match=r"ids must be whole numbers.*torch\.float32"):
        Batches(torch.randn(6), 1, 2)


def test_what_is_no_text_is_refused_by_name():
    for tokenizer in (WordTokenizer(["cat"]), BytePairTokenizer.train("cat " * 9, 260)):
        for wrong in (None, 3, ["cat"], b"cat"):
            with pytest.raises(TypeError, match="text must be a string, got "):
                tokenizer.encode(wrong)


def test_what_are_no_ids_is_refused_by_name():
    for tokenizer in (WordTokenizer(["cat"]), BytePairTokenizer.train("cat " * 9, 260)):
        for wrong in ([1.5], ["1"], 3, torch.tensor([[1, 2]]), torch.tensor([1.0]), [None]):
            with pytest.raises((TypeError, ValueError), match="ids must be one row of whole numbers, got "):
                tokenizer.decode(wrong)
