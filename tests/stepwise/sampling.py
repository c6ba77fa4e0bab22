import torch

INF = float("inf")


def temperature_softmax(logits, temperature):
    return greedy(logits) if temperature == 0 else (logits / temperature).softmax(-1)


def greedy(logits):
    """All probability on the largest logit of each row."""
    return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)


def top_k_filter(logits, k):
    """Tokens that tie with the k-th are kept."""
    return logits.masked_fill(logits < kth_largest(logits, k), -INF)


def kth_largest(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]


def top_p_filter(logits, p):
    return nucleus(logits, p)


def nucleus(logits, p, *, drop=lambda q, total, p: total - q >= p, first_stays=True, descending=True, fill=-INF):
    """Top-p whose parts can be replaced: q are the sorted probabilities, total their running sum, q itself included."""
    q, order = logits.softmax(-1).sort(dim=-1, descending=descending, stable=True)
    dropped = drop(q, q.cumsum(-1), p)
    if first_stays:
        dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), fill)


def draw_with(
    logits,
    temperature,
    top_k,
    top_p,
    generator,
    *,
    heat=temperature_softmax,
    keep_k=top_k_filter,
    keep_p=top_p_filter,
    choose=lambda probabilities, generator: torch.multinomial(probabilities, 1, generator=generator).squeeze(-1),
):
    """Temperature, top-k, top-p, draw: each step can be replaced."""
    logits = heat(logits, temperature).log()
    if top_k is not None:
        logits = keep_k(logits, top_k)
    if top_p is not None:
        logits = keep_p(logits, top_p)
    return choose(logits.softmax(-1), generator)


def draw(logits, temperature, generator):
    """(B, V) -> (B,)"""
    return draw_with(logits, temperature, None, None, generator)
