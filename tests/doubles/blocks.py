"""Answers with two mistakes of the page at once, chapter 8."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def pre_swapped_norms_lost_stream(x, attention, ffn, norm1, norm2):
    residual = x
    x = attention(norm2(x))
    x = residual + x
    return ffn(norm1(x))


def pre_normed_late_with_one_norm(x, attention, ffn, norm1, norm2):
    for sublayer in (attention, ffn):
        x = x + norm1(sublayer(x))
    return x


def pre_in_place_bare_ffn(x, attention, ffn, norm1, norm2):
    x += attention(norm1(x))
    x += ffn(x)
    return x


def post_normed_inside_and_swapped(x, attention, ffn, norm1, norm2):
    x = torch.add(norm2(attention(x)), x)
    return torch.add(norm1(ffn(x)), x)


def post_in_place_without_second_skip(x, attention, ffn, norm1, norm2):
    x.add_(attention(x))
    h = norm1(x)
    return norm2(ffn(h))


def post_first_input_bare(x, attention, ffn, norm1, norm2):
    attended = x + attention(x)
    fed = ffn(attended)
    return norm2(x + fed)


class _Attention(nn.Module):
    scaled, brought_back, swapped_mask = True, True, False

    def __init__(self, dim, heads):
        super().__init__()
        self.h, self.dk = heads, dim // heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def heads_of(self, z):
        return z.unflatten(-1, (self.h, self.dk)).permute(0, 2, 1, 3)

    def weights(self, x, mask):
        s = torch.einsum("bhid,bhjd->bhij", self.heads_of(self.q_proj(x)), self.heads_of(self.k_proj(x)))
        if self.scaled:
            s = s / math.sqrt(self.dk)
        if mask is not None:
            s = s.masked_fill(mask if self.swapped_mask else mask.logical_not(), float("-inf"))
        return s.softmax(dim=-1)

    def forward(self, x, mask=None):
        z = self.weights(x, mask) @ self.heads_of(self.v_proj(x))
        if self.brought_back:
            z = z.permute(0, 2, 1, 3)
        return self.out_proj(z.reshape(x.shape))


class _Unscaled(_Attention):
    scaled = False


class _NotBroughtBack(_Attention):
    brought_back = False


class _Inverted(_Attention):
    swapped_mask = True


class _Feed(nn.Module):
    def __init__(self, dim, hidden, act=F.gelu):
        super().__init__()
        self.act = act
        self.up_proj = nn.Linear(dim, hidden)
        self.down_proj = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down_proj(self.act(self.up_proj(x)))


class PreNormUnscaled(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.attention = _Unscaled(d_model, n_heads)
        self.norm2 = nn.LayerNorm(d_model)
        self.feed_forward = _Feed(d_model, d_ff)

    def forward(self, x, mask=None):
        x = x + self.attention(self.norm1(x), mask)
        x = x + self.feed_forward(self.norm2(x))
        return x


class ReluAndUnmergedHeads(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = _NotBroughtBack(d_model, n_heads)
        self.feed_forward = _Feed(d_model, d_ff, torch.relu)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        h = self.norm1(x + self.attention(x, mask))
        return self.norm2(h + self.feed_forward(h))


class OneNormInvertedMask(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = _Inverted(d_model, n_heads)
        self.feed_forward = _Feed(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(self.attention(x, mask) + x)
        x = self.norm1(self.feed_forward(x) + x)
        return x


def norms_untransposed_and_squared(weights, biases, x):
    found = []
    for residual in [False, True]:
        inp = x.clone().requires_grad_(True)
        h = inp
        for i in range(len(weights)):
            z = torch.tanh(torch.matmul(h, weights[i]) + biases[i])
            h = h + z if residual else z
        h.sum().backward()
        found.append((inp.grad**2).sum().item())
    return found[0], found[1]


def norms_of_the_mean_without_bias(weights, biases, x):
    def run(skip):
        leaf = x.detach().clone().requires_grad_()
        out = leaf
        for w in weights:
            f = F.linear(out, w).tanh()
            out = out + f if skip else f
        return torch.autograd.grad(out.mean(), leaf)[0].norm()

    return run(False), run(True)


def norms_swapped_and_summed(weights, biases, x):
    with_skip = x.clone().requires_grad_()
    without = x.clone().requires_grad_()
    a, b = with_skip, without
    for W, bias in zip(weights, biases):
        a = a + torch.tanh(F.linear(a, W, bias))
        b = torch.tanh(F.linear(b, W, bias))
    a.sum().backward()
    b.sum().backward()
    return with_skip.grad.abs().sum().item(), without.grad.abs().sum().item()


def orders_swapped_at_default_rate(pre, post, inputs, targets, learning_rate):
    curves = []
    for net in (post, pre):
        opt = torch.optim.AdamW(net.parameters())
        curve = []
        for i in range(len(inputs)):
            _logits, loss = net(inputs[i], targets[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            curve.append(float(loss))
        curves.append(curve)
    return tuple(curves)


def orders_warmed_up_and_clipped(pre, post, inputs, targets, learning_rate):
    def fit(net):
        opt = torch.optim.AdamW(net.parameters(), lr=learning_rate)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 8))
        history = []
        for batch, gold in zip(inputs, targets):
            loss = net(batch, gold)[1]
            history.append(loss.item())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            schedule.step()
        return history

    return fit(pre), fit(post)


def orders_piled_up_last_loss(pre, post, inputs, targets, learning_rate):
    results = []
    for model in [pre, post]:
        optimizer = torch.optim.AdamW(model.parameters(), learning_rate)
        for step in range(inputs.shape[0]):
            loss = model(inputs[step], targets[step])[1]
            loss.backward()
            optimizer.step()
        results.append(loss.item())
    return results[0], results[1]


DOUBLES = {
    "blocks.pre_norm": [
        (pre_swapped_norms_lost_stream, ("norms exchanged", "second residual missing")),
        (pre_normed_late_with_one_norm, ("norm after the branch", "one norm for both")),
        (pre_in_place_bare_ffn, ("input overwritten", "second norm missing")),
    ],
    "blocks.post_norm": [
        (post_normed_inside_and_swapped, ("norm inside the sum", "norms exchanged")),
        (post_in_place_without_second_skip, ("input overwritten", "second residual missing")),
        (post_first_input_bare, ("the first input added again", "first norm missing")),
    ],
    "blocks.encoder": [
        (PreNormUnscaled, ("pre-norm", "not scaled")),
        (ReluAndUnmergedHeads, ("ReLU", "heads not brought back")),
        (OneNormInvertedMask, ("one norm for both", "mask inverted")),
    ],
    "blocks.gradient_norms": [
        (norms_untransposed_and_squared, ("weights not transposed", "norm squared")),
        (norms_of_the_mean_without_bias, ("mean as loss", "no bias")),
        (norms_swapped_and_summed, ("results swapped", "sum of the sizes")),
    ],
    "blocks.pre_or_post": [
        (orders_swapped_at_default_rate, ("results swapped", "learning rate ignored")),
        (orders_warmed_up_and_clipped, ("warm-up", "clipping")),
        (orders_piled_up_last_loss, ("gradients not cleared", "only the last loss")),
    ],
}
