"""The three families: what they are made of, how they start, their loss, and what they refuse.

Against PyTorch: test_parity_torch.py; against `transformers`: test_models_against_transformers.py; what holds for every
configuration: test_properties.py.
"""

import dataclasses
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from helpers import MODELS, V, build, configs, draw_ids, inputs_of, seeds, small
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.config import POSITIONS, TransformerConfig, preset
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import DecoderOnly, evaluating, next_token_loss
from course_lib.masks import padding_mask

families = pytest.mark.parametrize("family", MODELS)


class TestLoss:
    @pytest.mark.parametrize("family", ["decoder", "encoder-decoder"])
    def test_it_is_the_mean_surprise_in_nats_of_the_targets_that_count(self, family):
        model = build(small(family))
        inputs = inputs_of(family, T=5)
        targets = torch.tensor([[4, -100, 0, 30, 2], [-100, -100, 7, 7, -100]])
        logits, loss = model(*inputs, targets=targets)
        assert torch.equal(logits, model(*inputs))
        probabilities = logits.double().softmax(-1)
        surprise = [
            -math.log(probabilities[b, t, targets[b, t]].item())
            for b in range(2)
            for t in range(5)
            if targets[b, t] >= 0
        ]
        assert len(surprise) == 6
        assert loss.item() == pytest.approx(sum(surprise) / 6, rel=1e-5)

    def test_ignored_targets_send_no_gradient(self):
        model = build(small())
        _, loss = model(draw_ids(1, 5), torch.tensor([[3, 4, -100, -100, -100]]))
        loss.backward()
        assert (model.positions.weight.grad[2:] == 0).all()
        assert (model.positions.weight.grad[:2] != 0).any(-1).all()

    def test_a_certain_model_is_not_surprised_and_an_even_one_by_ln_v(self):
        targets = draw_ids(2, 3)
        certain = 100 * F.one_hot(targets, V).float()
        assert next_token_loss(certain, targets).item() == pytest.approx(0, abs=1e-6)
        assert next_token_loss(torch.zeros(2, 3, V), targets).item() == pytest.approx(math.log(V))


class TestStart:
    @families
    @pytest.mark.parametrize("tie_weights", [True, False])
    @pytest.mark.parametrize("norm_position", ["pre", "post"])
    def test_an_untrained_model_guesses_evenly(self, family, tie_weights, norm_position):
        config = small(family, vocab_size=1000, d_model=128, max_seq_len=64)
        config = dataclasses.replace(config, tie_weights=tie_weights, norm_position=norm_position)
        model = MODELS[family](config)
        ids, targets = torch.randint(1000, (4, 64)), torch.randint(1000, (4, 64))
        with torch.no_grad():
            if family == "encoder":  # has no head of its own; BERT's looks words up in the same table
                loss = next_token_loss(model(ids) @ model.token_embedding.weight.T, targets)
            else:
                loss = model(ids, targets)[1] if family == "decoder" else model(ids, ids, targets=targets)[1]
        assert loss.item() == pytest.approx(math.log(1000), rel=0.02)

    @families
    @pytest.mark.parametrize("activation", ["gelu", "swiglu"])
    def test_the_initial_weights_have_gpt2s_spread(self, family, activation):
        sizes = {"vocab_size": 500, "d_model": 128, "n_layers": 8, "max_seq_len": 200, "d_ff": 300}
        config = dataclasses.replace(small(family, activation=activation), **sizes, tie_weights=False)
        for name, parameter in MODELS[family](config).named_parameters():
            if "norm" in name:
                assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
            elif name.endswith("bias"):
                assert (parameter == 0).all(), name
            else:
                writes_to_stream = name.endswith(("out_proj.weight", "down_proj.weight"))
                branches = 3 if name.startswith("decoder.") else 2
                expected = 0.02 / (branches * 8) ** 0.5 if writes_to_stream else 0.02
                assert parameter.std().item() == pytest.approx(expected, rel=0.04), name
                assert abs(parameter.mean().item()) < 0.04 * expected, name

    def test_the_experts_of_a_mixture_start_as_one_network_does(self):
        """Of many experts each token has a few, whose weights add up to 1: no more branches than without experts."""
        sizes = {"d_model": 128, "n_layers": 8, "d_ff": 300, "n_experts": 4, "experts_per_token": 2}
        model = DecoderOnly(dataclasses.replace(small(activation="swiglu"), **sizes))
        for expert in model.blocks[3].feed_forward.experts:
            assert expert.up_proj.weight.std().item() == pytest.approx(0.02, rel=0.04)
            assert expert.down_proj.weight.std().item() == pytest.approx(0.02 / 16**0.5, rel=0.04)

    @families
    def test_a_seed_makes_the_same_weights_again_and_another_seed_others(self, family):
        def made(seed):
            torch.manual_seed(seed)
            return MODELS[family](small(family, tie_weights=False)).state_dict()

        first, again, other = made(1), made(1), made(2)
        assert all(torch.equal(first[name], again[name]) for name in first)
        drawn = [name for name in first if first[name].unique().numel() > 2]
        assert drawn
        assert not any(torch.equal(first[name], other[name]) for name in drawn)


