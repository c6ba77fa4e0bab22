"""What the shipped model must show, measured again; and the measurements themselves on models whose answers are
known."""

import math
from dataclasses import replace

import pytest
import torch

from course_lib import tinytown as text
from course_lib.claims import TinytownRecipe, measure_tinytown, train_tinytown
from course_lib.config import preset
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import load_pretrained, shipped_figures
from course_lib.tinytown import Tinytown, WordTokenizer


@pytest.fixture(scope="module")
def shipped():
    return measure_tinytown(*load_pretrained("tinytown"), n_stories=600)


@pytest.mark.proof
def test_the_shipped_model_knows_what_the_course_says_it_knows(shipped):
    assert abs(shipped.excess) < 0.03
    assert shipped.capitals >= 0.95
    assert shipped.it_referent >= 0.90
    assert shipped.who_bit_whom >= 0.95
    assert shipped.pronouns >= 0.95
    assert shipped.analogy[0] == "queen"
    assert shipped.cat_neighbours_are_animals


@pytest.mark.proof
def test_no_model_beats_the_grammar_on_its_own_stories(shipped):
    assert shipped.loss > shipped.grammar_loss


@pytest.mark.proof
def test_the_figures_beside_the_weights_are_those_of_the_weights(shipped):
    kept = shipped_figures()["figures"]
    assert kept["entropy"] == pytest.approx(shipped.entropy, abs=1e-4)
    assert kept["loss"] == pytest.approx(shipped.loss, rel=0.03), "another sample of stories, the same model"
    assert kept["analogy"] == shipped.analogy
    assert kept["cat_neighbours"] == shipped.cat_neighbours


class Oracle(torch.nn.Module):
    """Answers with the grammar's own probabilities: a model that has learnt Tinytown to the end."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer
        self.token_embedding = torch.nn.Embedding(len(tokenizer), 4)
        self.town = Tinytown()

    def forward(self, ids):
        logits = torch.full((*ids.shape, len(self.tokenizer)), -1e4)
        for row, sentence in enumerate(ids.tolist()):
            words = [self.tokenizer.tokens[i] for i in sentence[1:] if i > self.tokenizer.eos_id]
            for t in range(min(len(words) + 1, ids.shape[1])):
                for word, probability in self.town.next_word(text.join_words(words[:t])).items():
                    logits[row, t, self.tokenizer.id(word)] = math.log(probability)
        return logits


@pytest.mark.proof
def test_a_perfect_model_reaches_the_grammars_loss_and_every_ability():
    tokenizer = WordTokenizer()
    figures = measure_tinytown(Oracle(tokenizer), tokenizer, n_stories=40)
    assert figures.loss == pytest.approx(figures.grammar_loss, rel=1e-4)
    assert figures.capitals == figures.who_bit_whom == figures.copying == figures.pronouns == figures.it_referent == 1


def test_an_untrained_model_has_none_of_the_abilities():
    torch.manual_seed(0)
    figures = measure_tinytown(DecoderOnly(preset("tinytown")), WordTokenizer(), n_stories=60)
    assert figures.loss == pytest.approx(math.log(335), rel=0.05)
    assert max(figures.capitals, figures.it_referent, figures.copying) < 0.2
    assert 0.2 < figures.pronouns < 0.8, "he or she: a coin"


def test_too_few_stories_to_measure_every_ability_are_refused():
    with pytest.raises(ValueError, match=r"n_stories=1 is too small.*copying"):
        measure_tinytown(*load_pretrained("tinytown"), n_stories=1)


def test_an_unfinished_run_of_another_recipe_is_not_mixed_up_with_this_one(tmp_path, monkeypatch):
    recipe = replace(TinytownRecipe(), steps=4, stories=60, batch_size=2, threads=1, early_steps=(0, 2))

    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("course_lib.claims.tinytown.measure_tinytown", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_tinytown(tmp_path, recipe, progress=False)
    assert (tmp_path / "training.pt").exists()
    with pytest.raises(ValueError, match="seed 0 there, 1 here"):
        train_tinytown(tmp_path, replace(recipe, seed=1), progress=False)
    _, history = train_tinytown(tmp_path, recipe, progress=False, measure_stories=20)
    assert len(history) == 4


def test_training_writes_a_model_with_its_figures_and_never_over_another(tmp_path):
    recipe = replace(TinytownRecipe(), steps=3, stories=60, batch_size=2, threads=1, early_steps=(0, 2))
    figures, history = train_tinytown(tmp_path / "run", recipe, progress=False, measure_stories=20)
    assert len(history) == 3
    kept = shipped_figures(tmp_path / "run")
    assert kept["recipe"]["steps"] == 3
    assert kept["figures"]["loss"] == pytest.approx(figures.loss, abs=1e-3)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "config.json", "embeddings_by_step.safetensors", "figures.json", "model.safetensors", "vocabulary.json"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="holds a trained model already"):
        train_tinytown(tmp_path / "run", recipe, progress=False)


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"stories": -1}, "stories must be a whole number of at least 1, got -1"),
        ({"stories": 1}, "needs at least 97 ids"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"peak": 0.0}, r"peak must be a positive number, got 0\.0"),
        ({"peak": math.nan}, "peak must be a positive number, got nan"),
        ({"warmup": -1}, "warmup must be a finite number of at least 0, got -1"),
        ({"seed": 2**70}, "seed must be .*, got 1180591620717411303424"),
    ],
)
def test_a_recipe_that_makes_no_sense_leaves_nothing_behind(tmp_path, setting, message):
    with pytest.raises(ValueError, match=message):
        train_tinytown(tmp_path / "runs" / "new", replace(TinytownRecipe(), **setting), progress=False)
    assert not list(tmp_path.iterdir())
    (tmp_path / "kept.txt").touch()
    with pytest.raises(ValueError, match=message):
        train_tinytown(tmp_path, replace(TinytownRecipe(), **setting), progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
