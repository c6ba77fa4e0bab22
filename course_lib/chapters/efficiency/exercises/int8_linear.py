import torch

from course_lib.grading.exercise import Case, generator, stage


def int8_linear(x, q, scale):
    """Return y (…, O) for x (…, I), from integers q (O, I) and a scale per row (O,)."""
    return x @ q.to(x.dtype).T * scale.to(x.dtype)


def drawn(seed, shape, outputs, dtype=torch.float32, of_the_scale=torch.float32, step=0.01):
    rng = generator(seed)
    q = torch.randint(-127, 128, (outputs, shape[-1]), generator=rng).to(torch.int8)
    scale = step * (1 + 5 * torch.rand(outputs, generator=rng, dtype=torch.float64))
    return Case(torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype), q, scale.to(of_the_scale))


@stage
def one_token(seed):
    "A single token: one that you can compute on paper, and a random one."
    paper = torch.tensor([1.0, 2.0]), torch.tensor([[127, -50]], dtype=torch.int8), torch.tensor([0.02])
    return [Case(*paper), drawn(seed, (5,), 3)]


@stage
def square_matrices(seed):
    "The same number of outputs, inputs and tokens: mistakes have the right shape, but wrong numbers."
    return [drawn(seed + 1, (3, 3), 3), drawn(seed + 2, (4, 4), 4)]


@stage
def batches(seed):
    "Any number of axes before the last, different sizes, and a very small scale."
    small = drawn(seed + 7, (3, 4), 1, step=1e-5)
    return [small, drawn(seed + 3, (2, 3, 5), 4), drawn(seed + 4, (2, 1, 3, 6), 5)]


@stage
def other_dtypes(seed):
    "float64, and a scale with a different dtype from x: the result has the dtype of x."
    half = drawn(seed + 5, (2, 4), 3, torch.float64)
    return [half, drawn(seed + 6, (3, 2), 3, torch.float32, torch.float64)]
