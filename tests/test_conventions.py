"""Other courses' conventions: thin adapters from their functions to ours, held to PyTorch and to closed forms.

If you come from one of them, this is the dictionary:

    course                    theirs                                        here
    CS336, 2025 edition       mask: True = may attend                       the same
                              RoPE turns the pair 2i, 2i + 1                rope_interleaved=True, interleaved=True
                              SwiGLU: w1 opens, w3 proposes, w2 closes      gate_proj, up_proj, down_proj
                              logits and targets in one row                 next_token_loss: (B, T, V) and (B, T)
                              AdamW decays every parameter                  make_optimizer: matrices alone
    CS336, 2024 edition       mask: True = hidden; keys before queries      ~mask; queries first
                              q_heads.0, q_heads.1, … one matrix per head   q_proj: their rows, one below the other
    nanoGPT, minGPT           c_attn: q, k and v in one nn.Linear           q_proj, k_proj, v_proj
    ARENA, TransformerLens    W_Q (H, d_model, D), used as x @ W            q_proj.weight (H · D, d_model): x @ Wᵀ

CS336 is Stanford's "Language Modeling from Scratch"; its adapters, with the names and arguments of its assignment 1,
stand in `tests/cs336.py`.
"""

import math
import re
from collections import Counter
from itertools import pairwise

import cs336
import pytest
import torch
import torch.nn.functional as F
from cs336 import filled, renamed
from helpers import with_real_weights
from torch import nn

from course_lib.heads import MultiHeadAttention
from course_lib.masks import causal_mask
from course_lib.positions import apply_rotary, rotary_angles
from course_lib.pretrained import from_hf_state_dict

V, D_MODEL, H, D_FF, N_LAYERS, CONTEXT, THETA = 23, 16, 4, 24, 2, 12, 500.0
B, T = 3, 9


@pytest.fixture(autouse=True)
def in_double_precision():
    """So that whatever agrees, agrees to 1e-10."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def assert_agree(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=0)


# ---------------------------------------------------------------------------------- references, in PyTorch's functions
def rms_norm(x, weight, eps=1e-5):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x, positions, theta=THETA):
    """RoPE as the paper has it: the pair 2i, 2i + 1 is a complex number, and is multiplied by another of length 1."""
    D = x.shape[-1]
    angles = positions[..., None] * theta ** (-torch.arange(0, D, 2) / D)  # (..., T, D / 2)
    pairs = torch.view_as_complex(x.unflatten(-1, (D // 2, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def causal_attention(x, q, k, v, o, positions=None):
    q, k, v = (F.linear(x, weight).unflatten(-1, (H, -1)).transpose(1, 2) for weight in (q, k, v))  # (B, H, T, D)
    if positions is not None:
        q, k = turned(q, positions), turned(k, positions)
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(heads.transpose(1, 2).flatten(2), o)


def block(x, w, rope):
    positions = torch.arange(x.shape[1]) if rope else None
    projections = [w[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output")]
    x = x + causal_attention(rms_norm(x, w["ln1.weight"]), *projections, positions)
    h = rms_norm(x, w["ln2.weight"])
    hidden = F.linear(h, w["ffn.w1.weight"])
    hidden = F.silu(hidden) * F.linear(h, w["ffn.w3.weight"]) if rope else F.gelu(hidden)
    return x + F.linear(hidden, w["ffn.w2.weight"])


def of_layer(weights, i):
    start = f"layers.{i}."
    return {name.removeprefix(start): weight for name, weight in weights.items() if name.startswith(start)}


def language_model(ids, w, rope):
    x = F.embedding(ids, w["token_embeddings.weight"])
    if not rope:
        x = x + w["position_embeddings.weight"][: ids.shape[1]]
    for i in range(N_LAYERS):
        x = block(x, of_layer(w, i), rope)
    return F.linear(rms_norm(x, w["ln_final.weight"]), w["lm_head.weight"])


def cs336_weights(rope):
    """A state dict with CS336's names, every number drawn."""
    shapes = {"token_embeddings": (V, D_MODEL), "ln_final": (D_MODEL,), "lm_head": (V, D_MODEL)}
    shapes |= {} if rope else {"position_embeddings": (CONTEXT, D_MODEL)}
    for i in range(N_LAYERS):
        shapes |= {f"layers.{i}.attn.{name}_proj": (D_MODEL, D_MODEL) for name in ("q", "k", "v", "output")}
        shapes |= {f"layers.{i}.{name}": (D_MODEL,) for name in ("ln1", "ln2")}
        shapes |= {f"layers.{i}.ffn.{name}": (D_FF, D_MODEL) for name in (("w1", "w3") if rope else ("w1",))}
        shapes |= {f"layers.{i}.ffn.w2": (D_MODEL, D_FF)}
    return {f"{name}.weight": (0.4 * torch.randn(shape)) + (len(shape) == 1) for name, shape in shapes.items()}


