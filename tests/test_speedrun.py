"""The speedrun: what its rules refuse, what its judge measures, and why cheating does not help."""

import math
import re
import textwrap

import pytest
import torch

from course_lib.speedrun import judge, table
from course_lib.speedrun.rules import LONGEST, Entry, Refused
from course_lib.speedrun.text import BOS, EOS, renaming, stories
from course_lib.tinytown import Tinytown, WordTokenizer

TOKENIZER = WordTokenizer()
V = len(TOKENIZER.tokens)
COUNTED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.table, self.out = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)

    def forward(self, ids):
        return self.out(self.table(ids))


def train(text, seed):
    torch.manual_seed(seed)
    model = Model(text.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    batches = text.batches(4, 16, torch.Generator().manual_seed(seed))
    for step in text.steps(3):
        ids, targets = next(batches)
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
"""


def entry(tmp_path, source: str, name: str = "mine.py") -> Entry:
    path = tmp_path / name
    path.write_text(textwrap.dedent(source), encoding="utf-8")
    return Entry.read(path)


def grammar(renamed):
    """Return the logits of the grammar itself, for words with the given numbers."""
    town, old = Tinytown(), renamed.argsort()

    def logits(prefixes, vocab_size):
        found = torch.full((len(prefixes), vocab_size), -math.inf)
        for row, prefix in enumerate(prefixes):
            words = TOKENIZER.decode([i for i in old[prefix].tolist() if i > EOS])
            try:
                following = town.next_word(words)
            except ValueError:  # no story begins so
                found[row] = 0
                continue
            for word, p in following.items():
                found[row, renamed[TOKENIZER.id(word)]] = math.log(p)
        return found

    return logits


# ------------------------------------------------------------------------------------------------------------ the judge
def test_the_grammar_itself_is_exactly_at_the_entropy():
    renamed = renaming(5)
    assert judge.measured(grammar(renamed), renamed, number=3, n=4) == pytest.approx(0, abs=1e-6)


def test_a_model_that_knows_nothing_is_as_far_above_as_the_logarithm_says():
    renamed, town = renaming(5), Tinytown(2**41 + 3)
    fresh = town.sample(20)
    tokens = sum(len(TOKENIZER.encode(story)) - 1 for story in fresh)
    expected = math.log(V) + sum(map(town.log_prob, fresh)) / tokens
    assert judge.measured(lambda ids, n: torch.zeros(len(ids), n), renamed, 3, 20) == pytest.approx(expected, abs=1e-6)


def test_the_grammar_under_the_old_numbers_of_the_words_is_no_use():
    assert judge.measured(grammar(torch.arange(V)), renaming(5), number=3, n=4) > 3


def test_the_model_never_sees_the_token_that_it_has_to_predict():
    renamed, shown = renaming(5), []

    def logits(prefixes, vocab_size):
        shown.append(prefixes)
        return torch.zeros(len(prefixes), vocab_size)

    judge.measured(logits, renamed, number=3, n=6)
    assert [ids.shape[1] for ids in shown] == list(range(1, len(shown) + 1))
    rows = sorted((TOKENIZER.encode(story) for story in Tinytown(2**41 + 3).sample(6)), key=len, reverse=True)
    assert len(shown) == len(rows[0]) - 1
    for t, ids in enumerate(shown, 1):
        assert ids.tolist() == [renamed[torch.tensor(row[:t])].tolist() for row in rows if len(row) > t]


def test_a_table_of_all_stories_that_were_trained_on_is_far_from_the_entropy():
    renamed = renaming(5)
    seen: dict[tuple[int, ...], list[int]] = {}
    row: list[int] = []
    for token in stories(1, 2000, renamed).tolist():
        row = [token] if token == BOS else [*row, token]
        for t in range(1, len(row)):
            if t == len(row) - 1:
                seen.setdefault(tuple(row[:t]), []).append(token)

    def logits(prefixes, vocab_size):
        counts = torch.full((len(prefixes), vocab_size), 1e-2)
        for i, prefix in enumerate(prefixes.tolist()):
            for token in seen.get(tuple(prefix), []):
                counts[i, token] += 1
        return counts.log()

    assert judge.measured(logits, renamed, number=3, n=50) > 0.5


def test_a_model_below_the_entropy_is_refused(monkeypatch):
    renamed = renaming(5)
    monkeypatch.setattr(Tinytown, "log_prob", lambda self, story: -1000.0)  # as if the grammar knew less than it does
    with pytest.raises(Refused, match="below the entropy, which no honest predictor can be"):
        judge.measured(grammar(renamed), renamed, number=3, n=2)


def test_words_get_new_numbers_that_depend_on_the_whole_file(tmp_path):
    one, other = entry(tmp_path, COUNTED), entry(tmp_path, COUNTED + "# a comment\n")
    assert one.number("words", 0) != other.number("words", 0)
    assert one.number("words", 0) != one.number("words", 1)
    assert one.number("words", 0) != one.number("words", 0, "a teacher's secret")
    assert sorted(renaming(one.number("words", 0)).tolist()) == list(range(V))
    assert renaming(7)[:3].tolist() == [0, 1, 2]


# ---------------------------------------------------------------------------------------------------------- whole runs
def test_a_run_counts_the_matrix_products_of_training_and_nothing_else(tmp_path):
    seen = []
    result = judge.run(entry(tmp_path, COUNTED), 0, lambda *at: seen.append(at), n_stories=40, judged=10)
    # A step: logits of 4 · 16 tokens from 8 features, and twice as much for the gradients of weights and inputs.
    assert result.arithmetic == 3 * 3 * 2 * (4 * 16) * 8 * V
    assert 0.5 < result.above < math.log(V)
    assert seen[-1] == (3, 3)
    assert not result.within


@pytest.mark.proof
def test_a_run_can_be_repeated(tmp_path):
    runs = [judge.run(entry(tmp_path, COUNTED), 1, n_stories=40, judged=10) for _ in range(2)]
    assert runs[0].above == pytest.approx(runs[1].above, abs=1e-9)


def test_attention_is_counted_on_the_cpu(tmp_path):
    source = """
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Model(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def forward(self, ids):
            return torch.zeros(*ids.shape, self.n)

    def train(text, seed):
        q = torch.ones(2, 3, 5, 4, requires_grad=True)  # (B, H, T, D)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        return Model(text.vocab_size)
    """
    result = judge.run(entry(tmp_path, source), 0, n_stories=5, judged=2)
    product = 2 * 2 * 3 * 5 * 5 * 4  # of (T, D) and (D, T), for each head
    assert result.arithmetic == 2 * product + 5 * product  # two forward; backward repeats one and has four of its own


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    return model_of_mine", r"mine.py, line 3: NameError: name 'model_of_mine' is not defined"),
        ("    return 3", "train returned a int: return the trained model, an nn.Module"),
        ("    return torch.nn.Embedding(text.vocab_size, 4)", r"logits \(N, V\) = \(2, 4\), not \(2, 343\)"),
    ],
)
def test_an_error_of_the_file_is_told_with_its_line(tmp_path, body, said):
    with pytest.raises(judge.Failed, match=said):
        judge.run(entry(tmp_path, f"import torch\ndef train(text, seed):\n{body}"), 0, n_stories=5, judged=2)


def test_logits_that_are_not_finite_are_no_result(tmp_path):
    source = """
    import torch
    def train(text, seed):
        model = torch.nn.Embedding(text.vocab_size, text.vocab_size)
        model.weight.data[:] = torch.nan
        return model
    """
    with pytest.raises(judge.Failed, match="not finite"):
        judge.run(entry(tmp_path, source), 0, n_stories=5, judged=2)


@pytest.mark.proof
def test_a_my_gpt_takes_part_with_its_model_and_its_step(tmp_path):
    source = """
    import torch
    import torch.nn.functional as F
    from torch import nn

    STEPS = 2

    class MyGPT(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.token_embedding = nn.Embedding(config.vocab_size, config.vocab_size)

        def forward(self, ids, targets=None):
            logits = self.token_embedding(ids)
            return logits if targets is None else (logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))

    def training_step(model, ids, targets, optimizer):
        optimizer.zero_grad()
        model(ids, targets)[1].backward()
        optimizer.step()
    """
    result = judge.run(entry(tmp_path, source, "my_gpt.py"), 0, n_stories=200, judged=5)
    assert result.above > 1


# ------------------------------------------------------------------------------------------------------------ the rules
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import os", "imports os"),
        ("import numpy as np", "imports numpy"),
        ("from course_lib.tinytown import Tinytown", "imports course_lib.tinytown"),
        ("from course_lib.pretrained import load_pretrained", "imports course_lib.pretrained"),
        ("from course_lib import pretrained", "imports course_lib"),
        ("from . import other", "imports from its own folder; a file must stand alone"),
        ("import torch.utils.flop_counter", "imports torch.utils"),
        ("from torch import hub", "imports torch.hub"),
        ("open('weights')", "uses open"),
        ("eval('1')", "uses eval"),
        ("torch.load('weights')", "uses .load"),
        ("torch.compile(print)", "uses .compile"),
        ("torch.utils.flop_counter", "uses .utils"),
        ("torch._C", "uses ._C"),
        ("x.numpy()", "uses .numpy"),
        ("torch.nn.Linear(2, 2)._apply(abs)", "uses ._apply"),
        ("(1).__class__", "uses .__class__"),
        ("getattr(torch, 'lo' + 'ad')", "uses getattr"),
        ("__builtins__", "uses __builtins__"),
    ],
)
def test_what_could_read_files_or_hide_arithmetic_is_refused(tmp_path, line, said):
    with pytest.raises(Refused, match=f"mine.py, line 2: {re.escape(said)}"):
        entry(tmp_path, f"import torch\n{line}\ndef train(text, seed): pass")


def test_a_file_that_could_hold_a_trained_model_is_too_long(tmp_path):
    with pytest.raises(Refused, match="at most 20,000 are allowed"):
        entry(tmp_path, "def train(text, seed): pass\n" + "#" * LONGEST)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1", "has no function train"),
        ("def train(:", "line 1: invalid syntax"),
        ("class MyGPT: pass", "no MyGPT with"),
    ],
)
def test_a_file_without_a_model_is_told_so(tmp_path, source, said):
    with pytest.raises(Refused, match=said):
        entry(tmp_path, source)


def test_a_file_that_is_not_there_is_told_so(tmp_path):
    with pytest.raises(Refused, match="there is no file"):
        Entry.read(tmp_path / "none.py")


# ---------------------------------------------------------------------------------------------------------- the records
def test_every_record_keeps_to_the_rules_and_says_what_it_teaches():
    for name, each in table.files().items():
        title, lesson = table._heading(each)
        assert title, name
        assert lesson, name
        assert len(title) < 80, name


@pytest.mark.parametrize("record", table.records(), ids=lambda record: record.name)
def test_every_record_on_record_is_within_one_percent_with_three_seeds(record):
    assert [run.seed for run in record.runs] == [0, 1, 2]
    assert record.counts


def test_each_record_needs_less_arithmetic_than_the_one_before():
    needed = [record.arithmetic for record in table.records()]
    assert needed == sorted(needed, reverse=True)
