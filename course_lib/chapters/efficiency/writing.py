"""Chapter 14's generation loop, which counts the tokens and the weights that it reads."""

import torch
from torch import Tensor

from course_lib.config import TransformerConfig
from course_lib.counting import count_parameters
from course_lib.gpt import DecoderOnly
from course_lib.sampling import generate


def weights_read(config: TransformerConfig) -> int:
    """Return how many weights a step of generation reads: all, except tables from which it reads only one row per
    text."""
    count = count_parameters(config)
    looked_up = count.by_component["position embedding"] + config.vocab_size * config.d_model * (not config.tie_weights)
    return count.total - looked_up


def write_and_count(model: DecoderOnly, prompt: Tensor, n: int, stop: int, use_cache: bool) -> tuple[Tensor, int]:
    """Continue a prompt (1, T) by at most n tokens, always the most probable. Return the ids, and the number of tokens
    that the model read in all calls together.
    """
    given: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].shape[1]))
    try:
        with torch.no_grad():
            ids = generate(model, prompt, n, temperature=0, stop=stop, use_cache=use_cache)
    finally:
        hook.remove()
    assert isinstance(ids, Tensor)
    return ids, sum(given)
