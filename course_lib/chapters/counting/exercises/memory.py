import torch

from course_lib.grading.exercise import Case, generator, stage


def training_bytes(n_params, mixed_precision=False):
    """Return the bytes of weights, gradients, 8-bit moments and, in mixed precision,
    the master copy."""
    compute = 2 if mixed_precision else 4
    weights = gradients = compute * n_params
    moments = 2 * 1 * n_params  # two, of one byte each
    master_copy = 4 * n_params if mixed_precision else 0
    return weights + gradients + moments + master_copy


GPT2_TABLE, GPT2_POSITIONS = 50257 * 768, 1024 * 768


BASE_ATTENTION = 4 * (768 * 768 + 768)  # one layer of GPT-2 small, and of BERT-base


BASE_FFN = 768 * 3072 + 3072 + 3072 * 768 + 768


BASE_NORM = 2 * 768


BASE_BLOCK = BASE_ATTENTION + BASE_FFN + 2 * BASE_NORM


GPT2_TOTAL = GPT2_TABLE + GPT2_POSITIONS + 12 * BASE_BLOCK + BASE_NORM


LLAMA_TABLE = 32000 * 4096


LLAMA_MATRIX = 4096 * 11008  # one of the feed-forward's


LLAMA_TOTAL = 2 * LLAMA_TABLE + 32 * (4 * 4096**2 + 3 * LLAMA_MATRIX + 2 * 4096) + 4096


@stage
def one_parameter(seed):
    "A single parameter, trained in float32."
    return [Case(1), Case(1, False)]


@stage
def one_parameter_mixed(seed):
    "A single parameter, trained in mixed precision."
    return [Case(1, True)]


@stage
def whole_models(seed):
    "A whole model in either precision: of random size, GPT-2 small or LLaMA-7B."
    sizes = [int(torch.randint(2, 10**6, (), generator=generator(seed))), GPT2_TOTAL, LLAMA_TOTAL]
    return [Case(size, mixed) for size in sizes for mixed in (False, True)]
