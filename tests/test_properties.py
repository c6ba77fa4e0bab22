"""What makes a Transformer one, over the whole space of configurations: who sees whom, order, padding, cache, heads."""

import dataclasses
from contextlib import nullcontext
from itertools import pairwise, product

import pytest
import torch
from helpers import V, build, configs, draw_ids, seeds, small
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.checks import require_broadcast
from course_lib.config import POSITIONS
from course_lib.masks import padding_mask

schemes = pytest.mark.parametrize("positions", POSITIONS)
few = settings(max_examples=8)  # per positional scheme; each builds a model
PROMISE = {"atol": 1e-10, "rtol": 1e-10}  # of float64, where two ways of computing the same are told from two results


def changed_at(ids, t):
    """The same ids with another token at position t of every row."""
    changed = ids.clone()
    changed[:, t] = (ids[:, t] + 1) % V
    return changed


def pieces(T):
    """Ways of cutting T tokens into pieces."""
    return st.lists(st.booleans(), min_size=T - 1, max_size=T - 1).map(
        lambda cuts: [0, *(t + 1 for t, cut in enumerate(cuts) if cut), T]
    )


def sensitivity(embeddings, run, *ids):
    """How far each input token, once embedded, moves each output, for all pairs: (T_out, T_in), 0 where it cannot.

    `run` maps ids to outputs (1, T, …); the derivative is that to the token's vector, before positions are added.
    """
    embedded = []
    hooks = [each.register_forward_hook(lambda _, inputs, output: embedded.append(output)) for each in embeddings]
    output = run(*ids)
    for hook in hooks:
        hook.remove()
    rows = []
    for t in range(output.shape[1]):
        direction = torch.randn_like(output[0, t])
        gradients = torch.autograd.grad((output[0, t] * direction).sum(), embedded, retain_graph=True)
        rows.append([gradient[0].norm(dim=-1) for gradient in gradients])
    return [torch.stack(part) for part in zip(*rows)]


class TestCausality:
    @schemes
    @few
    @given(data=st.data(), T=st.integers(2, 12), seed=seeds)
    def test_changing_a_later_token_leaves_earlier_outputs_alone(self, positions, device, data, T, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("decoder", positions=positions)), device, seed=seed)
        t = data.draw(st.integers(1, T - 1))
        ids = draw_ids(2, T, device=device)
        with torch.no_grad():
            before, after = model(ids), model(changed_at(ids, t))
        assert torch.equal(before[:, :t], after[:, :t])
        assert (before[:, t:] != after[:, t:]).any(-1).all()

    @schemes
    @few
    @given(data=st.data(), S=st.integers(1, 6), T=st.integers(2, 6), seed=seeds)
    def test_a_translator_sees_the_whole_source_and_no_later_target(self, positions, device, data, S, T, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("encoder-decoder", positions=positions)), device, seed=seed)
        t, s = data.draw(st.integers(1, T - 1)), data.draw(st.integers(0, S - 1))
        source, target = draw_ids(2, S, device=device), draw_ids(2, T, device=device)
        with torch.no_grad():
            before, after = model(source, target), model(source, changed_at(target, t))
            other_source = model(changed_at(source, s), target)
        assert torch.equal(before[:, :t], after[:, :t])
        assert (before[:, t:] != after[:, t:]).any(-1).all()
        assert (before != other_source).any(-1).all()

    @schemes
    @pytest.mark.parametrize("norm_position", ["pre", "post"])
    def test_the_gradient_reaches_every_earlier_token_and_no_later_one(self, positions, norm_position, device):
        model = build(small(positions=positions, norm_position=norm_position, n_kv_heads=2), device)
        (moved,) = sensitivity([model.token_embedding], model, draw_ids(1, 8, device=device))
        earlier = torch.ones(8, 8, dtype=torch.bool, device=device).tril()
        assert (moved[~earlier] == 0).all()
        assert (moved[earlier] > 1e-6).all()

    @schemes
    def test_in_a_reader_the_gradient_reaches_every_token(self, positions, device):
        model = build(small("encoder", positions=positions), device)
        (moved,) = sensitivity([model.token_embedding], model, draw_ids(1, 8, device=device))
        assert (moved > 1e-6).all()

    @schemes
    def test_in_a_translator_it_reaches_the_whole_source_and_the_earlier_target(self, positions, device):
        model = build(small("encoder-decoder", positions=positions), device)
        ids = draw_ids(1, 5, device=device), draw_ids(1, 7, device=device)
        source, target = sensitivity([model.encoder.token_embedding, model.decoder.token_embedding], model, *ids)
        assert source.shape == (7, 5)
        assert (source > 1e-6).all()
        earlier = torch.ones(7, 7, dtype=torch.bool, device=device).tril()
        assert (target[~earlier] == 0).all()
        assert (target[earlier] > 1e-6).all()


