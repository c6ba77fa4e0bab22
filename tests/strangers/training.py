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


# --- Muon -------------------------------------------------------------------------------------------------------------


def zeropower_via_newtonschulz5(G, steps=5, eps=1e-7):
    """Keller Jordan's, without bfloat16."""
    assert G.ndim >= 2
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.clone()
    if G.size(-2) > G.size(-1):
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    if G.size(-2) > G.size(-1):
        X = X.mT
    return X


def muon_of_its_author(p, grad, buf, lr, momentum=0.95):
    g, buf = grad.clone(), buf.clone()
    buf.mul_(momentum).add_(g)
    g = g.add(buf, alpha=momentum)
    g = zeropower_via_newtonschulz5(g)
    p = p.clone()
    p.data.add_(g, alpha=-lr * max(1, p.size(-2) / p.size(-1)) ** 0.5)
    return p, buf


def muon_of_addmm(W, gradient, momentum, lr, beta=0.95):
    """The order of torch.optim: addmm, and the learning rate adjusted."""
    ratio = math.sqrt(max(1, W.shape[0] / W.shape[1]))
    buf = torch.add(gradient, momentum, alpha=beta)
    ortho = gradient.add(buf, alpha=beta)
    if gradient.size(0) > gradient.size(1):
        ortho = ortho.T
    ortho = ortho.div(ortho.norm().clamp(min=1e-7))
    for _ in range(5):
        gram = ortho @ ortho.T
        update = torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315)
        ortho = torch.addmm(ortho, update, ortho, beta=3.4445)
    if gradient.size(0) > gradient.size(1):
        ortho = ortho.T
    return torch.add(W, ortho, alpha=-lr * ratio), buf


class _Muon:
    """A beginner's class, which keeps its state."""

    def __init__(self, lr, beta, buffer):
        self.lr, self.beta, self.buffer = lr, beta, buffer

    def orthogonalize(self, M):
        total = 0.0
        for row in M:
            for value in row:
                total += value**2
        if total == 0:
            return M
        M = M / total**0.5
        for _ in range(5):
            M3 = torch.matmul(torch.matmul(M, M.t()), M)
            M5 = torch.matmul(torch.matmul(M, M.t()), M3)
            M = 3.4445 * M - 4.7750 * M3 + 2.0315 * M5
        return M

    def step(self, W, g):
        self.buffer = self.beta * self.buffer + g
        direction = self.orthogonalize(g + self.beta * self.buffer)
        if W.shape[0] > W.shape[1]:
            direction = direction * (W.shape[0] / W.shape[1]) ** 0.5
        return W - self.lr * direction


def muon_of_a_class(W, gradient, momentum, lr, beta=0.95):
    optimizer = _Muon(lr, beta, momentum)
    return optimizer.step(W, gradient), optimizer.buffer


def muon_by_einsum(params, updates, mu, learning_rate, beta=0.95):
    """optax: a fold over the coefficients of the rounds."""
    mu = beta * mu + updates
    x = updates + beta * mu
    transposed = x.shape[0] > x.shape[1]
    x = x.transpose(0, 1) if transposed else x
    x = x / (torch.sqrt(torch.einsum("ij,ij->", x, x)) + 1e-8)
    for coeffs in [(3.4445, -4.7750, 2.0315)] * 5:
        a = torch.einsum("ij,kj->ik", x, x)
        b = coeffs[1] * a + coeffs[2] * torch.einsum("ij,jk->ik", a, a)
        x = coeffs[0] * x + torch.einsum("ij,jk->ik", b, x)
    x = x.transpose(0, 1) if transposed else x
    x = (max(1.0, params.shape[0] / params.shape[1]) ** 0.5) * x
    return params + (-learning_rate) * x, mu


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
    "training.muon": [
        muon_of_its_author,
        muon_of_addmm,
        muon_of_a_class,
        muon_by_einsum,
    ],
}
