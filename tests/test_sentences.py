"""Sentences that a measurement refuted, or that nobody measured: they stay out of everything that learners read."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What was said -> what was measured instead, or why nothing follows.
WITHDRAWN = {
    r"finds the word that came next last time": "layer 2, head 3 copies by the position in the list, in 180 of 180",
    r"Nobody told it about words": "the merges may not reach across `_`; without that rule `_the_cat` is one token",
    r"[Tt]he score depends on the distance alone": "RoPE's score depends on the query and the key as well",
    r"the purpose of the √d": "Vaswani et al. 2017 give no reason for the factor √d_model",
    r"commonest mistake": "nobody counted the mistakes",
    r"little of the future comes through": "a late mask, renormalised, is the right mask up to rounding",
    r"what masking after the softmax would give": "it gives 0.09, 0.09: the hidden scores are larger",
    r"which is harmless|blocks are harmless": "whether growth with depth does harm was not measured, and is contested",
    r"largest tenth": "the figure is the 95th of 100, so the largest twentieth",
    r"by 20 others in turn": "random words break the grammar, and measure the substitute",
    r"rescued post-norm": "pre-norm was not given the same help",
    r"capitals (is|are) (lost|kept)": "lost by which criterion? It is p = 0.5, and stands in the sentence",
}


@cache
def texts() -> dict[str, str]:
    """What learners read, by file: the cells' sources and what they printed, the library's code and record."""
    found = {}
    for path in sorted(
        [*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("exercises/*.ipynb"), *ROOT.glob("solutions/*.ipynb")]
    ):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        printed = [
            output.get("text", output.get("data", {}).get("text/plain", []))
            for cell in cells
            for output in cell.get("outputs", [])
        ]
        found[str(path.relative_to(ROOT))] = "\n".join(
            "".join(lines) for lines in [*(cell["source"] for cell in cells), *printed]
        )
    for path in [
        ROOT / "README.md",
        *ROOT.glob("solutions/*.md"),
        *ROOT.glob("course_lib/**/*.py"),
        *ROOT.glob("course_lib/**/*.json"),
    ]:
        found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
    return found


@pytest.mark.parametrize("sentence", WITHDRAWN)
def test_a_withdrawn_sentence_stays_withdrawn(sentence):
    # A sentence may be broken over two lines, or over two strings of a program.
    pattern = sentence.replace(" ", r"""["'\s]+""")
    saying = [path for path, text in texts().items() if re.search(pattern, text)]
    assert not saying, f"{', '.join(saying)} say it again: {WITHDRAWN[sentence]}"


def test_a_sentence_is_found_across_lines_and_strings():
    assert len(texts()) > 100
    assert re.search("little of the future".replace(" ", r"""["'\s]+"""), '"a little of "\n    "the future"')
