"""What would have been: another token at a position, and one part of a run taken from another."""

import pytest
import torch
from helpers import build, draw_ids, small

from course_lib.claims.interventions import patch, swap
from course_lib.trace import trace

LAYERS = 2


def model_and_texts(family="decoder", B=2, T=6, **settings):
    model = build(small(family=family, **settings), dtype=torch.float64)
    torch.manual_seed(1)
    return model, draw_ids(B, T), draw_ids(B, T)


def change(model, ids, source):
    with torch.no_grad():
        return model(source) - model(ids)


def test_a_swap_is_the_difference_of_two_texts_and_leaves_the_text_alone():
    model, ids, _ = model_and_texts()
    kept, other = ids.clone(), ids.clone()
    other[:, 3] = 1
    found = swap(model, ids, 3, 1)
    assert torch.equal(found, change(model, ids, other))
    assert torch.equal(found, swap(model, ids, 3 - ids.shape[1], 1))
    assert torch.equal(ids, kept)
    assert (found[:, :3] == 0).all(), "a decoder's earlier logits know nothing of a later token"
    assert found[:, 3:].abs().max() > 0


@pytest.mark.parametrize("at", ["token_embedding", "dropout", "blocks.0", "blocks.1", "final_norm", "output"])
def test_all_that_passes_through_one_place_carries_the_whole_difference(at):
    model, ids, source = model_and_texts(positions="sinusoidal")
    torch.testing.assert_close(patch(model, ids, source, at), change(model, ids, source))


@pytest.mark.parametrize("layer", range(LAYERS))
def test_heads_are_parts_of_their_attention(layer):
    """In the last layer of a pre-norm block without a feed-forward network after it heads would add up; with one they
    need not. So what a head carries is held against a run made by hand."""
    model, ids, source = model_and_texts()
    name, D = f"blocks.{layer}.attention", 4
    projection = model.blocks[layer].attention.out_proj
    with trace(model, f"{name}.heads") as seen, torch.no_grad():
        model(source)
    theirs = seen[f"{name}.heads"]  # (B, H, T, D)
    for head in range(theirs.shape[1]):

        def by_hand(_, inputs, head=head):
            merged = inputs[0].clone()  # (B, T, d_model)
            merged[:, 1:3, head * D : (head + 1) * D] = theirs[:, head, 1:3]
            return (merged,)

        handle = projection.register_forward_pre_hook(by_hand)
        with torch.no_grad():
            expected = model(ids)
        handle.remove()
        with torch.no_grad():
            expected = expected - model(ids)
        found = patch(model, ids, source, f"{name}.head.{head}", positions=[1, 2])
        torch.testing.assert_close(found, expected)
        assert found.abs().max() > 0


def test_every_unit_at_once_is_the_network():
    model, ids, source = model_and_texts(n_layers=1, activation="relu")
    units = model.blocks[0].feed_forward.down_proj.in_features
    with trace(model, "*.hidden") as seen, torch.no_grad():
        model(ids), (ours := seen["blocks.0.feed_forward.hidden"])
        model(source), (theirs := seen["blocks.0.feed_forward.hidden"])
    silent = ((ours == theirs).all(dim=(0, 1))).nonzero().flatten().tolist()
    carried = [unit for unit in range(units) if patch(model, ids, source, f"blocks.0.feed_forward.unit.{unit}").any()]
    assert set(carried) == set(range(units)) - set(silent)


def test_a_mask_chooses_for_each_text_by_itself():
    model, ids, source = model_and_texts()
    at = "blocks.0.attention.head.1"
    mask = torch.tensor([[False, True, False, False, True, False], [False] * 3 + [True] * 3])
    found = patch(model, ids, source, at, mask)
    for text, chosen in enumerate(([1, 4], [3, 4, 5])):
        alone = patch(model, ids[text : text + 1], source[text : text + 1], at, chosen)
        torch.testing.assert_close(found[text : text + 1], alone)


def test_a_text_patched_with_itself_does_not_change():
    model, ids, _ = model_and_texts()
    for at in ("blocks.1", "blocks.0.attention.head.1", "blocks.1.feed_forward.unit.3"):
        assert (patch(model, ids, ids, at) == 0).all()


def test_an_encoder_can_be_asked_too():
    model, ids, source = model_and_texts("encoder")
    torch.testing.assert_close(patch(model, ids, source, "blocks.1"), change(model, ids, source))


def test_the_model_is_as_it_was():
    model, ids, source = model_and_texts(dropout=0.5)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    patch(model, ids, source, "blocks.0.attention.head.0")
    swap(model, ids, 0, 1)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    assert sum(hooks) == 0


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("blocks.7", "not a part of this model. Nearest: blocks."),
        ("", "not a part of this model"),
        ("blocks.0.attention.head.4", "there are 4 heads, 0 to 3"),
        ("blocks.0.feed_forward.unit.20", "there are 20 units, 0 to 19"),
        ("blocks.0.feed_forward.head.0", "has no heads"),
        ("blocks.0.attention.unit.0", "has no units"),
        ("blocks.0.attention.head.x", "not a part of this model"),
    ],
)
def test_a_part_that_is_not_there_is_refused_by_name(at, told):
    model, ids, source = model_and_texts()
    with pytest.raises(ValueError, match="at=") as refused:
        patch(model, ids, source, at)
    assert told in str(refused.value)


@pytest.mark.usefixtures("as_a_learner")
def test_texts_that_do_not_fit_are_refused():
    model, ids, source = model_and_texts()
    with pytest.raises(ValueError, match="both texts need the same length"):
        patch(model, ids, source[:, :4], "blocks.0")
    with pytest.raises(ValueError, match=r"positions=\[6\] are outside the texts, which have 6 tokens"):
        patch(model, ids, source, "blocks.0", positions=[0, 6])
    for mask in (torch.ones(2, 6), torch.ones(2, 5, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"a boolean mask with the shape of ids, \(2, 6\)"):
            patch(model, ids, source, "blocks.0", positions=mask)
    with pytest.raises(ValueError, match="position=6 is outside the text, which has 6 tokens"):
        swap(model, ids, 6, 0)
    with pytest.raises(ValueError, match=r"write ids\[None\] for one text"):
        swap(model, ids[0], 0, 0)
