"""A fast model writes what the same model writes without, and whoever looks inside it still sees everything."""

import copy

import pytest
import torch

from course_lib.blocks import TransformerBlock
from course_lib.cache import KVCache
from course_lib.fast import FastBlock, fast
from course_lib.gpt import DecoderOnly
from course_lib.sampling import Draft, generate, pad_left
from course_lib.trace import trace
from tests.helpers import small

KINDS = {
    "GPT-2": {"positions": "learned", "activation": "gelu_tanh", "tie_weights": True},
    "LLaMA": {"positions": "rope", "norm": "rms", "activation": "swiglu", "bias": False, "n_kv_heads": 2},
    "one key head, interleaved": {"positions": "rope", "rope_interleaved": True, "n_kv_heads": 1},
    "Qwen3": {"positions": "rope", "norm": "rms", "activation": "swiglu", "qk_norm": True, "head_dim": 6},
    "Qwen2": {"positions": "rope", "bias": False, "qkv_bias": True},
    "GPT-NeoX": {"positions": "rope", "parallel": True, "activation": "gelu"},
    "sinusoids": {"positions": "sinusoidal", "activation": "relu"},
    "ALiBi": {"positions": "alibi"},
    "a window": {"positions": "rope", "window": 3},
    "post-norm": {"positions": "learned", "norm_position": "post"},
    "OLMo 2": {"positions": "rope", "norm": "rms", "norm_position": "output", "qk_norm": "all", "n_kv_heads": 2},
    "all heads normalized together": {"positions": "rope", "qk_norm": "all", "n_kv_heads": 2},
    "SmolLM3": {"positions": "rope", "norm": "rms", "activation": "swiglu", "rope_theta": (1e4, None)},
    "experts": {"positions": "rope", "activation": "swiglu", "n_experts": 3, "experts_per_token": 2},
    "gated by GELU": {"positions": "rope", "activation": "geglu", "bias": False},
    "Gemma 3": {
        "positions": "rope",
        "norm": "rms",
        "activation": "geglu",
        "norm_position": "both",
        "qk_norm": True,
        "window": (3, None),
        "rope_theta": (1e4, 1e6),
    },
    "norms before and after": {"positions": "rope", "norm": "rms", "norm_position": "both"},
}
USUAL = ("GPT-2", "LLaMA", "one key head, interleaved", "Qwen3", "Qwen2", "GPT-NeoX", "sinusoids", "SmolLM3")


def pair(**changes):
    """A model in its usual form and in the fast one, with weights so large that a slip would show."""
    torch.manual_seed(0)
    plain = DecoderOnly(small(n_heads=4, n_layers=2, max_seq_len=24, **changes)).eval()
    with torch.no_grad():
        for p in plain.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return plain, fast(copy.deepcopy(plain))


def steps(model, ids, n, **given):
    """The logits of n steps, each after the token that the first model would have taken."""
    draft, found = Draft(model, ids, **given), []
    for i in range(n):
        found.append(draft.next_logits())
        draft.append(torch.full((len(ids),), i % model.config.vocab_size))
    return torch.stack(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("B", [1, 3])
def test_each_step_gives_the_same_logits(kind, B, monkeypatch):
    plain, quick = pair(**KINDS[kind])
    taken = []
    monkeypatch.setattr(
        FastBlock, "next_token", lambda self, *given, step=FastBlock.next_token: taken.append(1) or step(self, *given)
    )
    ids = torch.randint(plain.config.vocab_size, (B, 3), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(steps(quick, ids, 8), steps(plain, ids, 8), rtol=1e-4, atol=1e-5)
    assert len(taken) == (7 * 2 if kind in USUAL else 0), "each step after the prompt, in each of two blocks"


def test_padding_is_still_hidden():
    plain, quick = pair(positions="rope")
    ids, left_padding = pad_left([[1, 2, 3], [4]], pad_id=0)
    given = {"left_padding": left_padding}
    torch.testing.assert_close(steps(quick, ids, 6, **given), steps(plain, ids, 6, **given), rtol=1e-4, atol=1e-5)


def test_the_same_seed_writes_the_same_text():
    plain, quick = pair(positions="rope")
    texts = [
        generate(model, torch.tensor([[1], [2]]), 20, temperature=0.9, generator=torch.Generator().manual_seed(3))
        for model in (plain, quick)
    ]
    assert torch.equal(*texts)


def test_who_looks_inside_sees_every_part():
    plain, quick = pair(positions="rope")
    seen = []
    for model in (plain, quick):
        cache, ids = model.new_cache(), torch.tensor([[1, 2, 3]])
        with torch.no_grad():
            model(ids, cache=cache)
            with trace(model) as parts:
                model(torch.tensor([[4]]), cache=cache)
        seen.append(parts)
    assert list(seen[1]) == list(seen[0])
    for name, value in seen[0].items():
        torch.testing.assert_close(seen[1][name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_who_looks_at_a_single_part_sees_it_too():
    """Each part on its own: another one's hook would lead to the usual way as well."""
    _, quick = pair(**KINDS["Qwen3"])
    cache = quick.new_cache()
    with torch.no_grad():
        quick(torch.tensor([[1, 2, 3]]), cache=cache)
        for name, part in quick.blocks[0].named_modules():
            seen = []
            hook = part.register_forward_hook(lambda *_, seen=seen: seen.append(1))
            quick(torch.tensor([[4]]), cache=cache)
            hook.remove()
            assert seen, name
            for kept, _ in cache:
                kept.keep(3)


def test_a_fast_model_keeps_its_parameters_names_and_gradients():
    torch.manual_seed(0)
    model = DecoderOnly(small(positions="rope"))
    parameters, names = list(model.parameters()), list(model.state_dict())
    assert fast(model) is model
    assert fast(model) is model, "a second time"
    assert all(type(block) is FastBlock for block in model.blocks)
    assert list(map(id, model.parameters())) == list(map(id, parameters))
    assert list(model.state_dict()) == names
    plain = DecoderOnly(model.config)
    plain.load_state_dict(model.state_dict())
    assert type(plain.blocks[0]) is TransformerBlock
    ids = torch.tensor([[1, 2, 3]])
    for each in (plain, model):
        each(ids, ids)[1].backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


def test_a_block_with_cross_attention_still_asks_for_its_context():
    block = FastBlock(TransformerBlock(small(positions="none"), cross_attention=True).eval())
    cache = KVCache()
    with torch.no_grad(), pytest.raises(ValueError, match="context"):
        block(torch.randn(1, 1, block.norm1.weight.numel()), cache=cache)
