"""Chapter 1's tokenizer box: what it shows of a text, word by word and piece by piece."""

import pytest

from course_lib.chapters.embeddings.tokenizer_box import MOST_TOKENS, TokenizerBox
from course_lib.tinytown import BytePairTokenizer, Tinytown, WordTokenizer, split_words

TOKENIZER = WordTokenizer()


@pytest.fixture(scope="module")
def byte_pairs():
    text = "\n".join(Tinytown(0).sample(100))
    return {size: BytePairTokenizer.train(text, size) for size in (256, 400)}


@pytest.mark.parametrize("entries", [256, 400])
@pytest.mark.parametrize(
    "text", ["", "the cat sat.", "A  dragon\tslept", "🐈 <b>&amp;</b>", "na\u0308ive 東京", "x" * 500]
)
def test_the_tokenizer_box_shows_every_token_with_its_id(byte_pairs, text, entries):
    box = TokenizerBox(TOKENIZER, byte_pairs, "the cat", 400)
    page = box.render(text, entries)
    ids = byte_pairs[entries].encode(text)
    words, pairs = box.text_version.splitlines()
    assert f"{len(ids)} token" in pairs
    assert pairs.count(" | ") == max(0, min(len(ids), MOST_TOKENS) - 1)
    assert all(f"<small>{i}</small>" in page for i in ids[:MOST_TOKENS])
    assert (" more" in pairs) == (len(ids) > MOST_TOKENS)
    known = all(word in TOKENIZER.ids for word in split_words(text.lower()))
    assert ("unknown" in words) == (not known)
    assert "<b>&amp;" not in page, "what is typed is shown, not obeyed"


def test_the_tokenizer_box_says_what_the_word_tokenizer_does_not_know(byte_pairs):
    box = TokenizerBox(TOKENIZER, byte_pairs, "The dragon slept", 400)
    words = repr(box).splitlines()[1]
    assert words.startswith(f"Words, {len(TOKENIZER)} entries: 3 tokens, 1 of them unknown: ")
    assert f"the {TOKENIZER.id('the')} | dragon ? | slept {TOKENIZER.id('slept')}" in words
    assert "unknown" in box.still


def test_typing_and_sliding_change_the_boxes(byte_pairs):
    box = TokenizerBox(TOKENIZER, byte_pairs, "the cat", 400)
    before = box._boxes.value
    box._typed.value = "the dog"
    typed = box._boxes.value
    box._entries.value = 256
    assert len({before, typed, box._boxes.value}) == 3
    assert box._boxes.value == box.render("the dog", 256)
    assert "␣" in box.text_version, "spaces can be seen"
    with pytest.raises(ValueError, match="entries=300 must be one of 256, 400"):
        box.render("the dog", 300)
