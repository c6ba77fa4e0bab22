"""The format of llama2.c: weights in a fixed order, without names, followed by the vocabulary.

Chapter 15. The only metadata is a header of seven integers.
"""

import struct
from itertools import accumulate
from math import prod
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from torch import Tensor

from course_lib.config import TransformerConfig
from course_lib.course.files import damaged, reading
from course_lib.hub.checkpoints import Model, assemble
from course_lib.hub.names import BASIS
from course_lib.tinytown import SubwordTokenizer

HEADER = struct.Struct("<7i")  # d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len
SPACE = "▁"  # SentencePiece's character for a space
SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [
    f"<0x{byte:02X}>" for byte in range(256)
]  # tokens for bytes that no other token covers; they follow the special tokens


def load_llama2c(path: Path) -> tuple[Model, SubwordTokenizer]:
    """Load a LLaMA-type model and its tokenizer from a file of llama2.c: float32 weights, then the vocabulary.

    Errors: ValueError for a file that ends too early, or has another format.
    Source: Karpathy (2023), llama2.c. Its models are trained on TinyStories (Eldan and Li 2023).
    """
    content = bytearray(path.read_bytes())
    try:
        d, d_ff, L, n_heads, n_kv_heads, vocab_size, T = HEADER.unpack_from(content)
        d_kv, pairs = n_kv_heads * d // n_heads, d // n_heads // 2
        shapes = {
            "token_embedding": (vocab_size, d),
            "norm1": (L, d),
            "attention.q_proj": (L, d, d),
            "attention.k_proj": (L, d_kv, d),
            "attention.v_proj": (L, d_kv, d),
            "attention.out_proj": (L, d, d),
            "norm2": (L, d),
            "feed_forward.gate_proj": (L, d_ff, d),
            "feed_forward.down_proj": (L, d, d_ff),
            "feed_forward.up_proj": (L, d_ff, d),
            "final_norm": (d,),
            "cosines": (T, pairs),
            "sines": (T, pairs),
        }
        ends = [HEADER.size + 4 * end for end in accumulate(map(prod, shapes.values()), initial=0)]
        tensors = {
            name: torch.frombuffer(content, dtype=torch.float32, count=prod(shape), offset=begin).view(shape)
            for (name, shape), begin in zip(shapes.items(), ends)
        }
        tokenizer = _tokenizer(bytes(content[ends[-1] :]), vocab_size)
    except Exception as error:  # in another kind of file, these seven numbers can be anything
        raise damaged(path, error) from error
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in ("token_embedding", "final_norm"):
            named[f"{name}.weight"] = tensor
        elif name not in ("cosines", "sines"):  # our RoPE computes these two
            named |= {f"blocks.{layer}.{name}.weight": each for layer, each in enumerate(tensor)}
    with reading(path):
        config = TransformerConfig(
            **BASIS["llama"]
            | {
                "d_model": d,
                "d_ff": d_ff,
                "n_layers": L,
                "n_heads": n_heads,
                "n_kv_heads": n_kv_heads,
                "vocab_size": vocab_size,
                "max_seq_len": T,
                "activation": "swiglu",
                "norm_eps": 1e-5,
                "rope_interleaved": True,
                "tie_weights": True,
            }
        )
        return assemble(config, named, path), tokenizer


def _tokenizer(content: bytes, vocab_size: int) -> SubwordTokenizer:
    """Build byte-pair encoding as in SentencePiece: the merge whose token is earliest in the vocabulary comes first.

    content: the length of the longest token, then the score, the length and the bytes of each token."""
    tokens, at = [*SPECIAL, *BYTES], 4
    for number in range(vocab_size):
        _score, length = struct.unpack_from("<fI", content, at)
        at += 8 + length
        if number >= len(tokens):
            tokens.append(content[at - length : at].decode().replace(" ", SPACE))
    if at != len(content):
        raise ValueError(f"{len(content) - at:,} bytes follow the vocabulary")
    ids = {token: i for i, token in enumerate(tokens)}
    merges = [
        (token[:cut], token[cut:])
        for token in tokens[len(SPECIAL) + len(BYTES) :]
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=SPECIAL[0], fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    begin = SPECIAL[1]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", pair=f"{begin} $A $B", special_tokens=[(begin, 1)]
    )
    return SubwordTokenizer(tokenizer)
