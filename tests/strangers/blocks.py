"""Right answers as strangers write them, chapter 8."""

import math
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- the wiring -------------------------------------------------------------------------------------------------------


class _PreBlock:
    def __init__(self, attn, mlp, ln_1, ln_2):
        self.attn, self.mlp, self.ln_1, self.ln_2 = attn, mlp, ln_1, ln_2

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


def pre_of_a_class(x, attention, ffn, norm1, norm2):
    return _PreBlock(attention, ffn, norm1, norm2).forward(x)


def pre_with_a_named_residual(hidden_states: Tensor, attention, ffn, norm1, norm2) -> Tensor:
    residual = hidden_states
    hidden_states = norm1(hidden_states)
    hidden_states = attention(hidden_states)
    hidden_states = residual + hidden_states

    residual = hidden_states
    hidden_states = norm2(hidden_states)
    hidden_states = ffn(hidden_states)
    return residual + hidden_states


def pre_by_sublayers(x, attention, ffn, norm1, norm2):
    def sublayer_connection(norm):
        return lambda x, sublayer: x + sublayer(norm(x))

    first, second = sublayer_connection(norm1), sublayer_connection(norm2)
    x = first(x, lambda x: attention(x))
    return second(x, ffn)


def pre_by_reduce(x, attention, ffn, norm1, norm2):
    return reduce(lambda h, pair: h.add(pair[1](pair[0](h))), [(norm1, attention), (norm2, ffn)], x)


def pre_with_a_float_stream(x, attention, ffn, norm1, norm2):
    """The residual stream kept in float64, the branches in the dtype of x."""
    stream = x.double()
    stream = stream + attention(norm1(stream.to(x.dtype))).double()
    stream = stream + ffn(norm2(stream.to(x.dtype))).double()
    return stream.to(x.dtype)


def pre_recursive(x, *parts):
    attention, ffn, norm1, norm2 = parts
    if attention is None:
        return x + ffn(norm2(x))
    return pre_recursive(torch.add(input=x, other=attention(norm1(x))), None, ffn, None, norm2)


class _PostBlock:
    def __init__(self, self_attn, fc, self_attn_layer_norm, final_layer_norm):
        self.self_attn, self.fc = self_attn, fc
        self.self_attn_layer_norm, self.final_layer_norm = self_attn_layer_norm, final_layer_norm
        self.normalize_before = False

    def __call__(self, x):
        residual = x
        if self.normalize_before:
            x = self.self_attn_layer_norm(x)
        x = self.self_attn(x)
        x = residual + x
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = self.fc(x)
        x = residual + x
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return x


def post_with_a_flag(x, attention, ffn, norm1, norm2):
    return _PostBlock(attention, ffn, norm1, norm2)(x)


def post_of_output_layers(hidden_states, attention, ffn, norm1, norm2):
    self_output = attention(hidden_states)
    attention_output = norm1(self_output + hidden_states)
    intermediate_output = ffn(attention_output)
    return norm2(intermediate_output + attention_output)


def post_by_reduce(x, attention, ffn, norm1, norm2):
    return reduce(lambda h, half: half[1](torch.stack((h, half[0](h))).sum(0)), ((attention, norm1), (ffn, norm2)), x)


def post_by_composition(x, attention, ffn, norm1, norm2):
    def add_and_norm(branch, norm):
        def step(t):
            return norm(t + branch(t))

        return step

    for step in [add_and_norm(attention, norm1), add_and_norm(ffn, norm2)]:
        x = step(x)
    return x


def post_sentence_by_sentence(x, attention, ffn, norm1, norm2):
    """No part looks from one sentence into another, so each can go through by itself."""
    outputs = []
    for sentence in x:
        h = sentence.unsqueeze(0)
        h = norm1(torch.add(h, attention(h), alpha=1))
        outputs.append(norm2(h + ffn(h)))
    return torch.cat(outputs, dim=0)


# --- the encoder ------------------------------------------------------------------------------------------------------


class _BertSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.num_attention_heads = num_attention_heads
        self.attention_head_size = int(hidden_size / num_attention_heads)
        self.q_proj = nn.Linear(hidden_size, hidden_size)
        self.k_proj = nn.Linear(hidden_size, hidden_size)
        self.v_proj = nn.Linear(hidden_size, hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:-1], self.num_attention_heads, self.attention_head_size).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None):
        query_layer = self.transpose_for_scores(self.q_proj(hidden_states))
        key_layer = self.transpose_for_scores(self.k_proj(hidden_states))
        value_layer = self.transpose_for_scores(self.v_proj(hidden_states))
        attention_scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        attention_scores = attention_scores / math.sqrt(self.attention_head_size)
        if attention_mask is not None:
            attention_scores = attention_scores + attention_mask
        attention_probs = nn.Softmax(dim=-1)(attention_scores)
        context_layer = torch.matmul(attention_probs, value_layer).permute(0, 2, 1, 3).contiguous()
        return self.out_proj(context_layer.view(*hidden_states.shape))