class TestMakeUp:
    def test_gpt2_follows_from_its_config_alone(self):
        config = dataclasses.replace(
            preset("gpt2"), vocab_size=V, d_model=16, n_heads=4, n_kv_heads=4, n_layers=1, d_ff=64, max_seq_len=12
        )
        model = DecoderOnly(config)
        assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
            "token_embedding.weight": (V, 16),
            "positions.weight": (12, 16),
            **{
                f"blocks.0.{name}.{kind}": shape if kind == "weight" else shape[:1]
                for name, shape in {
                    "norm1": (16,),
                    "attention.q_proj": (16, 16),
                    "attention.k_proj": (16, 16),
                    "attention.v_proj": (16, 16),
                    "attention.out_proj": (16, 16),
                    "norm2": (16,),
                    "feed_forward.up_proj": (64, 16),
                    "feed_forward.down_proj": (16, 64),
                }.items()
                for kind in ("weight", "bias")
            },
            "final_norm.weight": (16,),
            "final_norm.bias": (16,),
        }
        assert model.blocks[0].feed_forward.activation == "gelu_tanh"

    def test_llama_follows_from_its_config_alone(self):
        config = dataclasses.replace(
            preset("llama-3-8b"), vocab_size=V, d_model=16, n_heads=4, n_kv_heads=2, n_layers=1, d_ff=56, max_seq_len=12
        )
        model = DecoderOnly(config)
        assert {name: tuple(p.shape) for name, p in model.named_parameters()} == {
            "token_embedding.weight": (V, 16),
            "blocks.0.norm1.weight": (16,),
            "blocks.0.attention.q_proj.weight": (16, 16),
            "blocks.0.attention.k_proj.weight": (8, 16),
            "blocks.0.attention.v_proj.weight": (8, 16),
            "blocks.0.attention.out_proj.weight": (16, 16),
            "blocks.0.norm2.weight": (16,),
            "blocks.0.feed_forward.gate_proj.weight": (56, 16),
            "blocks.0.feed_forward.up_proj.weight": (56, 16),
            "blocks.0.feed_forward.down_proj.weight": (16, 56),
            "final_norm.weight": (16,),
            "output.weight": (V, 16),
        }

    def test_tied_weights_are_one_tensor(self):
        tied, untied = DecoderOnly(small()), DecoderOnly(small(tie_weights=False))
        assert tied.output.weight is tied.token_embedding.weight
        assert untied.output.weight is not untied.token_embedding.weight
        tied_count, untied_count = (sum(p.numel() for p in model.parameters()) for model in (tied, untied))
        assert untied_count - tied_count == V * 16

    def test_in_a_translator_three_uses_share_one_tensor_whose_gradient_is_their_sum(self):
        model, untied = (build(small("encoder-decoder", tie_weights=tie)) for tie in (True, False))
        table = model.encoder.token_embedding.weight
        assert model.decoder.token_embedding.weight is table
        assert model.output.weight is table
        assert untied.decoder.token_embedding.weight is untied.encoder.token_embedding.weight
        assert untied.output.weight is not untied.encoder.token_embedding.weight

        untied.load_state_dict(model.state_dict())  # the same numbers, with a head of its own
        source, target, targets = draw_ids(2, 5), draw_ids(2, 4), draw_ids(2, 4)
        for each in (model, untied):
            each(source, target, targets=targets)[1].backward()
        sum_of_uses = untied.encoder.token_embedding.weight.grad + untied.output.weight.grad
        torch.testing.assert_close(table.grad, sum_of_uses, atol=1e-6, rtol=1e-5)

    @families
    @settings(max_examples=10)
    @given(data=st.data(), seed=seeds)
    def test_saved_weights_bring_back_the_same_model(self, family, data, seed):
        config = data.draw(configs(family))
        model, other = build(config, seed=seed), build(config, seed=seed + 1)
        inputs = inputs_of(family)
        assert not torch.allclose(model(*inputs), other(*inputs))
        other.load_state_dict(pickle.loads(pickle.dumps(model.state_dict())))
        assert torch.equal(model(*inputs), other(*inputs))

    @families
    @pytest.mark.parametrize("activation", ["gelu", "swiglu"])
    def test_the_config_says_whether_there_are_biases_everywhere_or_nowhere(self, family, activation):
        for bias in (True, False):
            model = MODELS[family](small(family, bias=bias, activation=activation))
            names = {name for name, _ in model.named_parameters()}
            weights = {name for name in names if "proj" in name or "norm" in name} - {n for n in names if "bias" in n}
            expected = {name.replace("weight", "bias") for name in weights} if bias else set()
            assert {name for name in names if name.endswith("bias")} == expected

    def test_a_translator_scales_its_token_vectors_and_the_others_do_not(self):
        for family, factor in (("decoder", 1), ("encoder", 1), ("encoder-decoder", 4)):  # sqrt(16)
            model = build(small(family))
            stack = model.encoder if family == "encoder-decoder" else model
            ids = draw_ids(2, 3)
            torch.testing.assert_close(stack.token_embedding(ids), factor * stack.token_embedding.weight[ids])


