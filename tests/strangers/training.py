"""Right answers in the manner of others, chapter 12: the loss, batches and schedules of well-known codebases."""

import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# --- the loss ---------------------------------------------------------------------------------------------------------


def loss_in_one_line(logits, targets, ignore_index=-100):
    """nanoGPT."""
    return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=ignore_index)


def loss_by_a_padding_mask(logits, target, ignore_index=-100):
    """fairseq: lprobs, a pad mask that fills zeros in, and a count."""
    lprobs = F.log_softmax(logits, dim=-1)
    target = target.unsqueeze(-1)
    pad_mask = target.eq(ignore_index)
    nll_loss = -lprobs.gather(dim=-1, index=target.masked_fill(pad_mask, 0))
    nll_loss.masked_fill_(pad_mask, 0.0)
    return nll_loss.sum() / (~pad_mask).sum()


def loss_with_upcast(logits, labels, ignore_index=-100):
    """transformers: logits go up to float32, and the loss comes back in the dtype that came."""
    dtype = logits.dtype
    logits = logits.float().reshape(-1, logits.shape[-1])
    labels = labels.reshape(-1)
    loss_fct = nn.CrossEntropyLoss(ignore_index=ignore_index)
    return loss_fct(logits, labels).to(dtype)


def loss_of_parallel_parts(vocab_parallel_logits, target, ignore_index=-100):
    """Megatron: the maximum goes off in place on a copy, the exps are summed, the target's logit is picked before."""
    shape = vocab_parallel_logits.shape
    logits_2d = vocab_parallel_logits.clone().reshape(-1, shape[-1])
    masked_target_1d = target.clone().reshape(-1)
    target_mask = masked_target_1d == ignore_index
    masked_target_1d[target_mask] = 0
    logits_2d -= logits_2d.max(dim=-1).values.unsqueeze(-1)
    predicted_logits = logits_2d[torch.arange(logits_2d.size(0)), masked_target_1d]
    sum_exp_logits = logits_2d.exp_().sum(dim=-1)
    losses = torch.log(sum_exp_logits) - predicted_logits
    return torch.where(target_mask, torch.zeros_like(losses), losses).sum() / target_mask.logical_not().sum()


def loss_by_where(logits, labels, ignore_index=-100):
    """optax: one-hot labels and a mask of weights; where instead of a product, for 0 · −inf."""
    vocab = torch.arange(logits.shape[-1])
    hot = labels[..., None] == vocab
    weights = (labels != ignore_index).type(torch.float32)
    log_normalizers = torch.logsumexp(logits, dim=-1)
    label_logits = torch.where(hot, logits, torch.zeros(())).sum(-1)
    per_token = log_normalizers - label_logits
    return torch.where(weights > 0, per_token, 0.0).sum() / weights.sum()


def loss_token_by_token(logits, targets, ignore_index=-100):
    """A loop with Python's own floats."""
    rows, wanted = logits.flatten(0, -2).tolist(), targets.flatten().tolist()
    surprises = []
    for row, token in zip(rows, wanted):
        if token == ignore_index:
            continue
        top = max(row)
        surprises.append(top + math.log(math.fsum(math.exp(x - top) for x in row)) - row[token])
    return torch.tensor(sum(surprises) / len(surprises), dtype=logits.dtype)


# --- batches ----------------------------------------------------------------------------------------------------------


def batch_of_stacks(data, batch_size, block_size, generator):
    """nanoGPT."""
    ix = torch.randint(len(data) - block_size, (batch_size,), generator=generator)
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class TextDataset(torch.utils.data.Dataset):
    """LLMs-from-scratch: every window once, and a loader that draws among them."""

    def __init__(self, ids, length):
        self.input_ids = [ids[i : i + length] for i in range(len(ids) - length)]
        self.target_ids = [ids[i + 1 : i + length + 1] for i in range(len(ids) - length)]

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, idx):
        return self.input_ids[idx], self.target_ids[idx]


def batch_of_a_loader(ids, batch_size, T, generator):
    dataset = TextDataset(ids, T)
    sampler = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=batch_size, generator=generator)
    inputs, targets = zip(*(dataset[i] for i in sampler))
    return torch.stack(inputs), torch.stack(targets)


def batch_row_after_row(ids, batch_size, T, generator):
    """A beginner's loop: draw, cut, append, as plain lists."""
    tokens = ids.tolist()
    inputs, targets = [], []
    for _ in range(batch_size):
        start = torch.randint(0, len(tokens) - T, (1,), generator=generator).item()
        row = tokens[start : start + T + 1]
        inputs.append(row[:-1])
        targets.append(row[1:])
    return torch.tensor(inputs), torch.tensor(targets)


