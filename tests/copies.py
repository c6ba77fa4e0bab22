"""Small models of transformers with random weights, and ours with the same: what the tests of generated text share."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import from_hf_state_dict

V, T_MAX = 61, 90
# No special tokens: otherwise transformers would stop at them.
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GPT2 = GPT2Config(vocab_size=V, n_positions=T_MAX, n_embd=32, n_layer=2, n_head=4, **NO_TOKENS)
# Two key-value heads serve four query heads.
LLAMA = LlamaConfig(
    vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=T_MAX, **NO_TOKENS,
)  # fmt: skip
# Of our own alone: texts of more than 12 tokens slide its window.
SMALL = {"vocab_size": 40, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 12, "tie_weights": False}


def gpt2(seed: int) -> tuple[DecoderOnly, nn.Module]:
    return with_the_same_weights(drawn(GPT2LMHeadModel(GPT2), seed))


def llama(seed: int) -> tuple[DecoderOnly, nn.Module]:
    return with_the_same_weights(drawn(LlamaForCausalLM(LLAMA), seed))


def translator() -> EncoderDecoder:
    others = {"positions": "sinusoidal", "norm_position": "post", "family": "encoder-decoder", "dropout": 0.3}
    return drawn(EncoderDecoder(TransformerConfig(**SMALL, **others)), seed=3)


def with_the_same_weights(theirs: nn.Module) -> tuple[DecoderOnly, nn.Module]:
    return from_hf_state_dict(theirs.config.model_type, theirs.state_dict(), theirs.config).eval(), theirs.eval()


def drawn(model: nn.Module, seed: int, spread: float = 0.2) -> nn.Module:
    """The model with every weight, gain and bias at random."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        gain = parameter.ndim == 1 and name.endswith("weight")
        # Loud positions keep greedy text from falling into a loop, which would compare one token over and over.
        std = 1.0 if "wpe" in name or "positions" in name else spread
        nn.init.normal_(parameter, mean=1.0 if gain else 0.0, std=std, generator=generator)
    return model