class TestNumbers:
    @families
    @settings(max_examples=10)
    @given(data=st.data(), seed=seeds)
    def test_the_model_computes_in_the_dtype_of_its_weights(self, family, data, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs(family)), seed=seed)
        inputs = inputs_of(family)
        with torch.no_grad():
            single = model(*inputs)
            low = model.bfloat16()(*inputs)
            rounded = model.double()(*inputs)  # bfloat16's weights in float64
        assert (single.dtype, low.dtype, rounded.dtype) == (torch.float32, torch.bfloat16, torch.float64)
        assert low.isfinite().all()
        assert (low - rounded).norm() < 0.1 * rounded.norm()

    @families
    @pytest.mark.parametrize("positions", POSITIONS)
    def test_a_model_without_values_still_has_shapes(self, family, positions):
        # On the meta device everything a model makes must follow its input, or the two do not mix.
        with torch.device("meta"):
            model = MODELS[family](
                small(family, positions=positions, n_kv_heads=2, n_segments=2 * (family == "encoder"))
            )
        ids = torch.zeros(2, 5, dtype=torch.long, device="meta")
        mask = torch.ones(2, 1, 1, 5, dtype=torch.bool, device="meta")
        outputs = {"decoder": lambda: model(ids), "encoder": lambda: model(ids, mask)}
        output = outputs.get(family, lambda: model(ids, ids[:, :3], mask))()
        assert output.is_meta
        assert output.shape == {"decoder": (2, 5, V), "encoder": (2, 5, 16)}.get(family, (2, 3, V))
        if family == "decoder":
            cache, left_padding = model.new_cache(), torch.zeros(2, dtype=torch.long, device="meta")
            for expected in (5, 10):
                assert model(ids, cache=cache, left_padding=left_padding).shape == (2, 5, V)
                assert cache[0][0].key.shape == (2, 2, expected, 4)


class TestAttentionWeights:
    def test_they_are_those_of_the_forward_pass(self):
        model = build(small(dropout=0.5)).train()
        ids = draw_ids(2, 6)
        weights = model.attention_weights(ids)
        assert model.training
        model.eval()
        assert len(weights) == 2
        x = model.positions(model.token_embedding(ids))
        for block, ours in zip(model.blocks, weights):
            projections = (block.attention.q_proj, block.attention.k_proj)
            query, key = (proj(block.norm1(x)).unflatten(-1, (4, 4)).transpose(1, 2) for proj in projections)
            identity = torch.eye(6).expand(2, 4, 6, 6)  # with the identity for values, attention returns its weights
            expected = F.scaled_dot_product_attention(query, key, identity, is_causal=True)
            torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
            assert not ours.requires_grad
            x = block(x)


def test_evaluating_gives_every_module_its_mode_back_even_after_an_error():
    model = DecoderOnly(small(dropout=0.5)).train()
    model.blocks[0].eval()  # a frozen part
    modes = [module.training for module in model.modules()]
    ids = draw_ids(1, 4)
    with evaluating(model):
        assert torch.equal(model(ids), model(ids))
        assert not model(ids).requires_grad
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match="contain no token"), evaluating(model):
        model(ids[:0])
    assert [module.training for module in model.modules()] == modes
    assert model(ids).requires_grad


