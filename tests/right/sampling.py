"""Right answers of chapter 13 in other styles."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from course_lib import sampling as library


def temperature_of_the_library(logits, temperature):
    return library.next_token_distribution(logits, temperature)


def temperature_by_one_hot(logits, temperature):
    if not temperature:
        return nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits)
    return torch.exp(torch.log_softmax(logits.div(temperature), -1))


def temperature_in_numpy(logits, temperature):
    x = logits.numpy()
    if temperature == 0:
        return np.eye(x.shape[-1], dtype=x.dtype)[x.argmax(-1)]
    e = np.exp((x - x.max(-1, keepdims=True)) / x.dtype.type(temperature))
    return e / e.sum(-1, keepdims=True)


def temperature_in_float32(logits, temperature):
    """float32 inside; a temperature of almost 0 for 0."""
    return torch.softmax(logits.float() / max(temperature, 1e-9), dim=-1, dtype=torch.float32).to(logits.dtype)


def top_k_of_the_library(logits, k):
    return library.top_k_filter(logits, k)


def top_k_by_scatter(logits, k):
    values, places = logits.topk(min(k, logits.size(-1)))
    return torch.full_like(logits, -torch.inf).scatter_(-1, places, values)


def top_k_by_sorting(logits, k):
    ranks = logits.argsort(-1, descending=True).argsort(-1)
    return torch.where(ranks < k, logits, -torch.inf)


def top_p_of_the_library(logits, p):
    return library.top_p_filter(logits, p)


def top_p_by_loops(logits, p):
    out = torch.full_like(logits, -torch.inf)
    for row, kept in zip(logits.reshape(-1, logits.shape[-1]), out.view(-1, logits.shape[-1])):
        probabilities, total = row.softmax(0), 0.0
        for token in row.argsort(descending=True).tolist():
            kept[token] = row[token]
            total += float(probabilities[token])
            if total >= p:
                break
    return out


def top_p_by_double_argsort(logits, p):
    order = logits.argsort(-1, descending=True)
    q = logits.softmax(-1).gather(-1, order)
    before = q.cumsum(-1).roll(1, -1)
    before[..., 0] = -1.0
    return logits.masked_fill((before >= p).gather(-1, order.argsort(-1)), -torch.inf)


def next_token_of_the_library(logits, temperature, top_k, top_p, generator):
    return library.sample_next_token(logits, temperature, top_k, top_p, generator=generator)


def next_token_by_race(logits, temperature, top_k, top_p, generator):
    """Divides each probability by an exponential draw: the largest quotient wins as often as it is probable."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    logits = top_k_by_scatter(logits, top_k or logits.shape[-1])
    logits = top_p_by_double_argsort(logits, 1.0 if top_p is None else top_p)
    return (logits.softmax(-1) / torch.empty_like(logits).exponential_(generator=generator)).argmax(-1)


def next_token_by_thresholds(logits, temperature, top_k, top_p, generator):
    """One uniform draw per row, looked up in the running sum."""
    if temperature == 0:
        return logits.argmax(-1)
    q = logits / temperature
    q = q if top_k is None else top_k_by_scatter(q, top_k)
    q = q if top_p is None else top_p_by_double_argsort(q, top_p)
    edges = q.softmax(-1).cumsum(-1)
    draws = torch.rand(len(q), 1, generator=generator) * edges[:, -1:]
    return torch.searchsorted(edges, draws, right=True).squeeze(1).clamp(max=q.shape[-1] - 1)


def next_token_row_by_row(logits, temperature, top_k, top_p, generator):
    """A loop over rows, each with its own candidates in a list, the most probable first."""
    ids = []
    for row in logits:
        if temperature == 0:
            ids.append(int(torch.argmax(row)))
            continue
        kept, order = torch.sort(torch.softmax(row / temperature, dim=-1), descending=True)
        if top_k is not None:
            kept = kept[:top_k] / kept[:top_k].sum()
        if top_p is not None:
            enough = next((n for n in range(1, len(kept)) if kept[:n].sum() >= top_p), len(kept))
            kept = kept[:enough] / kept[:enough].sum()
        ids.append(int(order[torch.multinomial(kept, num_samples=1, generator=generator)]))
    return torch.tensor(ids)


class Adapted(nn.Module):
    """An exercise's model with the configuration that the library's `generate` reads."""

    def __init__(self, model, max_seq_len):
        super().__init__()
        self.model = model
        vocab_size = model(torch.zeros(1, 1, dtype=torch.int64)).shape[-1]
        self.config = SimpleNamespace(vocab_size=vocab_size, max_seq_len=max_seq_len)

    def forward(self, ids):
        return self.model(ids)


def generate_of_the_library(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    adapted = Adapted(model, max_seq_len)
    return library.generate(adapted, ids, max_new_tokens, temperature=temperature, generator=generator)


def generate_into_a_buffer(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    B, T = ids.shape
    text = torch.cat([ids, ids.new_zeros(B, max_new_tokens)], 1)
    for t in range(T, T + max_new_tokens):
        logits = model(text[:, max(0, t - max_seq_len) : t])[:, -1]
        text[:, t] = next_token_by_race(logits, temperature, None, None, generator)
    return text


def compare_of_the_library(model, ids, n_tokens, temperatures, generator):
    distinct, likelihood = [], []
    for temperature in temperatures:
        text = library.generate(model, ids, n_tokens, temperature=temperature, generator=generator)
        new = text[:, ids.shape[1] :]
        before = [text[:, : ids.shape[1] + i][:, -model.config.max_seq_len :] for i in range(n_tokens)]
        logits = torch.stack([model(seen)[:, -1] for seen in before], 1)  # (B, n, V)
        distinct.append(len(set(new.flatten().tolist())))
        likelihood.append(-nn.functional.cross_entropy(logits.flatten(0, 1), new.flatten()))
    return torch.tensor(distinct), torch.stack(likelihood)


def compare_with_a_buffer(model, ids, n_tokens, temperatures, generator):
    results = []
    for temperature in temperatures:
        text = generate_into_a_buffer(model, ids, n_tokens, model.config.max_seq_len, temperature, generator)
        seen = range(ids.shape[1], text.shape[1])
        logits = [model(text[:, max(0, t - model.config.max_seq_len) : t])[:, -1:] for t in seen]  # (B, 1, V) each
        new = text[:, -n_tokens:]
        log_p = torch.cat(logits, 1).log_softmax(-1).gather(2, new[..., None])
        results.append((np.unique(new.numpy()).size, log_p.mean().item()))
    return [list(part) for part in zip(*results)]


RIGHT = {
    "sampling.temperature": [
        temperature_by_one_hot,
        temperature_in_numpy,
        temperature_in_float32,
    ],
    "sampling.top_k": [top_k_by_scatter, top_k_by_sorting],
    "sampling.top_p": [top_p_by_loops, top_p_by_double_argsort],
    "sampling.next_token": [
        next_token_by_race,
        next_token_by_thresholds,
        next_token_row_by_row,
    ],
    "sampling.generate": [generate_into_a_buffer],
    "sampling.compare": [compare_of_the_library, compare_with_a_buffer],
}
OF_THE_LIBRARY = {
    "sampling.temperature": [temperature_of_the_library],
    "sampling.top_k": [top_k_of_the_library],
    "sampling.top_p": [top_p_of_the_library],
    "sampling.next_token": [next_token_of_the_library],
    "sampling.generate": [generate_of_the_library],
}
