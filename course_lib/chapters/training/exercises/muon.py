import torch

from course_lib.grading.exercise import Case, generator, stage


def muon_step(W, gradient, momentum, lr, beta=0.95):
    """Return W after one step of Muon, and the new momentum: (rows, columns) each."""
    rows, columns = W.shape
    momentum = beta * momentum + gradient
    X = gradient + beta * momentum  # Nesterov's momentum
    if rows > columns:
        X = X.T  # the smaller of the two products X Xᵀ and Xᵀ X
    X = X / X.norm().clamp(min=1e-7)
    for _ in range(5):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    if rows > columns:
        X = X.T
    return W - lr * max(1, rows / columns) ** 0.5 * X, momentum


def drawn(rng, rows, columns, beta=0.0, dtype=torch.float32):
    """Return random W, gradient and momentum. The momentum is 0 if beta is 0. No singular value of the sum that makes
    the step is very small, where five rounds would enlarge the rounding."""
    while True:
        W, gradient, momentum = torch.randn(3, rows, columns, generator=rng, dtype=dtype)
        momentum = 3 * momentum if beta else torch.zeros_like(W)
        singular = torch.linalg.svdvals(gradient + beta * (beta * momentum + gradient))
        if singular.min() > 0.05 * singular.norm():
            return W, gradient, momentum


@stage
def one_row(seed):
    "A single row, without earlier momentum: the example by hand, and another."
    rng = generator(seed)
    by_hand = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2)
    small = torch.randn(1, 3, generator=rng), 0.1 * torch.rand(1, 3, generator=rng) + 0.05, torch.zeros(1, 3)
    return [Case(*by_hand, 0.1, 0.5), Case(*small, 0.2, 0.9)]


@stage
def square_and_wide(seed):
    "Square and wide matrices, without earlier momentum."
    rng = generator(seed)
    return [Case(*drawn(rng, rows, columns), 0.5, 0.9) for rows, columns in ((2, 2), (2, 3), (3, 3), (3, 7))]


@stage
def with_momentum(seed):
    "With the momentum of earlier steps."
    rng = generator(seed)
    return [
        Case(*drawn(rng, rows, columns, beta), 0.3, beta)
        for rows, columns, beta in ((1, 2, 0.5), (2, 2, 0.9), (3, 5, 0.7))
    ]


@stage
def tall(seed):
    "More rows than columns."
    rng = generator(seed)
    return [
        Case(*drawn(rng, rows, columns, beta), 0.3, beta)
        for rows, columns, beta in ((4, 1, 0.5), (3, 2, 0.9), (9, 4, 0.8))
    ]


@stage
def without_beta(seed):
    "Without beta in the call: it is 0.95."
    rng = generator(seed)
    return [Case(*drawn(rng, 2, 3, 0.95), 0.2), Case(*drawn(rng, 5, 3, 0.95), 0.02)]


@stage
def nothing_to_do(seed):
    "Gradient and momentum are 0, so W stays as it is."
    rng = generator(seed)
    return [
        Case(torch.randn(rows, columns, generator=rng), *torch.zeros(2, rows, columns), 0.1, 0.9)
        for rows, columns in ((2, 3), (3, 2))
    ]


@stage
def stepped_views(seed):
    "Transposed views of other tensors."
    parts = drawn(generator(seed), 3, 4, 0.9)
    return [Case(*(part.T.contiguous().T for part in parts), 0.3, 0.9)]


@stage
def stepped_double(seed):
    "float64 in, float64 out, with a large gradient."
    rng = generator(seed)
    return [
        Case(W, 1000 * gradient, 1000 * momentum, 0.3, 0.9)
        for W, gradient, momentum in (
            drawn(rng, 3, 4, 0.9, torch.float64),
            drawn(rng, 5, 2, 0.9, torch.float64),
        )
    ]