@families
def test_dropout_acts_only_while_training(family):
    model, inputs = build(small(family, dropout=0.3)), inputs_of(family)
    undropped = MODELS[family](small(family))
    undropped.load_state_dict(model.state_dict())
    assert torch.equal(model(*inputs), undropped(*inputs))
    model.train()
    assert not torch.equal(model(*inputs), model(*inputs))


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            (torch.zeros(5, dtype=torch.long), r"\(B, T\), got \(5,\)"),
            (torch.zeros(1, 2, 3, dtype=torch.long), r"\(B, T\), got \(1, 2, 3\)"),
            (torch.zeros(2, 0, dtype=torch.long), "contain no token"),
            (torch.zeros(0, 2, dtype=torch.long), "contain no token"),
            (torch.zeros(1, 13, dtype=torch.long), "13 tokens per row, more than max_seq_len=12"),
            (torch.tensor([[1, V]]), "ids contain 31, .* from 0 to 30"),
            (torch.tensor([[-1, 3]]), "ids contain -1"),
            (torch.zeros(1, 2), "whole numbers"),
        ],
    )
    @pytest.mark.parametrize("positions", POSITIONS)
    def test_ids_that_make_no_sense_are_refused(self, positions, ids, message):
        writer, reader, translator = (MODELS[family](small(family, positions=positions)) for family in MODELS)
        good = torch.zeros(1, 2, dtype=torch.long)
        uses = [writer, writer.attention_weights, reader, translator.encode]
        uses += [lambda ids: translator(ids, good), lambda ids: translator(good, ids)]
        for use in uses:
            with pytest.raises(ValueError, match=message):
                use(ids)

    @pytest.mark.parametrize(
        ("targets", "message"),
        [
            (torch.tensor([[1, 2]]), r"the shape of ids, \(1, 3\), got \(1, 2\)"),
            (torch.tensor([1, 2, 3]), "the shape of ids"),
            (torch.tensor([[1, V, 2]]), "targets contain 31"),
            (torch.tensor([[1, -1, 2]]), "targets contain -1"),
            (torch.tensor([[-100, -100, -100]]), "a token to predict"),
            (torch.tensor([[1.0, 2.0, 3.0]]), "targets must be whole numbers"),
        ],
    )
    def test_targets_that_make_no_sense_are_refused(self, targets, message):
        ids = torch.tensor([[1, 2, 3]])
        with pytest.raises(ValueError, match=message):
            DecoderOnly(small())(ids, targets)
        with pytest.raises(ValueError, match=message):
            EncoderDecoder(small("encoder-decoder"))(ids, ids, targets=targets)

    def test_lists_are_no_tensors(self):
        writer, reader, translator = (MODELS[family](small(family)) for family in MODELS)
        ids = torch.tensor([[1, 2, 3]])
        for wrong, name in (
            (lambda: writer([[1, 2, 3]]), "ids"),
            (lambda: writer(ids, [[1, 2, 3]]), "targets"),
            (lambda: writer(ids, left_padding=[1]), "left_padding"),
            (lambda: reader(ids, [[True] * 3] * 3), "mask"),
            (lambda: MODELS["encoder"](small("encoder", n_segments=2))(ids, segment_ids=[[0, 1, 1]]), "segment_ids"),
            (lambda: translator([[1, 2, 3]], ids), "ids"),
            (lambda: translator(ids, [[1, 2, 3]]), "ids"),
        ):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                wrong()

    @pytest.mark.parametrize("wrong", [torch.ones(2, 5, dtype=torch.bool), torch.ones(3, 1, 1, 5, dtype=torch.bool)])
    def test_masks_of_another_shape_are_refused(self, wrong):
        ids = draw_ids(2, 5)
        with pytest.raises(ValueError, match=r"mask has shape .* does not broadcast to"):
            EncoderOnly(small("encoder"))(ids, wrong)
        translator = EncoderDecoder(small("encoder-decoder"))
        encoded = translator.encode(ids)
        with pytest.raises(ValueError, match=r"mask has shape .* does not broadcast to \(2, 4, 3, 5\)"):
            translator.decode(ids[:, :3], encoded, wrong)
        with pytest.raises(ValueError, match="must be boolean"):
            EncoderOnly(small("encoder"))(ids, padding_mask([5, 3], 5).float())

    @pytest.mark.parametrize("rows", [1, 3])
    def test_each_target_has_one_source(self, rows):
        with pytest.raises(ValueError, match=f"x has 2 rows, but the context or its cache has {rows}"):
            EncoderDecoder(small("encoder-decoder"))(draw_ids(rows, 4), draw_ids(2, 3))

    @pytest.mark.parametrize(
        ("kind", "family", "instead"),
        [
            (DecoderOnly, "encoder", "EncoderOnly"),
            (EncoderOnly, "encoder-decoder", "EncoderDecoder"),
            (EncoderDecoder, "decoder", "DecoderOnly"),
        ],
    )
    def test_a_config_of_another_family_names_the_right_class(self, kind, family, instead):
        with pytest.raises(ValueError, match=f"{kind.__name__} needs family=.*got '{family}': use {instead} instead"):
            kind(small(family))

    @pytest.mark.parametrize("kind", [DecoderOnly, EncoderOnly, EncoderDecoder])
    def test_what_is_no_config_is_refused_by_name(self, kind):
        for wrong in (None, {"d_model": 8}, "gpt2"):
            with pytest.raises(TypeError, match=r"config must be a TransformerConfig, got .*preset\(name\)"):
                kind(wrong)

    def test_a_config_that_makes_no_sense_makes_no_model(self):
        with pytest.raises(ValueError, match="d_head=3 is odd"):
            DecoderOnly(TransformerConfig(V, d_model=12, n_heads=4, n_layers=1, max_seq_len=4, positions="rope"))