class _PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff, dropout=0.0):
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff)
        self.down_proj = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.up_proj(x)
        h = h * 0.5 * (1.0 + torch.erf(h / math.sqrt(2.0)))
        return self.down_proj(self.dropout(h))


class BertLayer(nn.Module):
    """The mask as numbers to add: 0 where a token may attend, the smallest number of the dtype where not."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = _BertSelfAttention(d_model, n_heads)
        self.feed_forward = _PositionwiseFeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model, eps=1e-5)
        self.norm2 = nn.LayerNorm(d_model, eps=1e-5)

    def forward(self, x, mask=None):
        extended = None
        if mask is not None:
            extended = (1.0 - mask.to(x.dtype)) * torch.finfo(x.dtype).min
        attention_output = self.norm1(self.attention(x, extended) + x)
        return self.norm2(self.feed_forward(attention_output) + attention_output)


class _Sublayers(nn.Module):
    """The parts by name, what goes on in them elsewhere."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.attention = nn.Module()
        for letter in "qkv":
            self.attention.add_module(f"{letter}_proj", nn.Linear(d_model, d_model))
        self.attention.out_proj = nn.Linear(d_model, d_model)
        self.feed_forward = nn.Sequential()
        self.feed_forward.add_module("up_proj", nn.Linear(d_model, d_ff))
        self.feed_forward.add_module("act", nn.GELU())
        self.feed_forward.add_module("down_proj", nn.Linear(d_ff, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)


class FusedKernelEncoder(_Sublayers):
    def attend(self, x, mask):
        att = self.attention
        q, k, v = (p(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2) for p in (att.q_proj, att.k_proj, att.v_proj))
        if mask is not None:
            mask = mask.expand(q.shape[0], self.n_heads, q.shape[2], k.shape[2])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)
        return att.out_proj(y.transpose(1, 2).flatten(2))

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.feed_forward(x))


class HeadByHeadEncoder(_Sublayers):
    """A loop over heads with slices of the weights; the softmax written out, in float32 and back."""

    def forward(self, x, mask=None):
        a = self.attention
        B, T, _ = x.shape
        Q, K, V = a.q_proj(x), a.k_proj(x), a.v_proj(x)
        visible = torch.ones(B, self.n_heads, T, T, dtype=torch.bool) if mask is None else (
            mask.expand(B, self.n_heads, T, T))  # fmt: skip
        heads = []
        for h in range(self.n_heads):
            lo, hi = h * self.d_head, (h + 1) * self.d_head
            scores = Q[..., lo:hi] @ K[..., lo:hi].transpose(1, 2)
            scores = (scores / torch.sqrt(torch.tensor(self.d_head, dtype=torch.float32))).float()
            scores = scores.masked_fill(visible[:, h].logical_not(), float("-inf"))
            powers = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
            weights = (powers / powers.sum(dim=-1, keepdim=True)).type_as(x)
            heads.append(weights @ V[..., lo:hi])
        x = self.norm1(x + a.out_proj(torch.cat(heads, dim=-1)))
        return self.norm2(x + self.feed_forward(x))


class TimeFirstEncoder(_Sublayers):
    """Tokens first, (T, B, d_model), and batched products over sentences and heads."""

    def forward(self, x, mask=None):
        x = x.transpose(0, 1)
        T, B, C = x.shape
        a = self.attention
        q, k, v = (p(x).reshape(T, B * self.n_heads, -1).transpose(0, 1) for p in (a.q_proj, a.k_proj, a.v_proj))
        scores = torch.baddbmm(torch.empty(B * self.n_heads, T, T, dtype=x.dtype), q, k.mT, beta=0,
                               alpha=self.d_head**-0.5)  # fmt: skip
        if mask is not None:
            scores = scores.view(B, self.n_heads, T, T).masked_fill(mask.eq(0), -1e30).flatten(0, 1)
        y = torch.bmm(scores.softmax(-1), v).transpose(0, 1).reshape(T, B, C)
        x = self.norm1(x + a.out_proj(y))
        x = self.norm2(x + self.feed_forward(x))
        return x.transpose(0, 1)


