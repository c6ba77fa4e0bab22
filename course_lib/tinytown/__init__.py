"""Tinytown: a small world of text whose entropy is known.

`world` defines its words, `grammar` its rules. `stories` generates stories and computes the probability of each.
`french` generates pairs of English and French sentences. `tokenizers` converts text into ids, and `batches` cuts rows
from the ids for training.
"""

from course_lib.tinytown.batches import Batches, encode_stories
from course_lib.tinytown.grammar import BOS, EOS, PAD, Step, join_words, split_words
from course_lib.tinytown.stories import Tinytown
from course_lib.tinytown.tokenizers import BytePairTokenizer, SubwordTokenizer, WordTokenizer
from course_lib.tinytown.world import ANIMAL_SOUNDS, CAPITALS, CLASSES, MEN, ROLES, SENTENCE, WOMEN

__all__ = [
    "ANIMAL_SOUNDS",
    "BOS",
    "CAPITALS",
    "CLASSES",
    "EOS",
    "MEN",
    "PAD",
    "ROLES",
    "SENTENCE",
    "WOMEN",
    "Batches",
    "BytePairTokenizer",
    "Step",
    "SubwordTokenizer",
    "Tinytown",
    "WordTokenizer",
    "encode_stories",
    "join_words",
    "split_words",
]