@pytest.fixture
def x():
    return torch.randn(B, T, D_MODEL)


# ----------------------------------------------------------------------------------------------- CS336, 2025: the tests
def test_linear_embedding_and_silu_are_their_definitions(x):
    weights, ids = torch.randn(D_FF, D_MODEL), torch.randint(V, (B, T))
    assert_agree(cs336.run_linear(D_MODEL, D_FF, weights, x), x @ weights.T)
    table = torch.randn(V, D_MODEL)
    assert_agree(cs336.run_embedding(V, D_MODEL, table, ids), table[ids])
    assert_agree(cs336.run_silu(x), x / (1 + torch.exp(-x)))


@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_rmsnorm_adds_eps_inside_the_root(x, eps):
    weights = torch.randn(D_MODEL)
    assert_agree(cs336.run_rmsnorm(D_MODEL, eps, weights, x), rms_norm(x, weights, eps))


def test_swiglu_opens_with_w1_proposes_with_w3_and_closes_with_w2(x):
    w1, w2, w3 = torch.randn(D_FF, D_MODEL), torch.randn(D_MODEL, D_FF), torch.randn(D_FF, D_MODEL)
    expected = F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)
    assert_agree(cs336.run_swiglu(D_MODEL, D_FF, w1, w2, w3, x), expected)
    assert not torch.allclose(cs336.run_swiglu(D_MODEL, D_FF, w3, w2, w1, x), expected)


def test_rope_turns_neighbours(x):
    positions = torch.tensor([0, 1, 2, 3, 5, 8, 13, 21, 34])
    assert_agree(cs336.run_rope(D_MODEL, THETA, 40, x, positions), turned(x, positions))
    # A pair of neighbours keeps its length. The pairs of the other convention, i and i + D / 2, do not.
    lengths = lambda x: x.unflatten(-1, (-1, 2)).norm(dim=-1)  # noqa: E731
    assert_agree(lengths(cs336.run_rope(D_MODEL, THETA, 40, x, positions)), lengths(x))
    assert not torch.allclose(lengths(apply_rotary(x, rotary_angles(positions, D_MODEL, THETA))), lengths(x))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_is_along_the_dimension_that_is_asked_for_and_does_not_notice_a_shift(x, dim):
    assert_agree(cs336.run_softmax(x, dim), F.softmax(x, dim))
    assert_agree(cs336.run_softmax(x + 1000, dim), F.softmax(x, dim))


@pytest.mark.parametrize("leading", [(), (B,), (B, H)])
def test_attention_looks_where_the_mask_is_true(leading):
    Q, K, V = torch.randn(*leading, 5, 8), torch.randn(*leading, 7, 8), torch.randn(*leading, 7, 3)
    mask = torch.rand(*leading, 5, 7) < 0.6
    mask[..., 0] = True  # PyTorch's kernel leaves a query without keys undefined
    expected = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
    assert_agree(cs336.run_scaled_dot_product_attention(Q=Q, K=K, V=V, mask=mask), expected)
    assert_agree(cs336.run_scaled_dot_product_attention(Q=Q, K=K, V=V), F.scaled_dot_product_attention(Q, K, V))
    # With a mask of the diagonal each query takes the value at its own place, if True means "look".
    assert_agree(cs336.run_scaled_dot_product_attention(K, K, V, torch.eye(7, dtype=torch.bool)), V)


def test_self_attention_is_causal_and_without_positions(x):
    q, k, v, o = 0.5 * torch.randn(4, D_MODEL, D_MODEL)
    theirs = nn.MultiheadAttention(D_MODEL, H, bias=False, batch_first=True)
    theirs.load_state_dict({"in_proj_weight": torch.cat([q, k, v]), "out_proj.weight": o})
    expected, _ = theirs(x, x, x, attn_mask=~causal_mask(T))  # theirs: True = may not attend
    assert_agree(cs336.run_multihead_self_attention(D_MODEL, H, q, k, v, o, x), expected)


