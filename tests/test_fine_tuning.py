"""Chapter 15's second town and LoRA: what the town is, what a layer adds, what is trained and what is measured."""

import math

import pytest
import torch
from torch import nn

from course_lib.chapters.pretrained import fine_tuning as tuned
from course_lib.chapters.pretrained.fine_tuning import LoRALinear, forgotten_at, second_town, trained_parameters
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import Tinytown, WordTokenizer, split_words


def small_decoder(seed=0):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_layers": 2, "max_seq_len": 6, "d_ff": 12}
    return DecoderOnly(TransformerConfig(**sizes)).eval()


# ------------------------------------------------------------------------------------------------------ the second town
def test_the_second_town_exchanges_every_word_for_one_other_so_its_entropy_is_tinytowns():
    words = Tinytown().vocabulary
    assert sorted(map(second_town, words)) == words
    back = {second_town(word): word for word in words}
    for story in Tinytown(3).sample(20):
        told = second_town(story)
        assert told != story
        assert Tinytown().log_prob(told) == -math.inf, "Tinytown never says this"
        again = " ".join(back[word] for word in split_words(told))
        assert Tinytown().log_prob(again) == Tinytown().log_prob(story)


def test_the_loss_of_a_kind_is_the_mean_over_its_words():
    class Guess(nn.Module):
        """The same logits everywhere: a word's loss depends on its id only."""

        def forward(self, ids):
            logits = torch.linspace(0, 5, len(WordTokenizer()))
            return logits.expand(*ids.shape, -1)

    by_kind = tuned.losses_by_kind(Guess(), n_stories=30)
    assert list(by_kind) == [*tuned.KINDS, tuned.OTHERS]
    tokenizer = WordTokenizer()
    nats = -Guess()(torch.tensor([0])).log_softmax(dim=-1)[0]  # (V,)
    told = [i for story in Tinytown(tuned.HELD_OUT_SEED).sample(30) for i in tokenizer.encode(story)[1:]]
    for kind, words in tuned.KINDS.items():
        mean = torch.stack([nats[i] for i in told if tokenizer.tokens[i] in words]).mean().item()
        assert by_kind[kind] == pytest.approx(mean, rel=1e-4)


# -------------------------------------------------------------------------------------------------------------- a layer
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_with_lora_is_a_linear_layer_with_the_product_added_to_its_matrix(bias):
    torch.manual_seed(0)
    linear = nn.Linear(5, 7, bias=bias)
    layer, x = LoRALinear(linear, rank=2, alpha=6), torch.randn(3, 4, 5)
    torch.testing.assert_close(layer(x), linear(x), atol=0, rtol=0)
    nn.init.normal_(layer.B)
    whole = linear.weight + 6 / 2 * layer.B @ layer.A
    torch.testing.assert_close(layer(x), nn.functional.linear(x, whole, linear.bias))
    assert torch.linalg.matrix_rank(whole - linear.weight) == 2


def test_a_rank_below_one_is_refused():
    with pytest.raises(ValueError, match=r"rank .* at least 1, got 0"):
        LoRALinear(nn.Linear(2, 2), rank=0, alpha=1)


def test_every_linear_layer_of_the_blocks_gets_its_pair_and_nothing_else_is_trained():
    model, plain, ids = small_decoder(), small_decoder(), torch.randint(11, (2, 6))
    before = {name: tensor.clone() for name, tensor in plain.named_parameters()}
    tuned.with_lora(model, rank=3, alpha=3)
    torch.testing.assert_close(model(ids), plain(ids), atol=0, rtol=0)
    assert trained_parameters(model) == 2 * 3 * (4 * (8 + 8) + 2 * (8 + 12)), "two blocks, rank 3"
    moving = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(moving, lr=1.0)
    for _ in range(2):
        optimizer.zero_grad()
        model(ids, ids)[1].backward()
        optimizer.step()
    assert all(parameter.abs().sum() > 0 for parameter in moving)
    after = {name.replace(".linear.", "."): tensor for name, tensor in model.named_parameters()}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


# --------------------------------------------------------------------------------------------------------- measurements
def test_what_is_forgotten_is_read_off_between_two_looks():
    seen = [(4.0, 0.7), (2.0, 1.0), (1.0, 1.4)]
    assert forgotten_at(seen, 3.0) == pytest.approx(0.85)
    assert forgotten_at(seen, 1.25) == pytest.approx(1.3)
    with pytest.raises(ValueError, match=r"never falls to new=.* nats: the lowest is 1\.00"):
        forgotten_at(seen, 0.9)


def test_an_unknown_way_of_fine_tuning_is_refused():
    with pytest.raises(ValueError, match="way='prefix' is not known: choose one of 'all', 'lora'"):
        tuned.fine_tuned("prefix", 0)


@pytest.mark.proof
def test_both_ways_begin_as_the_trained_model_learn_the_second_town_and_forget(monkeypatch):
    monkeypatch.setattr(tuned, "LOOK_EVERY", 12)
    (whole, all_seen), (thin, thin_seen) = (tuned.fine_tuned(way, 0, steps=12) for way in ("all", "lora"))
    assert all_seen[0] == thin_seen[0]
    assert trained_parameters(whole) > 10 * trained_parameters(thin)
    for (new_before, old_before), (new, old) in (all_seen, thin_seen):
        assert new < new_before - 1
        assert old > old_before + 0.1
