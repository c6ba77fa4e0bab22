"""Attention, blocks and stacks against PyTorch's own modules with the same weights: outputs and gradients."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from helpers import V, build, draw_ids, seeds, small, with_real_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.heads import MultiHeadAttention
from course_lib.masks import causal_mask, padding_mask

DTYPES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
both_dtypes = pytest.mark.parametrize(("dtype", "tolerance"), DTYPES, ids=["float32", "float64"])
D_MODEL, H, D_FF = 16, 4, 20  # those of `small`
few = settings(max_examples=8)  # of each of many combinations
lengths_of = st.lists(st.integers(1, 7), min_size=1, max_size=3)

# Our names and PyTorch's, in the order in which they are exchanged. q, k and v are one matrix there.
ENCODER = {"attention.": "self_attn.", "feed_forward.up_proj": "linear1", "feed_forward.down_proj": "linear2"}
DECODER = {"cross_attention.": "multihead_attn.", "norm2": "norm3", "cross_norm": "norm2", **ENCODER}
STACK = {"blocks.": "layers.", "final_norm.": "norm."}


def as_in_pytorch(ours: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    theirs = {}
    for name, tensor in ours.items():
        if "k_proj." in name or "v_proj." in name:
            continue
        if "q_proj." in name:
            tensor = torch.cat([ours[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
            name = name.replace("q_proj.", "in_proj_")
        for our_part, their_part in names.items():
            name = name.replace(our_part, their_part)
        theirs[name] = tensor
    return theirs


def gradients_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def assert_gradients_agree(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
    """A weight's gradient is a sum over all tokens: its tolerance is one of its size."""
    assert ours.keys() == theirs.keys()
    for name, reference in theirs.items():
        scale = max(1.0, reference.abs().max().item())
        torch.testing.assert_close(
            ours[name], reference, atol=tolerance * scale, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


def run_backward(modules: list[nn.Module], outputs: list[Tensor]) -> None:
    upstream = torch.randn_like(outputs[0])
    for module, output in zip(modules, outputs, strict=True):
        module.zero_grad()
        output.backward(upstream)


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


@cache
def attention_pair(n_heads: int, bias: bool, dtype: torch.dtype, device: str):
    ours = with_real_weights(MultiHeadAttention(D_MODEL, n_heads, bias=bias)).to(device, dtype)
    theirs = nn.MultiheadAttention(D_MODEL, n_heads, bias=bias, batch_first=True).to(device, dtype)
    theirs.load_state_dict(as_in_pytorch(ours.state_dict(), {}))
    return ours, theirs


class TestAttention:
    @both_dtypes
    @pytest.mark.parametrize("bias", [True, False])
    @pytest.mark.parametrize("n_heads", [1, 2, 4])
    @few
    @given(lengths=lengths_of, masked=st.booleans(), is_causal=st.booleans(), need_weights=st.booleans(), seed=seeds)
    def test_within_a_sequence(
        self, n_heads, bias, dtype, tolerance, device, lengths, masked, is_causal, need_weights, seed
    ):
        torch.manual_seed(seed)
        ours, theirs = attention_pair(n_heads, bias, dtype, device)
        B, T = len(lengths), max(lengths)
        x1, x2 = leaves(*[torch.randn(B, T, D_MODEL, dtype=dtype, device=device)] * 2)
        mask = padding_mask(lengths, T).to(device) if masked else None
        expected, expected_weights = theirs(
            x2,
            x2,
            x2,
            key_padding_mask=~mask[:, 0, 0] if masked else None,  # theirs: True = may not attend
            attn_mask=~causal_mask(T, device=device) if is_causal else None,
            average_attn_weights=False,
        )
        output = ours(x1, mask=mask, is_causal=is_causal, need_weights=need_weights)
        if need_weights:
            output, weights = output
            torch.testing.assert_close(weights, expected_weights, atol=tolerance, rtol=0)
        torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
        run_backward([ours, theirs], [output, expected])
        torch.testing.assert_close(x1.grad, x2.grad, atol=tolerance, rtol=0)
        assert_gradients_agree(as_in_pytorch(gradients_of(ours), {}), gradients_of(theirs), tolerance)

    @both_dtypes
    @few
    @given(T=st.integers(1, 7), lengths=lengths_of, masked=st.booleans(), need_weights=st.booleans(), seed=seeds)
    def test_from_one_sequence_to_another(self, dtype, tolerance, device, T, lengths, masked, need_weights, seed):
        torch.manual_seed(seed)
        ours, theirs = attention_pair(2, True, dtype, device)
        B, S = len(lengths), max(lengths)
        x, context = (torch.randn(B, L, D_MODEL, dtype=dtype, device=device) for L in (T, S))
        mask = padding_mask(lengths, S).to(device) if masked else None
        (x1, context1), (x2, context2) = leaves(x, context), leaves(x, context)
        expected, expected_weights = theirs(
            x2,
            context2,
            context2,
            key_padding_mask=~mask[:, 0, 0] if masked else None,
            average_attn_weights=False,
        )
        output = ours(x1, context1, mask, need_weights=need_weights)
        if need_weights:
            output, weights = output
            assert weights.shape == (B, 2, T, S)
            torch.testing.assert_close(weights, expected_weights, atol=tolerance, rtol=0)
        torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
        run_backward([ours, theirs], [output, expected])
        torch.testing.assert_close(x1.grad, x2.grad, atol=tolerance, rtol=0)
        torch.testing.assert_close(context1.grad, context2.grad, atol=tolerance, rtol=0)
        assert_gradients_agree(as_in_pytorch(gradients_of(ours), {}), gradients_of(theirs), tolerance)


@cache
def block_pair(family: str, cross: bool, pre: bool, activation: str, bias: bool, dtype: torch.dtype, device: str):
    config = small(family, norm_position="pre" if pre else "post", activation=activation, bias=bias)
    ours = with_real_weights(TransformerBlock(config, cross)).to(device, dtype)
    layer, names = (nn.TransformerDecoderLayer, DECODER) if cross else (nn.TransformerEncoderLayer, ENCODER)
    theirs = layer(D_MODEL, H, D_FF, 0.0, activation, batch_first=True, norm_first=pre, bias=bias).to(device, dtype)
    theirs.load_state_dict(as_in_pytorch(ours.state_dict(), names))
    return ours, theirs, names


@both_dtypes
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("pre", [True, False], ids=["pre-norm", "post-norm"])
class TestBlock:
    @pytest.mark.parametrize("family", ["encoder", "decoder"])
    @few
    @given(lengths=lengths_of, padded=st.booleans(), seed=seeds)
    def test_without_a_context_it_is_an_encoder_layer(
        self, family, pre, activation, bias, dtype, tolerance, device, lengths, padded, seed
    ):
        torch.manual_seed(seed)
        ours, theirs, names = block_pair(family, False, pre, activation, bias, dtype, device)
        B, T = len(lengths), max(lengths)
        x1, x2 = leaves(*[torch.randn(B, T, D_MODEL, dtype=dtype, device=device)] * 2)
        mask = padding_mask(lengths, T).to(device) if padded else None
        expected = theirs(
            x2,
            src_mask=~causal_mask(T, device=device) if family == "decoder" else None,
            src_key_padding_mask=~mask[:, 0, 0] if padded else None,
        )
        output = ours(x1, mask)
        torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
        run_backward([ours, theirs], [output, expected])
        torch.testing.assert_close(x1.grad, x2.grad, atol=tolerance, rtol=0)
        assert_gradients_agree(as_in_pytorch(gradients_of(ours), names), gradients_of(theirs), tolerance)

    @few
    @given(lengths=lengths_of, context_lengths=lengths_of, padded=st.booleans(), seed=seeds)
    def test_with_a_context_it_is_a_decoder_layer(
        self, pre, activation, bias, dtype, tolerance, device, lengths, context_lengths, padded, seed
    ):
        torch.manual_seed(seed)
        ours, theirs, names = block_pair("encoder-decoder", True, pre, activation, bias, dtype, device)
        B = min(len(lengths), len(context_lengths))
        lengths, context_lengths = lengths[:B], context_lengths[:B]
        T, S = max(lengths), max(context_lengths)
        x, context = (torch.randn(B, L, D_MODEL, dtype=dtype, device=device) for L in (T, S))
        (x1, context1), (x2, context2) = leaves(x, context), leaves(x, context)
        mask = padding_mask(lengths, T).to(device) if padded else None
        context_mask = padding_mask(context_lengths, S).to(device) if padded else None
        expected = theirs(
            x2,
            context2,
            tgt_mask=~causal_mask(T, device=device),
            tgt_key_padding_mask=~mask[:, 0, 0] if padded else None,
            memory_key_padding_mask=~context_mask[:, 0, 0] if padded else None,
        )
        output = ours(x1, mask, context1, context_mask)
        torch.testing.assert_close(output, expected, atol=tolerance, rtol=0)
        run_backward([ours, theirs], [output, expected])
        torch.testing.assert_close(x1.grad, x2.grad, atol=tolerance, rtol=0)
        torch.testing.assert_close(context1.grad, context2.grad, atol=tolerance, rtol=0)
        assert_gradients_agree(as_in_pytorch(gradients_of(ours), names), gradients_of(theirs), tolerance)


def their_stack(config: TransformerConfig, cross: bool) -> nn.Module:
    pre = config.norm_position == "pre"
    layer = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    one = layer(D_MODEL, H, D_FF, 0.0, config.activation, batch_first=True, norm_first=pre)
    final_norm = nn.LayerNorm(D_MODEL) if pre else None
    if cross:
        return nn.TransformerDecoder(one, config.n_layers, final_norm)
    return nn.TransformerEncoder(one, config.n_layers, final_norm, enable_nested_tensor=False)


@cache
def model_pair(family: str, positions: str, norm_position: str, dtype: torch.dtype, device: str):
    config = small(family, positions=positions, norm_position=norm_position, activation="relu")
    ours, theirs = build(config, device, dtype), their_stack(config, cross=False)
    if family == "encoder-decoder":
        parts = {"custom_encoder": theirs, "custom_decoder": their_stack(config, cross=True)}
        theirs = nn.Transformer(D_MODEL, H, **parts, batch_first=True)
    theirs.load_state_dict(stacks_as_in_pytorch(ours, lambda parameter: parameter.data))
    return ours, theirs.to(device, dtype)


def stacks_as_in_pytorch(model: nn.Module, of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """What our model and PyTorch's have in common, under their names; their embeddings are left to the user."""
    common = {name: of(p) for name, p in model.named_parameters() if "blocks." in name or "final_norm." in name}
    if model.config.family != "encoder-decoder":
        return as_in_pytorch(common, {**STACK, **ENCODER})
    theirs = {}
    for part, names in (("encoder.", ENCODER), ("decoder.", DECODER)):
        theirs |= as_in_pytorch({n: p for n, p in common.items() if n.startswith(part)}, {**STACK, **names})
    return theirs


def embedded(stack: nn.Module, ids: Tensor, scale: float = 1.0) -> Tensor:
    """Tokens and positions, looked up in the stack's tables. Beside sinusoids, tokens are scaled by sqrt(d_model)."""
    positions = stack.positions
    scale = D_MODEL**0.5 if hasattr(positions, "table") else scale
    table = positions.weight if hasattr(positions, "weight") else positions.table
    return F.embedding(ids, stack.token_embedding.weight) * scale + table[: ids.shape[1]]


@both_dtypes
@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
class TestModel:
    @pytest.mark.parametrize("family", ["decoder", "encoder"])
    @few
    @given(lengths=lengths_of, padded=st.booleans(), seed=seeds)
    def test_one_stack(self, family, positions, norm_position, dtype, tolerance, device, lengths, padded, seed):
        torch.manual_seed(seed)
        ours, theirs = model_pair(family, positions, norm_position, dtype, device)
        B, T = len(lengths), max(lengths)
        ids = draw_ids(B, T, device=device)
        x, mask = embedded(ours, ids), None
        if family == "decoder":
            hidden = theirs(x, mask=~causal_mask(T, device=device))
            torch.testing.assert_close(ours(ids), hidden @ ours.token_embedding.weight.T, atol=tolerance, rtol=0)
            return
        if norm_position == "post":  # as in BERT, the embeddings are normalized
            norm = ours.embedding_norm
            x = F.layer_norm(x, (D_MODEL,), norm.weight, norm.bias)
        if padded:
            mask = padding_mask(lengths, T).to(device)
        hidden = theirs(x, src_key_padding_mask=~mask[:, 0, 0] if padded else None)
        torch.testing.assert_close(ours(ids, mask), hidden, atol=tolerance, rtol=0)

    @few
    @given(T=st.integers(1, 7), lengths=lengths_of, padded=st.booleans(), seed=seeds)
    def test_encoder_and_decoder(self, positions, norm_position, dtype, tolerance, device, T, lengths, padded, seed):
        torch.manual_seed(seed)
        ours, theirs = model_pair("encoder-decoder", positions, norm_position, dtype, device)
        B, S = len(lengths), max(lengths)
        source, target = draw_ids(B, S, device=device), draw_ids(B, T, device=device)
        mask = padding_mask(lengths, S).to(device) if padded else None
        hides = ~mask[:, 0, 0] if padded else None
        hidden = theirs(
            embedded(ours.encoder, source, D_MODEL**0.5),  # the original's scale
            embedded(ours.decoder, target, D_MODEL**0.5),
            tgt_mask=~causal_mask(T, device=device),
            src_key_padding_mask=hides,
            memory_key_padding_mask=hides,
        )
        expected = hidden @ ours.encoder.token_embedding.weight.T
        logits = ours(source, target, mask)
        assert logits.shape == (B, T, V)
        torch.testing.assert_close(logits, expected, atol=tolerance, rtol=0)
        assert expected.std() > 0.1  # the agreement is not one of zeros


@both_dtypes
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_all_gradients_of_an_encoder_decoder_agree(norm_position, dtype, tolerance, device):
    ours, theirs = model_pair("encoder-decoder", "learned", norm_position, dtype, device)
    source, target = draw_ids(3, 6, device=device), draw_ids(3, 4, device=device)
    mask = padding_mask([6, 2, 4], 6).to(device)
    hides = {"src_key_padding_mask": ~mask[:, 0, 0], "memory_key_padding_mask": ~mask[:, 0, 0]}
    x, y = leaves(embedded(ours.encoder, source, 4.0), embedded(ours.decoder, target, 4.0))
    expected = theirs(x, y, tgt_mask=~causal_mask(4, device=device), **hides)
    output = ours.decoder(target, context=ours.encode(source, mask), context_mask=mask)
    run_backward([ours, theirs], [output, expected])
    gradients = stacks_as_in_pytorch(ours, lambda parameter: parameter.grad)
    gradients |= {"x": ours.encoder.positions.weight.grad[:6], "y": ours.decoder.positions.weight.grad[:4]}
    assert_gradients_agree(gradients, {**gradients_of(theirs), "x": x.grad.sum(0), "y": y.grad.sum(0)}, tolerance)