@pytest.mark.parametrize("positions", [None, torch.arange(T)[None], torch.arange(T) + torch.tensor([[0], [7], [30]])])
def test_self_attention_with_rope_turns_each_head_by_the_tokens_positions(x, positions):
    weights = 0.5 * torch.randn(4, D_MODEL, D_MODEL)
    expected = causal_attention(x, *weights, torch.arange(T) if positions is None else positions[:, None])
    assert_agree(cs336.run_multihead_self_attention_with_rope(D_MODEL, H, 40, THETA, *weights, x, positions), expected)
    assert not torch.allclose(cs336.run_multihead_self_attention(D_MODEL, H, *weights, x), expected)


def test_a_block_is_pre_norm_with_rope_and_swiglu(x):
    weights = of_layer(cs336_weights(rope=True), 1)
    assert_agree(
        cs336.run_transformer_block(D_MODEL, H, D_FF, CONTEXT, THETA, weights, x), block(x, weights, rope=True)
    )


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT // 2])
def test_a_language_model_has_a_final_norm_and_a_head_of_its_own(length):
    weights, ids = cs336_weights(rope=True), torch.randint(V, (B, length))
    logits = cs336.run_transformer_lm(V, CONTEXT, D_MODEL, N_LAYERS, H, D_FF, THETA, weights, ids)
    assert_agree(logits, language_model(ids, weights, rope=True))


@pytest.mark.parametrize("scale", [1, 1000])
def test_cross_entropy_is_the_mean_and_survives_large_logits(scale):
    logits, targets = scale * torch.rand(8, 5), torch.randint(5, (8,))
    assert_agree(cs336.run_cross_entropy(logits, targets), F.cross_entropy(logits, targets))
    gold = logits.gather(1, targets[:, None])[:, 0]
    assert_agree(cs336.run_cross_entropy(logits, targets), (logits.logsumexp(dim=1) - gold).mean())


@pytest.mark.parametrize("max_norm", [0.01, 3.0, 1000.0])
def test_gradients_are_clipped_together_and_only_if_they_are_too_long(max_norm):
    values = torch.randn(6, 5, 5)
    parameters = [nn.Parameter(value.clone()) for value in values]
    parameters[5].requires_grad_(False)
    gradients = [torch.randn(5, 5) for _ in parameters[:5]]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient.clone()
    cs336.run_gradient_clipping(parameters, max_norm)
    factor = min(1.0, max_norm / (math.sqrt(sum(g.square().sum().item() for g in gradients)) + 1e-6))
    assert (factor == 1) == (max_norm == 1000)
    for parameter, gradient in zip(parameters, gradients):
        assert_agree(parameter.grad, factor * gradient)
    assert parameters[5].grad is None
    assert torch.equal(torch.stack(list(parameters)), values)


@pytest.mark.parametrize(("shape", "decay"), [((2, 3), 0.1), ((3,), 0.0)], ids=["a matrix", "a gain or bias"])
def test_adamw_decays_matrices_as_pytorchs_and_leaves_vectors_alone(shape, decay):
    start, settings = torch.randn(shape), {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8}
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    steps = [cs336.get_adamw_cls()([ours], weight_decay=0.1, **settings)]
    steps.append(torch.optim.AdamW([theirs], weight_decay=decay, foreach=False, **settings))
    for gradient in torch.randn(100, *shape):
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        for optimizer in steps:
            optimizer.step()
    assert_agree(ours, theirs)
    assert (ours - start).abs().max() > 0.01


def test_the_cosine_schedule_has_the_rates_that_cs336_lists():
    rates = [cs336.run_get_lr_cosine_schedule(it, 1, 0.1, warmup_iters=7, cosine_cycle_iters=21) for it in range(25)]
    cosine = [0.55 + 0.45 * math.cos(k * math.pi / 14) for k in range(14)]
    assert rates == pytest.approx([it / 7 for it in range(7)] + cosine + 4 * [0.1], rel=1e-7)
    listed = {1: 0.14285714, 7: 1.0, 8: 0.98871756, 11: 0.83057041, 14: 0.55, 17: 0.26942959, 20: 0.11128244, 24: 0.1}
    assert {it: rates[it] for it in listed} == pytest.approx(listed, abs=1e-8)


