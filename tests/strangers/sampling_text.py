"""Right answers in the manner of others, chapter 13: the draw, the loop that writes, and what it wrote."""

import math

import torch
import torch.nn.functional as F

from tests.strangers.sampling import (
    by_the_kth_value,
    by_the_probability_of_the_last,
    from_the_small_end,
    with_a_filter_value,
)

# --- the next token ---------------------------------------------------------------------------------------------------


def nanos_next(logits, temperature, top_k, top_p, generator):
    """nanoGPT with a nucleus."""
    if temperature == 0:
        return torch.topk(logits, k=1, dim=-1)[1].squeeze(-1)
    logits = logits / temperature
    if top_k is not None:
        v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
        logits[logits < v[:, [-1]]] = -float("Inf")
    if top_p is not None:
        logits = from_the_small_end(logits, top_p)
    probs = F.softmax(logits, dim=-1)
    idx_next = torch.multinomial(probs, num_samples=1, generator=generator)
    return idx_next.view(-1)


class Warper:
    """transformers: what is to be done with scores, one thing after another."""

    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, scores):
        for step in self.steps:
            scores = step(scores)
        return scores


def by_a_list_of_warpers(scores, temperature, top_k, top_p, generator):
    if temperature == 0:
        return scores.argmax(-1)
    warpers = [lambda s: s.div(temperature)]
    if top_k is not None:
        warpers.append(lambda s: with_a_filter_value(s, top_k))
    if top_p is not None:
        warpers.append(lambda s: from_the_small_end(s, top_p))
    probs = Warper(*warpers)(scores).softmax(dim=-1)
    return torch.multinomial(probs, num_samples=1, generator=generator).squeeze(1)


def on_sorted_probabilities(logits, temperature, top_k, top_p, generator):
    """llama: everything on sorted probabilities, and the draw is a rank that is looked up."""
    if temperature > 0:
        probs, idx = torch.softmax(logits / temperature, dim=-1).sort(dim=-1, descending=True)
        if top_k is not None:
            probs[:, top_k:] = 0.0
            probs.div_(probs.sum(dim=-1, keepdim=True))
        if top_p is not None:
            mask = probs.cumsum(dim=-1) - probs > top_p
            probs[mask] = 0.0
            probs.div_(probs.sum(dim=-1, keepdim=True))
        next_token = torch.multinomial(probs, num_samples=1, generator=generator)
        next_token = torch.gather(idx, -1, next_token)
    else:
        next_token = torch.argmax(logits, dim=-1)
    return next_token.reshape(-1)


def by_gumbel_noise(logits, temperature, top_k, top_p, generator):
    """JAX: categorical is the argmax of logits and Gumbel noise."""
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    logits = logits if top_k is None else by_the_kth_value(logits, top_k)
    logits = logits if top_p is None else by_the_probability_of_the_last(logits, top_p)
    u = torch.rand(logits.shape, generator=generator).clamp(min=1e-20)
    return (logits - torch.log(-torch.log(u))).argmax(-1)


def wheel_of_every_row(logits, temperature, top_k, top_p, generator):
    """A beginner's wheel of fortune: rows in a loop, Python's lists, one random number for each."""
    ids = []
    for row in logits.tolist():
        candidates = sorted(((x, i) for i, x in enumerate(row)), reverse=True)
        if temperature == 0:
            ids.append(candidates[0][1])
            continue
        candidates = candidates[: top_k or len(row)]
        top = candidates[0][0]
        weights = [math.exp((x - top) / temperature) for x, _ in candidates]
        if top_p is not None:
            total, so_far, kept = sum(weights), 0.0, 0
            while so_far < top_p * total and kept < len(weights):
                so_far += weights[kept]
                kept += 1
            weights = weights[:kept]
        spot = torch.rand((), generator=generator, dtype=torch.float64).item() * sum(weights)
        chosen = 0
        while chosen < len(weights) - 1 and spot >= weights[chosen]:
            spot -= weights[chosen]
            chosen += 1
        ids.append(candidates[chosen][1])
    return torch.tensor(ids)


# --- text -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def nanos_generate(model, idx, max_new_tokens, block_size, temperature, generator):
    """nanoGPT."""
    for _ in range(max_new_tokens):
        idx_cond = idx if idx.size(1) <= block_size else idx[:, -block_size:]
        logits = model(idx_cond)
        logits = logits[:, -1, :]
        if temperature == 0.0:
            idx_next = logits.argmax(dim=-1, keepdim=True)
        else:
            probs = F.softmax(logits / temperature, dim=-1)
            idx_next = torch.multinomial(probs, num_samples=1, generator=generator)
        idx = torch.cat((idx, idx_next), dim=1)
    return idx