class TestOrder:
    @few
    @given(config=configs("encoder", positions="none"), T=st.integers(1, 8), seed=seeds)
    def test_without_positions_a_reader_only_shuffles_what_is_shuffled(self, device, config, T, seed):
        torch.manual_seed(seed)
        model = build(config, device, torch.float64, seed)
        ids, order = draw_ids(2, T, device=device), torch.randperm(T, device=device)
        torch.testing.assert_close(model(ids[:, order]), model(ids)[:, order], **PROMISE)

    @pytest.mark.parametrize("positions", [scheme for scheme in POSITIONS if scheme != "none"])
    @few
    @given(data=st.data(), seed=seeds)
    def test_every_positional_scheme_breaks_that(self, positions, device, data, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("encoder", positions=positions)), device, seed=seed)
        ids, order = torch.randperm(V)[None, :6].to(device), torch.tensor([3, 0, 5, 1, 4, 2], device=device)
        with torch.no_grad():
            difference = model(ids[:, order]) - model(ids)[:, order]
        assert difference.abs().max() > 1e-3

    @pytest.mark.parametrize(("n_layers", "order_is_visible"), [(1, False), (2, True)])
    def test_without_positions_two_causal_blocks_see_the_order_of_the_past_and_one_does_not(
        self, n_layers, order_is_visible, device
    ):
        model = build(small(positions="none", n_layers=n_layers), device, torch.float64)
        dog_bites_man = torch.tensor([[3, 7, 5, 9]], device=device)
        man_bites_dog = torch.tensor([[5, 7, 3, 9]], device=device)
        difference = (model(dog_bites_man)[0, -1] - model(man_bites_dog)[0, -1]).abs().max().item()
        assert (difference > 1e-3) == order_is_visible
        assert order_is_visible or difference < 1e-12

    @pytest.mark.parametrize("positions", [scheme for scheme in POSITIONS if scheme != "none"])
    def test_with_positions_one_causal_block_sees_the_order(self, positions, device):
        model = build(small(positions=positions, n_layers=1), device)
        ids = torch.tensor([[3, 7, 5, 9], [5, 7, 3, 9]], device=device)
        dog_bites_man, man_bites_dog = model(ids)[:, -1]
        assert (dog_bites_man - man_bites_dog).abs().max() > 1e-3

    @pytest.mark.parametrize(("positions", "notices"), [("rope", False), ("alibi", False), ("learned", True)])
    def test_relative_schemes_do_not_notice_where_a_text_stands(self, positions, notices, device):
        # The same four tokens behind one and behind three others that they may not look at.
        model = build(small("encoder", positions=positions), device, torch.float64)
        text, before = draw_ids(1, 4, device=device), draw_ids(1, 3, device=device)
        outputs = []
        for n in (1, 3):
            seen = padding_mask([4], n + 4, left=True).to(device)
            outputs.append(model(torch.cat([before[:, :n], text], dim=1), seen)[:, n:])
        difference = (outputs[0] - outputs[1]).abs().max().item()
        assert difference > 1e-3 if notices else difference < 1e-10


class TestRows:
    @pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder"])
    @few
    @given(data=st.data(), B=st.integers(2, 4), S=st.integers(1, 6), T=st.integers(1, 6), seed=seeds)
    def test_rows_of_a_batch_do_not_see_each_other(self, family, device, data, B, S, T, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs(family)), device, torch.float64, seed)
        inputs = [draw_ids(B, T, device=device)]
        if family == "encoder-decoder":
            inputs.insert(0, draw_ids(B, S, device=device))
        one_by_one = torch.cat([model(*(ids[b : b + 1] for ids in inputs)) for b in range(B)])
        torch.testing.assert_close(model(*inputs), one_by_one, **PROMISE)


