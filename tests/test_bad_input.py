"""Bad input for the whole public API: each argument of each function is spoiled in turn, and what comes of it judged.

`ACCEPTED` lists what is taken although it looks bad, each with its reason.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from course_lib import (
    assistant,
    attention,
    beam,
    cache,
    config,
    counting,
    efficiency,
    embeddings,
    encoder_decoder,
    fast,
    feed_forward,
    gpt,
    heads,
    masks,
    normalization,
    positions,
    pretrained,
    sampling,
    tinytown,
    trace,
    training,
)
from course_lib.blocks import Stack, TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.tinytown import french
from course_lib.training_options import checkpoints, gradients
from tests.bad_input import Outcome, bounded, verdicts

V, D_MODEL = 7, 8
TINY = {"vocab_size": V, "d_model": D_MODEL, "n_heads": 2, "n_layers": 1, "max_seq_len": 6, "d_ff": 8}


def tiny(family="decoder", **changes):
    return TransformerConfig(**{**TINY, "family": family, **changes})


def model(family="decoder", **changes):
    torch.manual_seed(0)
    kinds = {"decoder": gpt.DecoderOnly, "encoder": encoder_decoder.EncoderOnly}
    return kinds.get(family, encoder_decoder.EncoderDecoder)(tiny(family, **changes)).eval()


DECODER, ENCODER, TRANSLATOR = model(), model("encoder", n_segments=2), model("encoder-decoder")


def x(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def ids(*shape, below=V):
    return (torch.arange(torch.Size(shape).numel()) % below).reshape(shape)


def causal(T=3, S=3):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def filled(n=2):
    kept = cache.KVCache()
    kept.append(x(2, 2, n, 4), x(2, 2, n, 4))
    return kept


def words():
    return tinytown.WordTokenizer(["cat", "dog", "sat"])


def pieces():
    return tinytown.BytePairTokenizer.train("a cat sat on a cat " * 3, 260, ["<end>"])


def batches():
    return iter([(ids(2, 3), ids(2, 3))] * 4)


def generator():
    return torch.Generator().manual_seed(0)


def fields(**changes):
    return {**TINY, **changes}


def sizes(config):
    return lambda: {"config": config, "T": 3, "batch": 2}


ATTENTION = partial(heads.MultiHeadAttention, 8, 2)
PIECES, WORDS = pieces(), words()


def specs(folder: Path) -> dict[str, tuple[Callable, Callable[[], dict]]]:
    """A right call of every public function: its name -> the function, and what makes its arguments."""
    history = {"losses": [1.0]}
    encoded = TRANSLATOR.encode(ids(2, 4)).detach()

    def written():
        path, own = folder / "run.pt", model()
        checkpoints.save_checkpoint(path, own, training.make_optimizer(own), generator(), history)
        return {"path": path, "model": own, "optimizer": training.make_optimizer(own), "generator": generator()}

    def hf_state():
        d = D_MODEL
        shapes = {"wte.weight": (V, d), "wpe.weight": (6, d), "ln_f.weight": (d,), "ln_f.bias": (d,)}
        for name, shape in {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, 4 * d),
                            "mlp.c_proj": (4 * d, d), "ln_1": (d,), "ln_2": (d,)}.items():  # fmt: skip
            shapes |= {f"h.0.{name}.weight": shape, f"h.0.{name}.bias": shape[-1:]}
        return {name: x(*shape) for name, shape in shapes.items()}

    hf_config = {"vocab_size": V, "n_embd": D_MODEL, "n_head": 2, "n_layer": 1, "n_positions": 6}
    attended = {"query": lambda: x(2, 3, 4), "key": lambda: x(2, 5, 4), "value": lambda: x(2, 5, 6)}

    def made(**makers):
        return lambda: {name: make() if callable(make) else make for name, make in makers.items()}

    return {
        # ------------------------------------------------------------------------------------------------- embeddings
        "TokenEmbedding": (embeddings.TokenEmbedding, made(vocab_size=V, d_model=4, scale=True)),
        "TokenEmbedding()": (embeddings.TokenEmbedding(V, 4).requires_grad_(False), made(ids=lambda: ids(2, 3))),
        "nearest_tokens": (embeddings.nearest_tokens, made(weight=lambda: x(V, 4), index=2, k=3)),
        "analogy": (embeddings.analogy, made(weight=lambda: x(V, 4), a=0, b=1, c=2, k=3)),
        # -------------------------------------------------------------------------------------------------- positions
        "sinusoidal_encoding": (positions.sinusoidal_encoding, made(max_seq_len=5, d_model=4)),
        "SinusoidalPositions": (positions.SinusoidalPositions, made(max_seq_len=5, d_model=4)),
        "SinusoidalPositions()": (
            positions.SinusoidalPositions(5, 4), made(x=lambda: x(2, 3, 4), positions=lambda: ids(2, 3, below=5))
        ),
        "LearnedPositions": (positions.LearnedPositions, made(max_seq_len=5, d_model=4)),
        "LearnedPositions()": (
            positions.LearnedPositions(5, 4), made(x=lambda: x(2, 3, 4), positions=lambda: ids(2, 3, below=5))
        ),
        "rotary_angles": (
            positions.rotary_angles,
            made(positions=lambda: ids(3), d_head=4, theta=100.0, dtype=lambda: torch.float32,
                 scaling=lambda: (8.0, 1.0, 4.0, 64.0)),
        ),
        "slowed": (positions.slowed, made(speeds=lambda: x(4) + 2, factor=8.0, low=1.0, high=4.0, original=64.0)),
        "apply_rotary": (
            positions.apply_rotary, made(x=lambda: x(2, 3, 4), angles=lambda: x(3, 2), interleaved=True)
        ),
        "alibi_bias": (positions.alibi_bias, made(n_heads=3, T=2, S=4, device="cpu")),
        "RelativeBias": (positions.RelativeBias, made(n_heads=3, both_ways=True)),
        "RelativeBias()": (positions.RelativeBias(3, True), made(T=2, S=4)),
        # ------------------------------------------------------------------------------------------------------ masks
        "causal_mask": (masks.causal_mask, made(T=2, S=4, device="cpu")),
        "padding_mask": (masks.padding_mask, made(lengths=lambda: [1, 3], S=3, left=True)),
        "padding_mask of a tensor": (masks.padding_mask, made(lengths=lambda: torch.tensor([1, 3]), S=3, left=False)),
        "window_mask": (masks.window_mask, made(T=2, S=4, window=2, device="cpu")),
        "document_mask": (masks.document_mask, made(document_ids=lambda: torch.tensor([[3, 3, 1], [2, -1, -1]]))),
        "prefix_mask": (masks.prefix_mask, made(prefix_len=1, T=3, device="cpu")),
        "combine": (lambda first, second: masks.combine(first, second), made(first=causal, second=causal)),
        # -------------------------------------------------------------------------------------- attention, heads, cache
        "scaled_dot_product_attention": (
            attention.scaled_dot_product_attention,
            made(**attended, mask=lambda: causal(3, 5), dropout_p=0.5, score_bias=lambda: x(3, 5)),
        ),
        "split_heads": (heads.split_heads, made(x=lambda: x(2, 3, 8), n_heads=2)),
        "merge_heads": (heads.merge_heads, made(x=lambda: x(2, 2, 3, 4))),
        "MultiHeadAttention": (
            heads.MultiHeadAttention,
            made(d_model=8, n_heads=2, n_kv_heads=1, dropout=0.5, bias=True, rope_interleaved=False, d_head=4,
                 qkv_bias=True, qk_norm=1e-5, norm_all_heads=True),
        ),
        "MultiHeadAttention()": (
            ATTENTION(),
            made(x=lambda: x(2, 3, 8), mask=causal, is_causal=True, rotary=lambda: x(3, 2), cache=cache.KVCache,
                 need_weights=True, score_bias=lambda: x(3, 3)),
        ),
        "MultiHeadAttention() to a context": (
            ATTENTION(),
            made(x=lambda: x(2, 3, 8), context=lambda: x(2, 5, 8), mask=lambda: causal(3, 5), cache=cache.KVCache),
        ),
        "KVCache.select": (lambda rows: filled().select(rows), made(rows=lambda: torch.tensor([1, 0, 1]))),
        "KVCache.keep": (lambda length: filled().keep(length), made(length=1)),
        # --------------------------------------------------------------------------------- feed-forward, norms, linear
        "FeedForward": (
            feed_forward.FeedForward, made(d_model=4, d_ff=8, activation="relu", dropout=0.5, bias=True)
        ),
        "FeedForward()": (feed_forward.FeedForward(4), made(x=lambda: x(2, 3, 4))),
        "SwiGLU": (feed_forward.SwiGLU, made(d_model=4, d_ff=8, multiple_of=8, dropout=0.5, bias=True)),
        "SwiGLU()": (feed_forward.SwiGLU(4), made(x=lambda: x(2, 3, 4))),
        "GeGLU()": (feed_forward.GeGLU(4), made(x=lambda: x(2, 3, 4))),
        "MixtureOfExperts": (
            feed_forward.MixtureOfExperts,
            made(d_model=4, d_expert=8, n_experts=3, experts_per_token=2, norm_topk_prob=True, bias=True),
        ),
        "MixtureOfExperts()": (feed_forward.MixtureOfExperts(4, 8, 3, 2), made(x=lambda: x(2, 3, 4))),
        "load_balance_loss": (feed_forward.load_balance_loss, made(scores=lambda: x(5, 3), experts_per_token=2)),
        "swiglu_width": (feed_forward.swiglu_width, made(d_model=4, multiple_of=8)),
        "LayerNorm": (normalization.LayerNorm, made(d_model=4, eps=1e-5, bias=True)),
        "LayerNorm()": (normalization.LayerNorm(4), made(x=lambda: x(2, 3, 4))),
        "LayerNorm.by_hand": (normalization.LayerNorm(4).by_hand, made(x=lambda: x(2, 3, 4))),
        "RMSNorm": (normalization.RMSNorm, made(d_model=4, eps=1e-5)),
        "RMSNorm()": (normalization.RMSNorm(4), made(x=lambda: x(2, 3, 4))),
        "RMSNorm.by_hand": (normalization.RMSNorm(4).by_hand, made(x=lambda: x(2, 3, 4))),
        "fast": (fast.fast, made(model=lambda: model())),
        # ----------------------------------------------------------------------------------------------------- config
        "TransformerConfig": (
            TransformerConfig,
            made(**fields(n_kv_heads=1, dropout=0.5, activation="relu", norm="rms", norm_position="pre",
                          positions="rope", rope_theta=100.0, tie_weights=True, bias=True, norm_eps=1e-5,
                          family="decoder", rope_interleaved=True, head_dim=4, rotary_share=0.5,
                          rope_scaling=(8.0, 1.0, 4.0, 64.0), window=3, qkv_bias=True, qk_norm=True, parallel=True,
                          output_bias=True)),
        ),
        "TransformerConfig of experts": (
            TransformerConfig,
            made(**fields(activation="swiglu", n_experts=3, experts_per_token=2, d_expert=4, norm_topk_prob=True)),
        ),
        "TransformerConfig of segments": (TransformerConfig, made(**fields(n_segments=2, family="encoder"))),
        "TransformerConfig.from_dict": (TransformerConfig.from_dict, made(values=fields)),
        "preset": (config.preset, made(name="gpt2")),
        # ----------------------------------------------------------------------------------------------- blocks, models
        "TransformerBlock": (TransformerBlock, made(config=tiny, cross_attention=False)),
        "TransformerBlock()": (
            TransformerBlock(tiny(positions="rope")).eval(),
            made(x=lambda: x(2, 3, 8), mask=causal, rotary=lambda: x(3, 2), score_bias=lambda: x(3, 3),
                 cache=cache.KVCache),
        ),
        "TransformerBlock() to a context": (
            TransformerBlock(tiny("encoder-decoder"), cross_attention=True).eval(),
            made(x=lambda: x(2, 3, 8), context=lambda: x(2, 4, 8), context_mask=lambda: causal(3, 4),
                 context_cache=cache.KVCache),
        ),
        "Stack": (Stack, made(config=tiny, cross_attention=False)),
        "DecoderOnly": (gpt.DecoderOnly, made(config=tiny)),
        "DecoderOnly()": (
            DECODER,
            made(ids=lambda: ids(2, 3), targets=lambda: ids(2, 3), cache=DECODER.new_cache,
                 left_padding=lambda: torch.tensor([0, 1]), last_only=False),
        ),
        "DecoderOnly.attention_weights": (DECODER.attention_weights, made(ids=lambda: ids(2, 3))),
        "EncoderOnly": (encoder_decoder.EncoderOnly, made(config=lambda: tiny("encoder"))),
        "EncoderOnly()": (
            ENCODER, made(ids=lambda: ids(2, 3), mask=causal, segment_ids=lambda: ids(2, 3, below=2))
        ),
        "EncoderDecoder": (encoder_decoder.EncoderDecoder, made(config=lambda: tiny("encoder-decoder"))),
        "EncoderDecoder()": (
            TRANSLATOR,
            made(source_ids=lambda: ids(2, 4), target_ids=lambda: ids(2, 3),
                 source_mask=lambda: masks.padding_mask([2, 4], 4), targets=lambda: ids(2, 3)),
        ),
        "EncoderDecoder.encode": (
            TRANSLATOR.encode, made(source_ids=lambda: ids(2, 4), source_mask=lambda: masks.padding_mask([2, 4], 4))
        ),
        "EncoderDecoder.decode": (
            TRANSLATOR.decode,
            made(target_ids=lambda: ids(2, 3), encoded=lambda: encoded,
                 source_mask=lambda: masks.padding_mask([2, 4], 4), cache=TRANSLATOR.new_cache),
        ),
        "next_token_loss": (gpt.next_token_loss, made(logits=lambda: x(2, 3, V), targets=lambda: ids(2, 3))),
        # -------------------------------------------------------------------------------------------------------- trace
        "evaluating": (lambda model: trace.evaluating(model).__enter__(), made(model=lambda: DECODER)),
        "trace": (
            lambda model, pattern: dict(_traced(model, pattern)), made(model=lambda: DECODER, pattern="*.weights")
        ),
        # ----------------------------------------------------------------------------------------------------- counting
        "count_parameters": (counting.count_parameters, made(config=tiny, active=True)),
        "forward_flops": (counting.forward_flops, made(config=tiny, T=3, batch=2, cached=1)),
        "forward_flops of a source": (
            counting.forward_flops, made(config=lambda: tiny("encoder-decoder"), T=3, batch=2, S=4, cached=1)
        ),
        "attention_matrix_bytes": (
            counting.attention_matrix_bytes, made(config=tiny, T=3, batch=2, bytes_per_element=2)
        ),
        "kv_cache_bytes": (
            counting.kv_cache_bytes,
            made(config=lambda: tiny("encoder-decoder"), T=3, batch=2, bytes_per_element=2, S=4),
        ),
        "inference_memory": (counting.inference_memory, made(config=tiny, T=3, batch=2, bytes_per_element=2)),
        "training_memory": (counting.training_memory, made(config=tiny, mixed_precision=True)),
        "activation_memory": (counting.activation_memory, made(config=tiny, T=3, batch=2, bytes_per_element=2)),
        "training_flops": (counting.training_flops, made(config=tiny, n_tokens=9, T=3, recomputed=True)),
        "training_days": (
            counting.training_days,
            made(config=tiny, n_tokens=9, n_gpus=2, peak_flops=1e3, utilization=0.5, T=3, recomputed=True),
        ),
        "all_reduce_bytes": (counting.all_reduce_bytes, made(config=tiny, n_processes=2, bytes_per_element=4)),
        # --------------------------------------------------------------------------------------------------- efficiency
        "quantize_int8": (efficiency.quantize_int8, made(weight=lambda: x(3, 4))),
        "chunked_loss": (
            efficiency.chunked_loss,
            made(
                hidden=lambda: x(2, 3, 4),
                output=lambda: torch.nn.Linear(4, V),
                targets=lambda: ids(2, 3),
                chunk=2,
            ),
        ),
        "int8_linear": (
            efficiency.int8_linear, made(x=lambda: x(2, 4), q=lambda: ids(3, 4).to(torch.int8), scale=lambda: x(3))
        ),
        "Int8Linear": (efficiency.Int8Linear, made(linear=lambda: nn.Linear(4, 3))),
        "Int8Linear()": (efficiency.Int8Linear(nn.Linear(32, 3)), made(x=lambda: x(2, 32))),
        "Int8Linear.by_hand": (efficiency.Int8Linear(nn.Linear(4, 3)).by_hand, made(x=lambda: x(2, 4))),
        "to_int8": (efficiency.to_int8, made(model=lambda: DECODER)),
        "speculate": (
            efficiency.speculate,
            made(model=lambda: DECODER, draft=lambda: DECODER, ids=lambda: ids(1, 2), max_new_tokens=2, k=2,
                 generator=generator, temperature=0.5, top_k=3, top_p=0.9, min_p=0.1),
        ),
        "left_over": (efficiency.left_over, made(p=lambda: x(4).softmax(0), q=lambda: x(4).flip(0).softmax(0))),
        # ----------------------------------------------------------------------------------------------------- training
        "learning_rate": (training.learning_rate, made(step=3, peak=1.0, warmup=2, total=9, floor=0.5)),
        "make_optimizer": (
            training.make_optimizer, made(model=model, weight_decay=0.1, betas=lambda: (0.9, 0.95))
        ),
        "train": (
            training.train,
            made(model=model, batches=batches, steps=2, peak=1e-3, warmup=1, floor=1e-4, weight_decay=0.1,
                 max_norm=1.0, checkpoint=lambda: _unused(folder / "train.pt"), checkpoint_every=2,
                 on_step=lambda: _nothing, progress=False, precision="float32", compile=False, accumulate=2,
                 checkpoint_activations=False, shard=False),
        ),
        "story_losses": (
            training.story_losses,
            made(model=lambda: DECODER, stories=lambda: [[1, 2, 3, 4], [1, 2]], batch_size=2, pad_id=0),
        ),
        "add_gradients": (
            gradients.add_gradients, made(model=model, drawn=lambda: [*batches()], precision="float32")
        ),
        "clip": (gradients.clip, made(model=_with_gradients, max_norm=1.0)),
        "predicted": (gradients.predicted, made(batch=lambda: (ids(2, 3), ids(2, 3)))),
        "save_checkpoint": (
            checkpoints.save_checkpoint,
            lambda: written() | {"path": folder / "again.pt", "history": {"losses": [1.0]}},
        ),
        "load_checkpoint": (checkpoints.load_checkpoint, written),
        # ---------------------------------------------------------------------------------------------------- assistant
        "add_tokens": (assistant.add_tokens, made(model=lambda: DECODER, n=2)),
        "answer_targets": (
            assistant.answer_targets, made(ids=lambda: ids(2, 3), roles=lambda: torch.tensor([[0, 1, 2], [1, 0, 2]]))
        ),
        "log_probs_of": (
            assistant.log_probs_of, made(model=lambda: DECODER, ids=lambda: ids(2, 3), targets=lambda: ids(2, 3))
        ),
        "best_policy": (
            assistant.best_policy, made(base=lambda: x(4).softmax(0), reward=lambda: x(4), beta=0.5)
        ),
        "divergence": (
            assistant.divergence, made(p=lambda: x(4).softmax(0), base=lambda: x(4).flip(0).softmax(0))
        ),
        "best_of_n_divergence": (assistant.best_of_n_divergence, made(n=4)),
        "dpo_loss": (
            assistant.dpo_loss,
            made(chosen=lambda: x(3), rejected=lambda: x(3), ref_chosen=lambda: x(3), ref_rejected=lambda: x(3),
                 beta=0.5),
        ),
        "group_advantages": (assistant.group_advantages, made(rewards=lambda: x(2, 3))),
        # ----------------------------------------------------------------------------------------------------- sampling
        "top_k_filter": (sampling.top_k_filter, made(logits=lambda: x(2, V), k=3)),
        "top_p_filter": (sampling.top_p_filter, made(logits=lambda: x(2, V), p=0.5)),
        "min_p_filter": (sampling.min_p_filter, made(logits=lambda: x(2, V), p=0.5)),
        "penalize_repetition": (
            sampling.penalize_repetition, made(logits=lambda: x(2, V), ids=lambda: ids(2, 3), penalty=1.5)
        ),
        "log_probabilities": (sampling.log_probabilities, made(logits=lambda: x(2, V))),
        "next_token_distribution": (
            sampling.next_token_distribution,
            made(logits=lambda: x(2, V), temperature=0.5, top_k=3, top_p=0.5, min_p=0.1),
        ),
        "sample_next_token": (
            sampling.sample_next_token,
            made(logits=lambda: x(2, V), temperature=0.5, top_k=3, top_p=0.5, min_p=0.1, generator=generator),
        ),
        "generate_simple": (
            sampling.generate_simple,
            made(model=lambda: DECODER, ids=lambda: ids(2, 2), max_new_tokens=2, temperature=0.5, generator=generator),
        ),
        "generate": (
            sampling.generate,
            made(model=lambda: DECODER, ids=lambda: ids(2, 2), max_new_tokens=2, temperature=0.5, top_k=3, top_p=0.5,
                 min_p=0.1, stop=lambda: [1, 2], generator=generator, stream=False, repetition_penalty=1.5,
                 left_padding=lambda: torch.tensor([0, 1]), use_cache=True, progress=False),
        ),
        "generate a translation": (
            sampling.generate,
            made(model=lambda: TRANSLATOR, ids=lambda: ids(2, 1), max_new_tokens=2, stop=3,
                 source_ids=lambda: ids(2, 3), source_mask=lambda: masks.padding_mask([2, 3], 3)),
        ),
        "generate a stream": (
            sampling.generate,
            made(model=lambda: DECODER, ids=lambda: ids(2, 2), max_new_tokens=2, stream=True, generator=generator),
        ),
        "pad_left": (sampling.pad_left, made(prompts=lambda: [[1, 2], [3]], pad_id=0)),
        "stop_ids": (sampling.stop_ids, made(stop=lambda: [1, 2], vocab_size=V)),
        "beam_search": (
            beam.beam_search,
            made(model=lambda: DECODER, ids=lambda: ids(2, 2), max_new_tokens=2, n_beams=2, stop=lambda: [1],
                 length_penalty=0.5, left_padding=lambda: torch.tensor([0, 1]), use_cache=True),
        ),
        "beam_search of a translation": (
            beam.beam_search,
            made(model=lambda: TRANSLATOR, ids=lambda: ids(2, 1), max_new_tokens=2, n_beams=2,
                 source_ids=lambda: ids(2, 3), source_mask=lambda: masks.padding_mask([2, 3], 3)),
        ),
        # --------------------------------------------------------------------------------------------------- pretrained
        "from_hf_state_dict": (
            pretrained.from_hf_state_dict, made(family="gpt2", state_dict=hf_state, config=lambda: dict(hf_config))
        ),
        "load_pretrained": (pretrained.load_pretrained, made(name=lambda: _saved(folder / "saved"))),
        "load_tokenizer": (pretrained.load_tokenizer, made(name=lambda: _saved(folder / "saved"))),
        "load_text": (_load_text, made(name="tinyshakespeare")),
        "save_pretrained": (
            pretrained.save_pretrained, made(folder=lambda: folder / "new", model=lambda: DECODER, tokenizer=words)
        ),
        "embeddings_by_step": (pretrained.embeddings_by_step, made(name="tinytown")),
        "shipped_figures": (pretrained.shipped_figures, made(name="tinytown")),
        # ----------------------------------------------------------------------------------------------------- tinytown
        "Tinytown": (tinytown.Tinytown, made(seed=1)),
        "Tinytown.sample": (tinytown.Tinytown().sample, made(n=1)),
        "Tinytown.log_prob": (tinytown.Tinytown().log_prob, made(story=lambda: tinytown.Tinytown().sample(1)[0])),
        "Tinytown.parse": (tinytown.Tinytown().parse, made(story=lambda: tinytown.Tinytown().sample(1)[0])),
        "Tinytown.next_word": (tinytown.Tinytown().next_word, made(prefix="once there was")),
        "TinytownPairs": (french.TinytownPairs, made(seed=1)),
        "TinytownPairs.sample": (french.TinytownPairs().sample, made(n=1)),
        "TinytownPairs.translate": (french.TinytownPairs().translate, made(english="tom was not happy.")),
        "TinytownPairs.alignment": (french.TinytownPairs().alignment, made(english="tom was not happy.")),
        "split_words": (tinytown.split_words, made(text="a cat sat.")),
        "join_words": (tinytown.join_words, made(words=lambda: ["a", "cat", "."])),
        "WordTokenizer": (tinytown.WordTokenizer, made(words=lambda: ["cat", "dog"])),
        "WordTokenizer.encode": (WORDS.encode, made(text="cat sat", end=False)),
        "WordTokenizer.decode": (WORDS.decode, made(ids=lambda: [1, 3, 5, 2])),
        "WordTokenizer.decode of a tensor": (WORDS.decode, made(ids=lambda: torch.tensor([1, 3, 5, 2]))),
        "WordTokenizer.id": (WORDS.id, made(token="cat")),
        "SubwordTokenizer": (tinytown.SubwordTokenizer, made(tokenizer=lambda: PIECES.tokenizer)),
        "SubwordTokenizer.encode": (PIECES.encode, made(text="a cat", special=True)),
        "SubwordTokenizer.decode": (PIECES.decode, made(ids=lambda: [1, 3, 5, 2], special=True)),
        "SubwordTokenizer.pieces": (PIECES.pieces, made(text="a cat", special=True)),
        "SubwordTokenizer.id": (PIECES.id, made(token="a")),
        "BytePairTokenizer.train": (
            tinytown.BytePairTokenizer.train, made(text="a cat sat", vocab_size=258, special_tokens=lambda: ["<end>"])
        ),
        "BytePairTokenizer.from_files": (tinytown.BytePairTokenizer.from_files, lambda: _gpt2_files(folder)),
        "BytePairTokenizer.encode_iterable": (
            PIECES.encode_iterable, made(texts=lambda: ["a cat", " sat"], block=2)
        ),
        "Batches": (
            tinytown.Batches, made(ids=lambda: ids(20), batch_size=2, T=3, generator=generator, start_id=2)
        ),
        "encode_stories": (
            tinytown.encode_stories, made(stories=lambda: ["cat sat", "dog sat"], tokenizer=lambda: WORDS)
        ),
    }  # fmt: skip


def _traced(model, pattern):
    with trace.trace(model, pattern) as seen, torch.no_grad():
        DECODER(ids(2, 3))
    return seen


def _unused(path):
    path.unlink(missing_ok=True)
    return path


def _nothing(step, model):
    pass


def _with_gradients():
    own = model()
    own(ids(2, 3), ids(2, 3))[1].backward()
    return own


def _saved(folder):
    if not folder.exists():
        pretrained.save_pretrained(folder, DECODER, words())
    return folder


def _load_text(name):
    try:
        return pretrained.load_text(name)
    except ValueError as error:
        if "weights" in str(error):
            return ""  # not fetched
        raise


def _gpt2_files(folder):
    PIECES.tokenizer.model.save(str(folder))
    return {
        "encoder_json": folder / "vocab.json", "vocab_bpe": folder / "merges.txt", "special_tokens": ["<|endoftext|>"]
    }  # fmt: skip


# What an argument is called in an error, where it is not by its name.
ALIASES: dict[str, tuple[str, ...]] = {
    "first": ("mask",), "second": ("mask",), "source_mask": ("mask",), "context_mask": ("mask",),
    "source_ids": ("ids",), "target_ids": ("ids",), "encoded": ("context", "x must have shape", "x: a tensor"),
    "context_cache": ("cache",),
    "a": ("token",), "b": ("token",), "c": ("token",), "index": ("token",), "k": ("top_k",), "p": ("top_p", "min_p"),
    "rotary": ("angles",), "d_head": ("head_dim",), "head_dim": ("d_head",), "values": ("unknown field",),
    "token": ("text",), "stories": ("vocabulary",), "config": ("TransformerConfig",),
    "story": ("text",), "prefix": ("text",), "english": ("text",), "texts": ("text",), "pattern": ("text",),
    "penalty": ("repetition_penalty",), "drawn": ("batch",),
}  # fmt: skip

LAYERS = (
    "*()|*() to a context|*.by_hand|scaled_dot_product_attention|apply_rotary|split_heads|merge_heads|int8_linear|"
    "EncoderDecoder.decode"
)
NO_NUMBERS = "one nan|all nan|one inf|one -inf|all -inf|one of 1e38"
FREE = (
    "0-d|empty|no row|no last|one more dimension|one dimension less|one more last|one less last|one more row|"
    "two rows more|one less second|transposed"
)
# (function, argument, what it is given) -> why it is taken. The first that fits counts.
ACCEPTED: list[tuple[str, str, str, str]] = [
    # ----------------------------------------------------------------------------------------- numbers that are none
    (LAYERS, "x|context|encoded|query|key|value|rotary|angles|score_bias|scale", NO_NUMBERS,
     "a layer passes on what is no number, so that it shows where it began; loss, sampler and loader refuse it"),
    ("*", "x|weight|speeds|logits|p|q|scale|hidden|reward|rewards|chosen|rejected|ref_chosen|ref_rejected",
     "one of 1e38", "a number like another, and the result is finite"),
    ("*", "logits", "one -inf", "−inf forbids a token"),
    ("split_heads|merge_heads", "x", "int64|bool|complex64", "a reshape: nothing is computed"),
    ("slowed|SwiGLU()|GeGLU()|rotary_angles|split_heads|merge_heads|SinusoidalPositions()|LearnedPositions()|"
     "document_mask",
     "x|speeds|positions|document_ids", "on meta",
     "a shape goes in and a shape comes out, as on the meta device it should"),
    # -------------------------------------------------------------------------------------------- shapes and precision
    ("*", "x|weight|speeds|logits|angles|rotary|score_bias|scale|p|q|rewards", "float64|float16", "another precision"),
    ("scaled_dot_product_attention|*()", "score_bias", "int64", "whole numbers are numbers, and become the scores'"),
    ("scaled_dot_product_attention|MultiHeadAttention()*|TransformerBlock()*|EncoderOnly()|EncoderDecoder*|combine",
     "mask|source_mask|context_mask|first|second|score_bias", "0-d|one more dimension|one dimension less|transposed",
     "it broadcasts to the scores in one way alone"),
    ("*", "*mask|first|second", "all False", "a query that may attend to nothing gets zeros"),
    ("*", "x|logits|weight|speeds|query|key|value|ids|target_ids|positions|angles|rotary|q|rewards", FREE,
     "a dimension that the signature leaves free: more or fewer rows, tokens, features or words"),
    ("document_mask", "document_ids", f"{FREE}|one -1|one huge|one -100|one 10,000|int16|uint8",
     "any rows of whole numbers, which are only compared"),
    ("KVCache.select", "rows", FREE, "any rows, any number of them"),
    ("load_balance_loss", "scores", f"{FREE}|float64|float16|on meta",
     "any number of tokens and experts, in any precision; a shape goes in and a shape comes out"),
    ("load_balance_loss", "scores", NO_NUMBERS, "in training, where `train` reports a loss that is no number"),
    ("padding_mask*", "lengths", f"{FREE}|one more|one less|int16|uint8|two numbers of numpy", "a length for each row"),
    ("rotary_angles|*Only()|generate|beam_search|Batches", "positions|left_padding|ids", "int16|uint8",
     "whole numbers, of a smaller type"),
    ("rotary_angles", "positions", "one -1|one huge|one -100|one 10,000", "a rotation by any number of tokens"),
    # -------------------------------------------------------------------------------------------------- ids and tokens
    ("*", "targets", "one -100", "a target of −100 is not predicted"),
    ("Batches|answer_targets", "ids", "one -1|one huge|one -100|one 10,000",
     "it knows no vocabulary: the model refuses such ids"),
    ("int8_linear", "q", "one -1|one huge|one -100|one 10,000", "a number of int8 like another"),
    ("*", "stop", "None|empty|a number|zero|one more|one less|in a list|two numbers of numpy", "ids, or none"),
    ("pad_left|story_losses", "pad_id", "-1|zero|2 ** 40", "the model does not see it, and refuses it if it is no id"),
    ("pad_left|story_losses|add_gradients|encode_stories", "prompts|stories|drawn", "one more|one less", "another row"),
    ("*Tokenizer.decode*", "ids", f"{FREE}|one more|one less|int16|uint8|two numbers of numpy", "ids, any number"),
    ("nearest_tokens|analogy", "index|a|b|c", "zero", "the first row"),
    ("Batches", "start_id", "zero", "an id"),
    # ---------------------------------------------------------------------------------------------------------- numbers
    ("*", "dropout|dropout_p", "zero|tiny|a half", "a probability below 1"),
    ("*", "qk_norm|eps|norm_eps|factor|high|original|low|theta|rope_theta|peak_flops|max_norm|penalty"
     "|repetition_penalty|temperature|weight_decay|beta", "huge|2 ** 40|tiny|a half|zero", "a number in its range"),
    ("best_of_n_divergence", "n", "2 ** 40", "any number of samples"),
    ("train|clip", "max_norm", "None|inf", "gradients are never scaled down"),
    ("*", "top_p|min_p|p|utilization|rotary_share", "tiny|a half", "a share in (0, 1]"),
    ("*", "rope_scaling|scaling", "a huge in it", "a factor of any size"),
    ("make_optimizer", "betas", "a half in it", "a number in [0, 1)"),
    ("learning_rate|train", "step|peak|warmup|total|floor", "inf|zero|huge|2 ** 40|tiny|a half",
     "0 ≤ floor ≤ peak and warmup < total hold; what lies between two steps has a rate too"),
    ("beam_search", "length_penalty", "-1|zero|tiny|a half", "a finite power"),
    ("*", "top_k|n_beams|k|window|checkpoint_every|block|batch_size|chunk|vocab_size", "2 ** 40",
     "more than there are: all of them"),
    ("TransformerConfig*|swiglu_width", "*", "2 ** 40", "a description: what it makes can be counted, if not built"),
    ("*flops*|*bytes*|*memory|training_days", "*", "2 ** 40", "counted, not made"),
    ("TransformerConfig of segments", "n_segments", "zero", "no segments"),
    ("*", "max_new_tokens|cached|n|prefix_len|length", "zero", "none of them"),
    ("Tinytown|TinytownPairs", "seed", "*", "any integer is a seed"),
    ("SwiGLU", "multiple_of", "*", "it is not read where d_ff is given"),
    # -------------------------------------------------------------------------------------------- texts, files, models
    ("*", "text|story|prefix|words|texts|special_tokens|pattern|token|stories",
     "empty|capitals|spaces|the null byte|a word|a list of words|a word in it|one more|one less|bytes",
     "a text like another; what no story says has probability 0"),
    ("*", "checkpoint|path", "a word", "a file of that name in the current folder"),
    ("save_pretrained", "folder", "no such folder|a folder", "it is made, or written into"),
    ("save_checkpoint", "history", "a dictionary", "plain values by name"),
    ("*", "model|linear", "a layer|a list", "any module, or the list of its modules"),
    ("combine|TransformerBlock()|speculate", "first|second|rotary|score_bias|cache|top_k|top_p|min_p", "None",
     "left out, as it may be"),
    ("predicted", "batch", "None in it|one more|one less", "what stands before the targets is not read"),
]  # fmt: skip


def accepted(outcome: Outcome) -> tuple[str, str, str, str] | None:
    """The row of ACCEPTED that has a reason for this outcome."""
    for row in ACCEPTED:
        given = zip((outcome.function, outcome.argument, outcome.label), row)
        if all(any(fnmatchcase(name, pattern) for pattern in patterns.split("|")) for name, patterns in given):
            return row
    return None


def judged(folder: Path, names: Collection[str] | None = None) -> tuple[dict[str, Counter], list[Outcome], list[tuple]]:
    """Counts by function and kind, the outcomes that may not be, and the rows of ACCEPTED that nothing needed."""
    counts: dict[str, Counter] = {}
    found, used = [], set()
    with bounded():
        for name, (function, arguments) in specs(folder).items():
            for outcome in verdicts(name, function, arguments, ALIASES) if names is None or name in names else ():
                kind = outcome.kind
                if kind in ("value", "silent") and (row := accepted(outcome)):
                    kind = "accepted"
                    used.add(row)
                counts.setdefault(name, Counter())[kind] += 1
                if kind in ("value", "silent", "raw"):
                    found.append(outcome)
    return counts, found, [row for row in ACCEPTED if row not in used]


def test_what_strangers_found_first_is_refused(tmp_path, monkeypatch, as_a_learner):
    """Ids on meta that came back as what memory held, a bias that took forever, NaN for a loss, numpy's numbers."""
    monkeypatch.chdir(tmp_path)
    names = ("TokenEmbedding()", "alibi_bias", "next_token_loss")
    counts, found, _ = judged(tmp_path, names)
    assert set(counts) == set(names)
    assert not found, "\n".join(map(str, found))