def test_a_batch_is_drawn_from_every_place_and_its_targets_are_one_step_later():
    inputs, targets = cs336.run_get_batch(torch.arange(20), batch_size=500, context_length=7, device="cpu")
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs - inputs[:, :1], torch.arange(7).expand(500, 7))
    assert inputs[:, 0].unique().tolist() == list(range(13))


def test_a_checkpoint_brings_model_and_optimizer_back_to_its_iteration(tmp_path):
    def steps(model, optimizer, n):
        for i in range(n):
            optimizer.zero_grad()
            model(torch.full((2, 4), 0.1 * i + 0.1)).square().sum().backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    def started(seed):
        torch.manual_seed(seed)
        model = nn.Linear(4, 3)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    model, optimizer = started(0)
    steps(model, optimizer, 5)
    cs336.run_save_checkpoint(model, optimizer, 5, tmp_path / "run.pt")
    expected = steps(model, optimizer, 3)
    again = started(1)
    assert cs336.run_load_checkpoint(tmp_path / "run.pt", *again) == 5
    for ours, theirs in zip(steps(*again, 3), expected):
        assert torch.equal(ours, theirs)


def test_each_merge_of_byte_pairs_joins_a_commonest_pair_of_its_moment(tmp_path):
    text = "low low low lower lower newest newest newest widest widest the the them" + "<|end|>" + " the lowest of them"
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    vocab, merges = cs336.run_train_bpe(tmp_path / "text.txt", 256 + 12 + 1, ["<|end|>"])
    assert {bytes([b]) for b in range(256)} | {b"<|end|>"} <= set(vocab.values())
    assert len(merges) == 12
    words = [
        [bytes([b]) for b in word.encode()] for part in text.split("<|end|>") for word in re.findall(r" ?\w+", part)
    ]
    for pair in merges:
        counts = Counter(neighbours for word in words for neighbours in pairwise(word))
        assert counts[pair] == max(counts.values()), f"{pair} occurs {counts[pair]} times"
        assert pair[0] + pair[1] in vocab.values()
        for word in words:
            for i in reversed(range(len(word) - 1)):
                if (word[i], word[i + 1]) == pair:
                    word[i : i + 2] = [pair[0] + pair[1]]


# ------------------------------------------------------------------------------------------------- CS336, 2024 edition
def test_in_the_2024_edition_true_hides_a_key():
    Q, K, V = torch.randn(B, 5, 8), torch.randn(B, 7, 8), torch.randn(B, 7, 3)
    hidden = torch.rand(5, 7) < 0.5
    hidden[:, 0] = False
    theirs = F.scaled_dot_product_attention(Q, K, V, torch.zeros(5, 7).masked_fill(hidden, -torch.inf))
    assert_agree(cs336.run_scaled_dot_product_attention_2024(K, Q, V, hidden), theirs)
    assert not torch.allclose(cs336.run_scaled_dot_product_attention(Q, K, V, hidden), theirs)
    everything = torch.ones(5, 7, dtype=torch.bool)
    assert_agree(cs336.run_scaled_dot_product_attention_2024(K, Q, V, everything), torch.zeros(B, 5, 3))


def test_in_the_2024_edition_every_head_has_matrices_of_its_own(x):
    q, k, v, o = 0.5 * torch.randn(4, D_MODEL, D_MODEL)
    parts = {"q": q, "k": k, "v": v}
    heads = {f"{p}_heads.{i}.weight": w.chunk(H)[i] for p, w in parts.items() for i in range(H)}
    out = cs336.run_multihead_self_attention_2024(D_MODEL, H, 0.1, {**heads, "output_proj.weight": o}, x)
    assert_agree(out, causal_attention(x, q, k, v, o))


def test_the_2024_model_has_gelu_and_a_table_of_positions(x):
    weights, ids = cs336_weights(rope=False), torch.randint(V, (B, T))
    inner = {name: weights[f"layers.0.ffn.{name}"] for name in ("w1.weight", "w2.weight")}
    hidden = F.linear(x, inner["w1.weight"])
    expected = F.linear(hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2, inner["w2.weight"])
    assert_agree(cs336.run_positionwise_feedforward(D_MODEL, D_FF, inner, x), expected)
    logits = cs336.run_transformer_lm_2024(V, CONTEXT, D_MODEL, N_LAYERS, H, D_FF, 0.1, 0.1, weights, ids)
    assert_agree(logits, language_model(ids, weights, rope=False))