class TestPadding:
    @schemes
    @few
    @given(data=st.data(), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=seeds)
    def test_a_reader_does_not_notice_masked_padding(self, positions, device, data, lengths, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("encoder", positions=positions)), device, torch.float64, seed)
        S = max(lengths) + data.draw(st.integers(0, 3))
        ids, mask = draw_ids(len(lengths), S, device=device), padding_mask(lengths, S).to(device)
        padded = model(ids, mask)
        for b, length in enumerate(lengths):
            alone = model(ids[b : b + 1, :length])
            torch.testing.assert_close(padded[b : b + 1, :length], alone, **PROMISE)

    @schemes
    @few
    @given(data=st.data(), T=st.integers(1, 6), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=seeds)
    def test_a_translator_does_not_notice_masked_padding_of_its_source(self, positions, device, data, T, lengths, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("encoder-decoder", positions=positions)), device, torch.float64, seed)
        S = max(lengths) + data.draw(st.integers(0, 3))
        source, target = draw_ids(len(lengths), S, device=device), draw_ids(len(lengths), T, device=device)
        padded = model(source, target, padding_mask(lengths, S).to(device))
        for b, length in enumerate(lengths):
            alone = model(source[b : b + 1, :length], target[b : b + 1])
            torch.testing.assert_close(padded[b : b + 1], alone, **PROMISE)

    @schemes
    @few
    @given(data=st.data(), padding=st.lists(st.integers(0, 5), min_size=1, max_size=4), seed=seeds)
    def test_a_writer_does_not_notice_padding_in_front(self, positions, device, data, padding, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("decoder", positions=positions)), device, torch.float64, seed)
        T = max(padding) + data.draw(st.integers(1, 5))
        ids = draw_ids(len(padding), T, device=device)
        padded = model(ids, left_padding=torch.tensor(padding, device=device))
        assert padded.isfinite().all()
        for b, n in enumerate(padding):
            torch.testing.assert_close(padded[b : b + 1, n:], model(ids[b : b + 1, n:]), **PROMISE)

    def test_without_the_mask_padding_is_noticed(self, device):
        ids = draw_ids(1, 6, device=device)
        for family in ("encoder", "decoder"):
            model = build(small(family), device)
            whole = model(ids)
            part = model(ids[:, :4]) - whole[:, :4] if family == "encoder" else model(ids[:, 2:]) - whole[:, 2:]
            assert part.abs().max() > 1e-2


