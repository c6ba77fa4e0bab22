"""What the tests of parts and models share: small configurations and weights that are neither ones nor zeros."""

import random

import torch
from hypothesis import strategies as st
from torch import nn

from course_lib.config import POSITIONS, TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import WordTokenizer

MODELS = {"decoder": DecoderOnly, "encoder": EncoderOnly, "encoder-decoder": EncoderDecoder}
V = 31
SMALL = {"vocab_size": V, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 12, "d_ff": 20}

seeds = st.integers(0, 999)


def small(family: str = "decoder", **changes) -> TransformerConfig:
    return TransformerConfig(**{**SMALL, "family": family, **changes})


def configs(family: str, **fixed) -> st.SearchStrategy[TransformerConfig]:
    """Small configurations of a family with every choice open but those given."""
    choices = {
        "positions": POSITIONS,
        "rope_interleaved": (False, True),
        "n_kv_heads": (1, 2, 4),
        "norm": ("layer", "rms"),
        "norm_position": ("pre", "post"),
        "activation": ("relu", "gelu", "gelu_tanh", "swiglu"),
        "bias": (True, False),
        "tie_weights": (True, False),
    }
    drawn = {name: st.sampled_from(options) for name, options in choices.items() if name not in fixed}
    return st.fixed_dictionaries(drawn).map(lambda choice: small(family, **choice, **fixed))


def with_real_weights(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with every parameter drawn: gains around 1, all others around 0, as if it had been trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_gain = parameter.ndim == 1 and name.endswith("weight")
            drawn = torch.randn(parameter.shape, generator=generator) * (0.2 if is_gain else 0.3)
            parameter.copy_(drawn + is_gain)
    return module


def build(config: TransformerConfig, device: str | None = None, dtype: torch.dtype = torch.float32, seed: int = 0):
    """The config's model with real weights, in evaluation mode."""
    return with_real_weights(MODELS[config.family](config), seed).to(device or torch.get_default_device(), dtype).eval()


def draw_ids(*shape: int, device: str | None = None) -> torch.Tensor:
    return torch.randint(V, shape).to(device or torch.get_default_device())


def inputs_of(family, B=2, S=5, T=4):
    return (draw_ids(B, S), draw_ids(B, T)) if family == "encoder-decoder" else (draw_ids(B, T),)


def opinionated_reader() -> tuple[DecoderOnly, WordTokenizer]:
    """A small model with weights large enough to look at some tokens more than at others, and its tokenizer."""
    torch.manual_seed(1)
    tokenizer = WordTokenizer()
    model = DecoderOnly(TransformerConfig(vocab_size=len(tokenizer), d_model=16, n_heads=2, n_layers=3, max_seq_len=12))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval(), tokenizer


class OnlyRandom(random.Random):
    """`random()` is promised to stay the same in every Python; what is built upon it is not."""

    def __getattribute__(self, name):
        assert name in ("random", "seed", "__class__"), f"Random.{name} is drawn differently by other Pythons"
        return super().__getattribute__(name)
