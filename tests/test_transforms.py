"""Models under PyTorch's transforms: exported, compiled whole, and mapped over texts or over an ensemble's weights."""

import pytest
import torch
from torch.export import Dim, export
from torch.func import functional_call, grad, stack_module_state

from course_lib.config import POSITIONS, TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.fast import fast
from course_lib.gpt import DecoderOnly, next_token_loss
from course_lib.masks import padding_mask
from course_lib.sampling import next_token_distribution

pytestmark = pytest.mark.usefixtures("as_a_learner")

MODELS = {"decoder": DecoderOnly, "encoder": EncoderOnly, "encoder-decoder": EncoderDecoder}
SIZES = {"vocab_size": 31, "d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 32, "max_seq_len": 12}
WAYS = [(family, positions) for family in MODELS for positions in POSITIONS]


def made(family, positions, seed=0, **more):
    torch.manual_seed(seed)
    model = MODELS[family](TransformerConfig(**SIZES, family=family, positions=positions, **more)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def texts(family, B, T=7):
    """What a model of the family reads: ids (B, T), for a translator the target's too."""
    ids = torch.randint(31, (B, T))
    return (ids, ids.flip(1)[:, :5]) if family == "encoder-decoder" else (ids,)


@pytest.mark.parametrize(("family", "positions"), WAYS)
def test_an_exported_model_gives_the_same_numbers_for_batches_of_every_size(family, positions):
    model, given = made(family, positions), texts(family, 3)
    program = export(model, given, dynamic_shapes=tuple({0: Dim("B", max=1024)} for _ in given)).module()
    with torch.no_grad():
        for batch in (given, texts(family, 5)):
            torch.testing.assert_close(program(*batch), model(*batch))


def test_an_exported_model_reads_texts_of_every_length():
    for family in MODELS:
        model, given = made(family, "rope"), texts(family, 3)
        lengths = tuple({0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for _ in given)
        program = export(model, given, dynamic_shapes=lengths).module()
        with torch.no_grad():
            for batch in (given, texts(family, 2, 11)):
                torch.testing.assert_close(program(*batch), model(*batch))


def test_padding_a_window_a_stretched_rope_and_a_loss_are_exported_too():
    model = made("decoder", "rope", window=3, rope_scaling=(8.0, 1.0, 4.0, 64))
    ids, padding = texts("decoder", 3)[0], torch.tensor([0, 2, 5])
    for more in ({"targets": ids.roll(-1, 1).index_fill(1, torch.tensor([2]), -100)}, {"left_padding": padding}):
        program = export(model, (ids,), more).module()
        torch.testing.assert_close(program(ids, **more), model(ids, **more))
    for positions in ("learned", "sinusoidal", "alibi"):
        model = made("decoder", positions)
        program = export(model, (ids,), {"left_padding": padding}).module()
        torch.testing.assert_close(program(ids, left_padding=padding), model(ids, left_padding=padding))


def test_a_large_layer_is_exported_for_every_batch_where_no_gradient_flows():
    """A layer that would share its rows among the cores: how many there are, and how many tokens, must not be fixed."""
    model = fast(DecoderOnly(TransformerConfig(**SIZES | {"d_model": 512, "n_layers": 1}, positions="rope"))).eval()
    with torch.no_grad():
        ids = texts("decoder", 2)[0]
        program = export(model, (ids,), dynamic_shapes=({0: Dim("B", max=1024)},)).module()
        for batch in (ids, texts("decoder", 9)[0]):
            torch.testing.assert_close(program(batch), model(batch))


@pytest.mark.parametrize("family", MODELS)
def test_a_model_compiles_whole(family):
    model, given = made(family, "learned"), texts(family, 3)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*given), model(*given))


@pytest.mark.parametrize(("family", "positions"), WAYS)
def test_vmap_over_texts_is_the_batch(family, positions):
    model, given = made(family, positions), texts(family, 4)
    one_by_one = torch.vmap(lambda *rows: model(*(row[None] for row in rows))[0])(*given)
    torch.testing.assert_close(one_by_one, model(*given))


@pytest.mark.parametrize(("family", "positions"), WAYS)
def test_vmap_over_the_weights_of_an_ensemble_is_each_model_by_itself(family, positions):
    models, given = [made(family, positions, seed) for seed in range(3)], texts(family, 2)
    weights, buffers = stack_module_state(models)
    with torch.no_grad():  # PyTorch's fused kernel learns no relative bias under vmap; vmap over grad does, see below
        together = torch.vmap(lambda *state: functional_call(models[0], state, given))(weights, buffers)
        torch.testing.assert_close(together, torch.stack([model(*given) for model in models]))


@pytest.mark.parametrize("family", MODELS)
def test_a_functional_call_leaves_the_models_own_weights_in_it(family):
    model, given = made(family, "learned"), texts(family, 2)
    before = model.state_dict(keep_vars=True)
    functional_call(model, {name: torch.zeros_like(each) for name, each in model.named_parameters()}, given)
    assert all(each is before[name] for name, each in model.state_dict(keep_vars=True).items())


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_gradients_of_an_ensemble_are_each_models_own(positions):
    models, (ids, targets) = [made("decoder", positions, seed) for seed in range(2)], torch.randint(31, (2, 3, 7))
    weights, buffers = stack_module_state(models)
    loss = lambda weights, buffers: functional_call(models[0], (weights, buffers), (ids, targets))[1]  # noqa: E731
    found = torch.vmap(grad(loss))(weights, buffers)
    for number, model in enumerate(models):
        model(ids, targets)[1].backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found[name][number], parameter.grad)


def test_a_gradient_per_text_by_vmap_is_the_gradient_of_that_text():
    model, ids = made("decoder", "relative"), texts("decoder", 3)[0]
    targets = ids.roll(-1, 1).index_fill(1, torch.tensor([6]), -100)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(weights, row, target):
        return functional_call(model, weights, (row[None], target[None]))[1]

    for name, found in torch.vmap(grad(loss), (None, 0, 0))(weights, ids, targets).items():
        for row in range(3):
            model.zero_grad()
            model(ids[row, None], targets[row, None])[1].backward()
            torch.testing.assert_close(found[row], model.get_parameter(name).grad)


def test_padding_masks_losses_and_filters_are_mapped_over_rows():
    lengths, logits = torch.tensor([[3], [1], [5]]), torch.randn(3, 2, 4, 31)
    targets = torch.randint(31, (3, 2, 4))
    torch.testing.assert_close(
        torch.vmap(lambda each: padding_mask(each, 5))(lengths)[:, 0], padding_mask(lengths[:, 0], 5)
    )
    losses = torch.stack([next_token_loss(*each) for each in zip(logits, targets)])
    torch.testing.assert_close(torch.vmap(next_token_loss)(logits, targets), losses)
    settings = {"temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.05}
    mapped = torch.vmap(lambda each: next_token_distribution(each, **settings))(logits)
    torch.testing.assert_close(mapped, next_token_distribution(logits, **settings))