class TestCache:
    @schemes
    @few
    @given(
        data=st.data(),
        T=st.integers(1, 12),
        padding=st.lists(st.integers(0, 12), min_size=1, max_size=3),
        padded=st.booleans(),
        seed=seeds,
    )
    def test_a_writer_in_pieces_is_the_whole_at_every_step(self, positions, device, data, T, padding, padded, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("decoder", positions=positions)), device, torch.float64, seed)
        ids = draw_ids(len(padding), T, device=device)
        left_padding = torch.tensor(padding, device=device).clamp(max=T - 1) if padded else None
        whole = model(ids, left_padding=left_padding)
        cache, cuts = model.new_cache(), data.draw(pieces(T))
        for start, stop in pairwise(cuts):
            logits = model(ids[:, start:stop], cache=cache, left_padding=left_padding)
            torch.testing.assert_close(logits, whole[:, start:stop], **PROMISE)

    @schemes
    @few
    @given(data=st.data(), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3), T=st.integers(1, 8), seed=seeds)
    def test_a_translator_in_pieces_is_the_whole_at_every_step(self, positions, device, data, lengths, T, seed):
        torch.manual_seed(seed)
        model = build(data.draw(configs("encoder-decoder", positions=positions)), device, torch.float64, seed)
        B, S = len(lengths), max(lengths)
        source, target = draw_ids(B, S, device=device), draw_ids(B, T, device=device)
        mask = padding_mask(lengths, S).to(device)
        whole = model(source, target, mask)
        encoded, cache, cuts = model.encode(source, mask), model.new_cache(), data.draw(pieces(T))
        for start, stop in pairwise(cuts):
            logits = model.decode(target[:, start:stop], encoded, mask, cache)
            torch.testing.assert_close(logits, whole[:, start:stop], **PROMISE)
            assert {(len(own), len(cross)) for own, cross in cache} == {(stop, S)}

    @schemes
    def test_a_cache_whose_rows_are_exchanged_goes_on_from_them(self, positions, device):
        model = build(small(positions=positions, n_kv_heads=2), device, torch.float64)
        ids, new = draw_ids(3, 5, device=device), draw_ids(4, 2, device=device)
        padding, rows = torch.tensor([0, 2, 1], device=device), torch.tensor([2, 2, 0, 1], device=device)
        cache = model.new_cache()
        model(ids, cache=cache, left_padding=padding)
        for own, cross in cache:
            own.select(rows)
            cross.select(rows)
        expected = model(torch.cat([ids[rows], new], dim=1), left_padding=padding[rows])[:, 5:]
        torch.testing.assert_close(model(new, cache=cache, left_padding=padding[rows]), expected, **PROMISE)

    def test_float32_and_bfloat16_agree_with_themselves_to_their_precision(self, device):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.2)):
            model, ids = build(small(positions="rope", n_kv_heads=2), device, dtype), draw_ids(2, 10, device=device)
            cache = model.new_cache()
            steps = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(10)], dim=1)
            assert steps.dtype == dtype
            torch.testing.assert_close(steps, model(ids), atol=tolerance, rtol=0)


class TestHeads:
    @given(
        groups=st.sampled_from([(4, 4), (4, 2), (4, 1)]), head=st.integers(0, 3), positions=st.sampled_from(POSITIONS)
    )
    def test_a_head_is_moved_by_its_own_projections_alone(self, device, groups, head, positions):
        n_heads, n_kv_heads = groups
        model = build(small(n_kv_heads=n_kv_heads, positions=positions, n_layers=1), device)
        ids, attention = draw_ids(2, 6, device=device), model.blocks[0].attention
        outputs = []
        attention.out_proj.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0].unflatten(-1, (4, 4))))
        with torch.no_grad():
            model(ids)
            attention.q_proj.weight[4 * head : 4 * head + 4].normal_()
            model(ids)
            group = n_heads // n_kv_heads
            key_head = head // group
            attention.v_proj.weight[4 * key_head : 4 * key_head + 4].normal_()
            model(ids)
        first, new_query, new_value = outputs
        assert [h for h in range(4) if not torch.equal(first[:, :, h], new_query[:, :, h])] == [head]
        served = [h for h in range(4) if not torch.equal(new_query[:, :, h], new_value[:, :, h])]
        assert served == list(range(key_head * group, key_head * group + group))

    @schemes
    def test_sharing_keys_and_values_is_having_equal_ones(self, positions, device):
        grouped = build(small(positions=positions, n_kv_heads=2), device, torch.float64)
        full = build(dataclasses.replace(grouped.config, n_kv_heads=4), device, torch.float64)
        state = grouped.state_dict()
        for name, tensor in state.items():
            if "k_proj" in name or "v_proj" in name:
                state[name] = tensor.unflatten(0, (2, 4)).repeat_interleave(2, dim=0).flatten(0, 1)
        full.load_state_dict(state)
        ids = draw_ids(2, 7, device=device)
        torch.testing.assert_close(grouped(ids), full(ids), **PROMISE)


def test_a_shape_fits_another_exactly_where_torch_broadcasts_it_to_that():
    shapes = [shape for n in range(4) for shape in product((0, 1, 2, 3), repeat=n)]
    for own, wanted in product(shapes, repeat=2):
        try:
            fits = torch.broadcast_shapes(own, wanted) == wanted
        except RuntimeError:
            fits = False
        with nullcontext() if fits else pytest.raises(ValueError, match="does not broadcast"):
            require_broadcast(torch.empty(own), wanted, "x")