class OwnNormEncoder(_Sublayers):
    """LayerNorm from its formula, on the parameters of the modules; GELU by the normal distribution."""

    @staticmethod
    def layer_norm(h, norm):
        mean = h.mean(-1, keepdim=True)
        variance = ((h - mean) ** 2).mean(-1, keepdim=True)
        return (h - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias

    def forward(self, x, mask=None):
        def project(name):
            layer = getattr(self.attention, name)
            weight = layer.weight.view(self.n_heads, self.d_head, -1)
            return torch.einsum("btc,hdc->bhtd", x, weight) + layer.bias.view(self.n_heads, 1, self.d_head)

        scores = torch.einsum("bhid,bhjd->bhij", project("q_proj"), project("k_proj")) * self.d_head**-0.5
        if mask is not None:
            scores = torch.where(mask, scores, torch.full_like(scores, -torch.inf))
        mixed = torch.einsum("bhij,bhjd->bihd", F.softmax(scores, -1), project("v_proj"))
        x = self.layer_norm(x + self.attention.out_proj(mixed.flatten(-2)), self.norm1)
        h = self.feed_forward.up_proj(x)
        return self.layer_norm(x + self.feed_forward.down_proj(h * torch.special.ndtr(h)), self.norm2)


# --- experiments ------------------------------------------------------------------------------------------------------


def gradients_of_modules(weights, biases, x):
    """Real nn.Linear layers; one network without skips, one with."""

    class Net(nn.Module):
        def __init__(self, residual):
            super().__init__()
            self.residual = residual
            self.layers = nn.ModuleList()
            for w, b in zip(weights, biases):
                layer = nn.Linear(w.shape[1], w.shape[0]).to(w.dtype)
                layer.load_state_dict({"weight": w, "bias": b})
                self.layers.append(layer)

        def forward(self, x):
            for layer in self.layers:
                out = torch.tanh(layer(x))
                x = x + out if self.residual else out
            return x

    def norm_of(net):
        inp = torch.tensor(x.tolist(), dtype=x.dtype, requires_grad=True)
        net(inp).sum().backward()
        return math.sqrt((inp.grad.double() ** 2).sum())

    return norm_of(Net(False)), norm_of(Net(True))


def gradients_by_vjp(weights, biases, x):
    def plain(h):
        for W, b in zip(weights.unbind(), biases.unbind()):
            h = torch.tanh(torch.einsum("...i,oi->...o", h, W) + b)
        return h

    def residual(h):
        for W, b in zip(weights.unbind(), biases.unbind()):
            h = h + torch.tanh(torch.einsum("...i,oi->...o", h, W) + b)
        return h

    norms = []
    for stack in (plain, residual):
        out, pull_back = torch.func.vjp(stack, x)
        (gradient,) = pull_back(torch.ones_like(out))
        norms.append(torch.linalg.norm(gradient.flatten()))
    return norms


def gradients_layer_by_layer(weights, biases, x):
    """The chain rule in a loop over rows: each row's own product of Jacobians."""
    D = x.shape[1]

    def total(skip):
        squares = 0.0
        for row in x.double():
            product = torch.eye(D, dtype=torch.float64)  # d(stream) / d(row)
            stream = row
            for W, b in zip(weights.double(), biases.double()):
                branch = torch.tanh(W @ stream + b)
                jacobian = (1 - branch**2)[:, None] * W
                product = (jacobian + torch.eye(D, dtype=torch.float64) if skip else jacobian) @ product
                stream = stream + branch if skip else branch
            squares += float((product.sum(0) ** 2).sum())
        return squares**0.5

    return [total(False), total(True)]


def orders_by_a_trainer(pre, post, inputs, targets, learning_rate):
    class Trainer:
        def __init__(self, model):
            self.model = model.train()
            self.optimizer = torch.optim.AdamW(params=model.parameters(), lr=learning_rate)
            self.history: list[float] = []

        def step(self, batch, labels):
            self.optimizer.zero_grad(set_to_none=True)
            _, loss = self.model(batch, labels)
            self.history.append(loss.item())
            loss.backward()
            self.optimizer.step()

    trainers = Trainer(pre), Trainer(post)
    for batch, labels in zip(inputs.unbind(0), targets.unbind(0)):
        for trainer in trainers:
            trainer.step(batch, labels)
    return tuple(trainer.history for trainer in trainers)


def orders_with_closures(pre, post, inputs, targets, learning_rate):
    """The loss from the logits, in the closure that the optimizer calls."""

    def run(model):
        optimizer = torch.optim.AdamW(list(model.parameters()), learning_rate)
        losses = torch.empty(len(inputs))
        for i in range(len(inputs)):

            def closure(i=i):
                model.zero_grad()
                logits = model(inputs[i], targets[i])[0]
                loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets[i].reshape(-1))
                loss.backward()
                return loss

            losses[i] = optimizer.step(closure)
        return losses.tolist()

    return [run(model) for model in (pre, post)]


STRANGERS = {
    "blocks.pre_norm": [
        pre_of_a_class,
        pre_with_a_named_residual,
        pre_by_sublayers,
        pre_by_reduce,
        pre_with_a_float_stream,
        pre_recursive,
    ],
    "blocks.post_norm": [
        post_with_a_flag,
        post_of_output_layers,
        post_by_reduce,
        post_by_composition,
        post_sentence_by_sentence,
    ],
    "blocks.encoder": [BertLayer, FusedKernelEncoder, HeadByHeadEncoder, TimeFirstEncoder, OwnNormEncoder],
    "blocks.gradient_norms": [gradients_of_modules, gradients_by_vjp, gradients_layer_by_layer],
    "blocks.pre_or_post": [orders_by_a_trainer, orders_with_closures],
}