def into_a_board_of_pads(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """llama: the whole text is laid out beforehand, with −1 where nothing has been written."""
    bsz, prompt_len = ids.shape
    total_len = prompt_len + max_new_tokens
    tokens = torch.full((bsz, total_len), -1, dtype=torch.long)
    tokens[:, :prompt_len] = ids
    with torch.inference_mode():
        for cur_pos in range(prompt_len, total_len):
            logits = model(tokens[:, max(cur_pos - max_seq_len, 0) : cur_pos])
            if temperature > 0:
                probs = torch.softmax(logits[:, -1] / temperature, dim=-1)
                next_token = torch.multinomial(probs, num_samples=1, generator=generator)
            else:
                next_token = torch.argmax(logits[:, -1], dim=-1)
            tokens[:, cur_pos] = next_token.reshape(-1)
    return tokens


def by_recursion(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    if max_new_tokens == 0:
        return ids
    scores = model(ids[..., -max_seq_len:])[..., -1, :]
    if temperature == 0:
        chosen = scores.max(dim=-1).indices
    else:
        noise = -torch.log(torch.empty_like(scores).exponential_(generator=generator))
        chosen = (scores / temperature + noise).argmax(dim=-1)
    longer = torch.hstack([ids, chosen[:, None]])
    return by_recursion(model, longer, max_new_tokens - 1, max_seq_len, temperature, generator)


def text_after_text(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """A loop over the texts, and in each over its tokens, in lists."""
    texts = []
    for prompt in ids.tolist():
        text = list(prompt)
        for _ in range(max_new_tokens):
            logits = model(torch.tensor([text[-max_seq_len:]]))[0, -1]
            if temperature == 0:
                text.append(int(logits.argmax()))
            else:
                p = torch.softmax(logits / temperature, dim=0)
                text.append(int(torch.multinomial(p, 1, generator=generator)))
        texts.append(text)
    return torch.tensor(texts)


def with_a_column_of_draws(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """NumPy-minded: one uniform number for each row and token, drawn beforehand, and a running sum."""
    u = torch.rand(len(ids), max_new_tokens, generator=generator, dtype=torch.float64)
    text = [*ids.unbind(1)]
    for step in range(max_new_tokens):
        logits = model(torch.stack(text[-max_seq_len:], dim=1))[:, -1].double()
        if temperature == 0:
            text.append(logits.argmax(1))
        else:
            edges = torch.softmax(logits / temperature, 1).cumsum(1)
            text.append((u[:, step, None] > edges[:, :-1]).sum(1))
    return torch.stack(text, dim=1)


# --- likelihood and diversity -----------------------------------------------------------------------------------------


def compared_while_drawing(model, ids, n_tokens, temperatures, generator):
    """The likelihood is noted at once, when the token is drawn."""
    block_size = model.config.max_seq_len
    distinct, likelihood = [], []
    for temperature in temperatures:
        idx, logprobs = ids, []
        for _ in range(n_tokens):
            logits = model(idx[:, -block_size:])[:, -1, :]
            if temperature == 0:
                idx_next = logits.argmax(dim=-1, keepdim=True)
            else:
                idx_next = torch.multinomial(F.softmax(logits / temperature, dim=-1), 1, generator=generator)
            logprobs.append(F.log_softmax(logits, dim=-1).gather(1, idx_next))
            idx = torch.cat((idx, idx_next), dim=1)
        distinct.append(idx[:, ids.size(1) :].unique().numel())
        likelihood.append(torch.cat(logprobs, dim=1).mean())
    return distinct, likelihood


def compared_by_losses(model, ids, n_tokens, temperatures, generator):
    """Generate, then the mean cross-entropy of each new token, with its sign turned."""
    window, start = model.config.max_seq_len, ids.shape[1]
    rows = {"distinct": [], "likelihood": []}
    for temperature in temperatures:
        text = into_a_board_of_pads(model, ids, n_tokens, window, temperature, generator)
        losses = [
            F.cross_entropy(model(text[:, max(0, end - window) : end])[:, -1], text[:, end])
            for end in range(start, start + n_tokens)
        ]
        rows["distinct"].append(len({token for row in text[:, start:].tolist() for token in row}))
        rows["likelihood"].append(-float(torch.stack(losses).mean()))
    return tuple(rows.values())


def compared_text_by_text(model, ids, n_tokens, temperatures, generator):
    """A loop over temperatures, texts and tokens, which draws and judges one token at a time."""
    window = model.config.max_seq_len
    distinct, likelihood = [], []
    for temperature in temperatures:
        different, total = set(), 0.0
        for prompt in ids.tolist():
            text = list(prompt)
            for _ in range(n_tokens):
                logits = model(torch.tensor([text[-window:]]))[0, -1]
                if temperature == 0:
                    token = int(logits.argmax())
                else:
                    token = int(torch.multinomial(torch.softmax(logits / temperature, 0), 1, generator=generator))
                total += float(F.log_softmax(logits, dim=0)[token])
                text.append(token)
            different.update(text[len(prompt) :])
        distinct.append(len(different))
        likelihood.append(total / (len(ids) * n_tokens))
    return distinct, likelihood


STRANGERS = {
    "sampling.next_token": [
        nanos_next,
        by_a_list_of_warpers,
        on_sorted_probabilities,
        by_gumbel_noise,
        wheel_of_every_row,
    ],
    "sampling.generate": [
        nanos_generate,
        into_a_board_of_pads,
        by_recursion,
        text_after_text,
        with_a_column_of_draws,
    ],
    "sampling.compare": [compared_while_drawing, compared_by_losses, compared_text_by_text],
}