def test_numpys_numbers_in_a_config_are_plain_ones_in_its_file(as_a_learner):
    sizes = {name: np.int64(size) for name, size in TINY.items()}
    assert json.loads(json.dumps(TransformerConfig(**sizes, dropout=np.float32(0.5)).to_dict()))["dropout"] == 0.5
    assert TransformerConfig(**sizes) == tiny()


def test_a_layer_that_fails_says_what_it_was_given_and_what_it_needs():
    with pytest.raises(ValueError, match=r"weights like .*\(16, 4\), torch.float32.* x: .*\(2, 4\), torch.float64"):
        feed_forward.FeedForward(4)(x(2, 4).double())


def test_an_error_of_anothers_in_a_layer_stays_as_it_is():
    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    layer = feed_forward.FeedForward(4)
    layer.up_proj.register_forward_hook(stop)
    with pytest.raises(Stopped):
        layer(x(2, 4))


@pytest.mark.proof
def test_bad_input_gives_a_clear_error_or_a_value_that_has_a_reason(tmp_path, capsys, monkeypatch, as_a_learner):
    monkeypatch.chdir(tmp_path)
    counts, found, unused = judged(tmp_path)
    total: Counter = Counter()
    for each in counts.values():
        total.update(each)
    kinds = ("clear", "same", "accepted", "value", "silent", "raw")
    with capsys.disabled():
        print(f"\n{'':<42}{'calls':>7}" + "".join(f"{kind:>10}" for kind in kinds))
        for name, each in [*counts.items(), ("all", total)]:
            print(f"{name:<42}{each.total():>7}" + "".join(f"{each[kind]:>10}" for kind in kinds))
    assert not found, "\n".join(map(str, found))
    assert unused == [], "nothing needs these any more"