# ------------------------------------------------------------------------------------------------------ nanoGPT, minGPT
# PyTorch's names on the left, theirs on the right.
GPT = {
    "layers.": "transformer.h.", "self_attn.in_proj_": "attn.c_attn.", "self_attn.out_proj": "attn.c_proj",
    "linear1": "mlp.c_fc", "linear2": "mlp.c_proj", "norm1": "ln_1", "norm2": "ln_2",
}  # fmt: skip


def load_nanogpt(state, n_head, activation, tied):
    """They have GPT-2's names, but nn.Linear's layout (out, in); GPT-2's own files have (in, out)."""
    (vocab_size, n_embd), n_positions = state["transformer.wte.weight"].shape, len(state["transformer.wpe.weight"])
    config = {"vocab_size": vocab_size, "n_positions": n_positions, "n_embd": n_embd, "n_head": n_head}
    config |= {"n_layer": len({name.split(".")[2] for name in state if ".h." in name})}
    config |= {"activation_function": activation, "tie_word_embeddings": tied}
    turned = {name: w.T if re.search(r"\.c_\w+\.weight", name) else w for name, w in state.items()}
    return from_hf_state_dict("gpt2", turned, config)


@pytest.mark.parametrize(
    ("activation", "bend", "tied"),
    [("gelu", F.gelu, True), ("gelu_new", lambda x: F.gelu(x, approximate="tanh"), False)],
    ids=["nanoGPT", "minGPT"],
)
def test_a_state_dict_of_nanogpt_or_mingpt_is_a_gpt2_with_its_matrices_turned(activation, bend, tied):
    layer = nn.TransformerEncoderLayer(D_MODEL, H, 4 * D_MODEL, 0.0, bend, batch_first=True, norm_first=True)
    stack = nn.TransformerEncoder(layer, N_LAYERS, nn.LayerNorm(D_MODEL), enable_nested_tensor=False)
    theirs = with_real_weights(stack).eval()
    wte, wpe, head = torch.randn(V, D_MODEL), torch.randn(CONTEXT, D_MODEL), torch.randn(V, D_MODEL)
    state = {renamed(name, GPT): tensor for name, tensor in theirs.state_dict().items()}
    state |= {f"transformer.ln_f.{kind}": state.pop(f"norm.{kind}") for kind in ("weight", "bias")}
    state |= {"transformer.wte.weight": wte, "transformer.wpe.weight": wpe, "lm_head.weight": wte if tied else head}
    state |= {f"transformer.h.{i}.attn.bias": causal_mask(CONTEXT)[None, None] for i in range(N_LAYERS)}  # their mask
    ids = torch.randint(V, (B, T))
    hidden = theirs(F.embedding(ids, wte) + wpe[:T], mask=~causal_mask(T))
    assert_agree(load_nanogpt(state, H, activation, tied)(ids), F.linear(hidden, state["lm_head.weight"]))


# ----------------------------------------------------------------------------------------------- ARENA, TransformerLens
def load_arena_attention(weights):
    """W_Q W_K W_V (H, d_model, D), b_Q b_K b_V (H, D), W_O (H, D, d_model), b_O (d_model,)."""
    state = {"out_proj.weight": weights["W_O"].flatten(0, 1).T, "out_proj.bias": weights["b_O"]}
    for part in "QKV":
        state[f"{part.lower()}_proj.weight"] = weights[f"W_{part}"].transpose(1, 2).flatten(0, 1)  # (H · D, d_model)
        state[f"{part.lower()}_proj.bias"] = weights[f"b_{part}"].flatten()
    n_heads, d_model, _ = weights["W_Q"].shape
    return filled(MultiHeadAttention(d_model, n_heads), state)


def test_arenas_heads_are_summed_where_ours_are_laid_side_by_side(x):
    D = D_MODEL // H
    weights = {f"W_{part}": 0.5 * torch.randn(H, D_MODEL, D) for part in "QKV"}
    weights |= {f"b_{part}": torch.randn(H, D) for part in "QKV"}
    weights |= {"W_O": torch.randn(H, D, D_MODEL), "b_O": torch.randn(D_MODEL)}
    expected = weights["b_O"]
    for h in range(H):
        q, k, v = (x @ weights[f"W_{part}"][h] + weights[f"b_{part}"][h] for part in "QKV")  # (B, T, D)
        expected = expected + F.scaled_dot_product_attention(q, k, v, is_causal=True) @ weights["W_O"][h]
    assert_agree(load_arena_attention(weights)(x, is_causal=True), expected)
