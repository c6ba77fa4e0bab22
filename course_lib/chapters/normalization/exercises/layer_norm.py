import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def layer_norm(x, gamma, beta, eps):
    """Return (x − mean) / √(variance + eps) · gamma + beta for each token.
    x: (..., d_model); the result has the same shape and dtype."""
    centred = x - x.mean(dim=-1, keepdim=True)  # (..., d_model)
    variance = centred.pow(2).mean(dim=-1, keepdim=True)  # (..., 1), divided by d_model
    return centred / torch.sqrt(variance + eps) * gamma + beta


def drawn_token(rng, *shape, dtype=torch.float32):
    """Return random x, gamma, beta. No gain is 1 and no shift is 0."""
    x = 2 * torch.randn(shape, generator=rng, dtype=dtype) + 1
    gamma = 0.5 + torch.rand(shape[-1], generator=rng, dtype=dtype)
    beta = torch.randn(shape[-1], generator=rng, dtype=dtype)
    return x, gamma, beta


@stage
def the_pencil_token(seed):
    "The token of the chapter, [10, 20, 30, 40]: mean 25, variance 125."
    x = torch.tensor([10.0, 20.0, 30.0, 40.0])
    gamma, beta = torch.tensor([1.0, 2.0, 0.5, 1.5]), torch.tensor([0.0, 1.0, -0.5, 0.0])
    return [Case(x, torch.ones(4), torch.zeros(4), 1e-6), Case(x, gamma, beta, 1e-6)]


@stage
def many_tokens(seed):
    "Any leading axes: each token is normalized separately."
    rng = generator(seed)
    x, gamma, beta = drawn_token(rng, 5, 4, 3)
    return [
        Case(*drawn_token(rng, 3, 5), 1e-5),
        Case(*drawn_token(rng, 1, 4), 1e-5),
        Case(*drawn_token(rng, 4, 4), 1e-5),
        Case(*drawn_token(rng, 2, 3, 7), 1e-5),
        Case(*drawn_token(rng, 3, 3, 3), 1e-5),
        Case(*drawn_token(rng, 2, 2, 3, 6), 1e-5),
        Case(x.transpose(0, 1), gamma, beta, 1e-5),
    ]


@stage
def quiet_and_loud(seed):
    "Variances of all sizes: compared with them, eps is large, similar or negligible."
    rng = generator(seed)
    x, gamma, beta = drawn_token(rng, 6)
    return [
        Case(x * 1e-3, gamma, beta, 1e-6),
        Case(x, gamma, beta, 0.5),
        Case(x * 2e4, gamma, beta, 1e-5),
        Case(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), 3.0),
    ]


@stage
def equal_features(seed):
    "Tokens whose features are all equal: after centring they are 0, so the result is β. eps prevents 0 / 0."
    _, gamma, beta = drawn_token(generator(seed), 4)
    return [Case(torch.full((4,), 8.0), gamma, beta, 1e-5), Case(torch.zeros(2, 4), gamma, beta, 1e-5)]


@stage
def far_from_zero(seed):
    "Tokens whose features are near 5,000 and differ by a few units: subtract first, then square."
    rng = generator(seed)
    _, gamma, beta = drawn_token(rng, 8)
    steps = torch.randint(-8, 9, (4, 8), generator=rng).float()
    return [Case(5001.0 + steps, gamma, beta, 1e-5)]


@stage
def double_norm(seed):
    "float64 in, float64 out."
    return [Case(*drawn_token(generator(seed), 2, 3, 5, dtype=torch.float64), 1e-5)]


def judge(case, expected, got):
    """Allow for PyTorch's kernel, which computes x · a − mean · a and, near 5,000, loses digits in float32."""
    return compare(expected, got, atol=1e-3 if 1e3 < case.args[0].abs().max() < 1e4 else None)