def batch_of_strides(ids, batch_size, T, generator):
    """NumPy-minded: a view of all windows, and one index into it."""
    windows = torch.as_strided(ids, (len(ids) - T, T + 1), (ids.stride(0), ids.stride(0)))
    even = torch.ones(len(windows)) / len(windows)
    rows = windows[torch.multinomial(even, batch_size, replacement=True, generator=generator)]
    x, y = rows[..., :-1].contiguous(), rows[..., 1:].contiguous()
    return x, y


def batch_by_vmapped_slices(ids, batch_size, T, generator):
    """JAX-ish: dynamic slices of the text and of the text without its first token."""
    starts = (torch.rand(batch_size, generator=generator, dtype=torch.float64) * (ids.numel() - T)).floor().int()
    take = lambda text, start: text.narrow(0, int(start), T)  # noqa: E731
    return tuple(torch.stack([take(text, start) for start in starts]) for text in (ids[:-1], ids[1:]))


def batch_of_python_chance(ids, batch_size, T, generator):
    """Python's own generator, seeded from the one that came."""
    rng = random.Random(torch.randint(2**62, (1,), generator=generator).item())
    starts = rng.choices(range(len(ids) - T), k=batch_size)
    x = np.array([ids[s : s + T].numpy() for s in starts])
    y = np.array([ids[s + 1 : s + T + 1].numpy() for s in starts])
    return torch.from_numpy(x), torch.from_numpy(y)


# --- the schedule -----------------------------------------------------------------------------------------------------


def rate_with_an_assert(it, max_lr, warmup_iters, lr_decay_iters, min_lr):
    """nanoGPT's get_lr."""
    if it < warmup_iters:
        return max_lr * it / warmup_iters
    if it > lr_decay_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    assert 0 <= decay_ratio <= 1
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (max_lr - min_lr)


def rate_of_a_lambda(current_step, peak, num_warmup_steps, num_training_steps, floor):
    """transformers: a factor of the peak."""
    if peak == 0:
        return 0.0

    def factor(step, num_cycles=0.5, min_lr_rate=floor / peak):
        if step < num_warmup_steps:
            return float(step) / float(max(1, num_warmup_steps))
        progress = float(step - num_warmup_steps) / float(max(1, num_training_steps - num_warmup_steps))
        progress = min(progress, 1.0)
        share = 0.5 * (1.0 + math.cos(math.pi * float(num_cycles) * 2.0 * progress))
        return max(0, share * (1 - min_lr_rate) + min_lr_rate)

    return peak * factor(current_step)


def rate_of_torchs_schedulers(step, peak, warmup, total, floor):
    """A loop over the steps with torch's own schedulers, and what the optimizer then has."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warmup, eta_min=floor)
    for _ in range(max(0, min(step, total) - warmup)):
        optimizer.step()
        cosine.step()
    rate = optimizer.param_groups[0]["lr"]
    return rate * step / warmup if step < warmup else rate


def rate_by_where(step, peak, warmup, total, floor):
    """optax: both pieces are computed, and one is taken."""
    count = torch.as_tensor(step, dtype=torch.float32)
    linear = peak * count / torch.clamp(torch.tensor(warmup), min=1)
    frac = torch.clip((count - warmup) / (total - warmup), 0.0, 1.0)
    cosine = floor + (peak - floor) * 0.5 * (1.0 + torch.cos(torch.pi * frac))
    return torch.where(count < warmup, linear, cosine)


def rate_by_interpolation(step, peak, warmup, total, floor):
    """NumPy-minded: interp for the line and for the angle."""
    if step < warmup:
        return np.interp(step, [0, warmup], [0.0, peak])
    angle = np.interp(step, [warmup, total], [0.0, np.pi])
    return np.float32((peak + floor) / 2 + (peak - floor) / 2 * np.cos(angle))


def rate_from_a_list(step, peak, warmup, total, floor):
    """The whole plan in a list, of which one entry is read."""
    plan = [peak * s / warmup for s in range(warmup)]
    for s in range(total - warmup + 1):
        left = math.cos(math.pi / 2 * s / (total - warmup)) ** 2
        plan.append(floor + (peak - floor) * left)
    return plan[step] if step < len(plan) else floor


STRANGERS = {
    "training.cross_entropy": [
        loss_in_one_line,
        loss_by_a_padding_mask,
        loss_with_upcast,
        loss_of_parallel_parts,
        loss_by_where,
        loss_token_by_token,
    ],
    "training.get_batch": [
        batch_of_stacks,
        batch_of_a_loader,
        batch_row_after_row,
        batch_of_strides,
        batch_by_vmapped_slices,
        batch_of_python_chance,
    ],
    "training.learning_rate": [
        rate_with_an_assert,
        rate_of_a_lambda,
        rate_of_torchs_schedulers,
        rate_by_where,
        rate_by_interpolation,
        rate_from_a_list,
    ],
}
