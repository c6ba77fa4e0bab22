"""Right answers in the manner of others, chapter 15: nanoGPT, LLMs-from-scratch, converters of checkpoints, NumPy."""

import math
from collections import OrderedDict
from functools import partial

import numpy as np
import torch
from torch import nn

# --- GPT-2's tensors --------------------------------------------------------------------------------------------------

TRANSPOSED = ["attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"]


def with_a_list_of_transposed(sd_hf):
    """nanoGPT's from_pretrained: a list of endings says what is turned."""
    sd = {}
    for k in sd_hf:
        w = sd_hf[k].t() if any(k.endswith(ending) for ending in TRANSPOSED) else sd_hf[k]
        name = k
        for old, new in (
            ("wte", "token_embedding"),
            ("wpe", "positions"),
            ("ln_f", "final_norm"),
            ("h.", "blocks."),
            ("ln_", "norm"),
            ("mlp.c_fc", "feed_forward.up_proj"),
            ("mlp.c_proj", "feed_forward.down_proj"),
            ("attn.c_proj", "attention.out_proj"),
        ):
            name = name.replace(old, new)
        if "attn.c_attn" not in name:
            sd[name] = w
            continue
        n_embd = w.shape[0] // 3
        for part, piece in zip(("q_proj", "k_proj", "v_proj"), w.split(n_embd, dim=0)):
            sd[name.replace("attn.c_attn", f"attention.{part}")] = piece
    return sd


def assigned_block_by_block(params):
    """LLMs-from-scratch: np.split, .T, and every tensor a parameter."""

    def assign(right):
        return nn.Parameter(torch.tensor(right), requires_grad=False)

    gpt = {}
    gpt["positions.weight"] = assign(params["wpe.weight"].numpy())
    gpt["token_embedding.weight"] = assign(params["wte.weight"].numpy())
    for b in range(len([name for name in params if name.endswith("ln_1.weight")])):
        theirs, ours = f"h.{b}.", f"blocks.{b}."
        q_w, k_w, v_w = np.split(params[theirs + "attn.c_attn.weight"].numpy(), 3, axis=-1)
        q_b, k_b, v_b = np.split(params[theirs + "attn.c_attn.bias"].numpy(), 3, axis=-1)
        for letter, w, b_ in (("q", q_w, q_b), ("k", k_w, k_b), ("v", v_w, v_b)):
            gpt[f"{ours}attention.{letter}_proj.weight"] = assign(w.T)
            gpt[f"{ours}attention.{letter}_proj.bias"] = assign(b_)
        for here, there in (
            ("attention.out_proj", "attn.c_proj"),
            ("feed_forward.up_proj", "mlp.c_fc"),
            ("feed_forward.down_proj", "mlp.c_proj"),
        ):
            gpt[f"{ours}{here}.weight"] = assign(params[f"{theirs}{there}.weight"].numpy().T)
            gpt[f"{ours}{here}.bias"] = assign(params[f"{theirs}{there}.bias"].numpy())
        for n in (1, 2):
            gpt[f"{ours}norm{n}.weight"] = assign(params[f"{theirs}ln_{n}.weight"].numpy())
            gpt[f"{ours}norm{n}.bias"] = assign(params[f"{theirs}ln_{n}.bias"].numpy())
    gpt["final_norm.weight"] = assign(params["ln_f.weight"].numpy())
    gpt["final_norm.bias"] = assign(params["ln_f.bias"].numpy())
    gpt["output.weight"] = assign(params["wte.weight"].numpy())
    return gpt


def copied_into_empty_tensors(state_dict):
    """As converters do it: empty tensors of our shapes, into which everything is copied."""
    table = {
        "ln_1": ["norm1"],
        "ln_2": ["norm2"],
        "attn.c_attn": ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
        "attn.c_proj": ["attention.out_proj"],
        "mlp.c_fc": ["feed_forward.up_proj"],
        "mlp.c_proj": ["feed_forward.down_proj"],
    }
    new_sd = OrderedDict()
    for key, value in state_dict.items():
        if not key.startswith("h."):
            prefix, kind = key.rsplit(".", 1)
            new_sd[{"wte": "token_embedding", "wpe": "positions", "ln_f": "final_norm"}[prefix] + "." + kind] = value
            continue
        _, number, rest = key.split(".", 2)
        part, kind = rest.rsplit(".", 1)
        targets = table[part]
        width = value.shape[-1] // len(targets)
        for i, target in enumerate(targets):
            columns = value[..., i * width : (i + 1) * width]
            fresh = torch.empty(columns.shape[::-1], dtype=value.dtype)
            fresh.copy_(columns.permute(*range(columns.dim() - 1, -1, -1)))
            new_sd[f"blocks.{number}.{target}.{kind}"] = fresh
    return new_sd


def as_a_tree(state_dict):
    """JAX-ish: names become a tree, the tree is mapped, and laid flat again."""
    tree = {}
    for name, leaf in state_dict.items():
        *path, last = name.split(".")
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[last] = leaf

    def linear(p):
        return {"weight": torch.einsum("io->oi", p["weight"]), "bias": p["bias"]}

    def fused(p):
        d = p["bias"].numel() // 3
        weight, bias = p["weight"].view(d, 3, d), p["bias"].view(3, d)
        return [linear({"weight": weight[:, i], "bias": bias[i]}) for i in range(3)]

    blocks = {}
    for number, block in tree["h"].items():
        q, k, v = fused(block["attn"]["c_attn"])
        out = linear(block["attn"]["c_proj"])
        blocks[number] = {
            "norm1": block["ln_1"],
            "attention": {"q_proj": q, "k_proj": k, "v_proj": v, "out_proj": out},
            "norm2": block["ln_2"],
            "feed_forward": {"up_proj": linear(block["mlp"]["c_fc"]), "down_proj": linear(block["mlp"]["c_proj"])},
        }
    ours = {"token_embedding": tree["wte"], "positions": tree["wpe"], "blocks": blocks, "final_norm": tree["ln_f"]}

    def flat(node, prefix=""):
        if isinstance(node, torch.Tensor):
            return {prefix[:-1]: node}
        return {k: v for key, child in node.items() for k, v in flat(child, f"{prefix}{key}.").items()}

    return flat(ours)


def number_by_number(state_dict):
    """A beginner's transpose: lists of lists, turned by zip."""
    ours = {}
    for name, tensor in state_dict.items():
        dtype, parts = tensor.dtype, name.split(".")
        if parts[0] != "h":
            ours[{"wte": "token_embedding", "wpe": "positions", "ln_f": "final_norm"}[parts[0]] + "." + parts[1]] = (
                tensor
            )
            continue
        i, part, kind = parts[1], ".".join(parts[2:-1]), parts[-1]
        outputs = list(zip(*tensor.tolist())) if tensor.dim() == 2 else tensor.tolist()
        if part == "attn.c_attn":
            third = len(outputs) // 3
            for j, letter in enumerate("qkv"):
                piece = outputs[j * third : (j + 1) * third]
                ours[f"blocks.{i}.attention.{letter}_proj.{kind}"] = torch.tensor(piece, dtype=dtype)
            continue
        if part.startswith("ln_"):
            new = "norm" + part[-1]
        elif part == "attn.c_proj":
            new = "attention.out_proj"
        else:
            new = "feed_forward." + ("up_proj" if part == "mlp.c_fc" else "down_proj")
        ours[f"blocks.{i}.{new}.{kind}"] = torch.tensor(outputs, dtype=dtype)
    return ours


# --- what heads do ----------------------------------------------------------------------------------------------------


def by_diagonals_of_a_pattern(model, tokens):
    """TransformerLens: the pattern of each layer, its diagonals, a mean over batch and positions."""
    seq_len = tokens.shape[-1] // 2
    scores = {"previous": [], "first": [], "induction": []}
    for pattern in model.attention_weights(tokens):  # [batch, head, query, key]
        previous = pattern.diagonal(dim1=-2, dim2=-1, offset=-1)
        stripe = pattern.diagonal(dim1=-2, dim2=-1, offset=1 - seq_len)[..., 1:]
        scores["previous"].append(previous.mean(dim=(0, 2)))
        scores["first"].append(pattern[:, :, 1:, 0].mean(dim=(0, 2)))
        scores["induction"].append(torch.einsum("bhp->h", stripe) / stripe[:, 0].numel())
    return {name: torch.stack(rows) for name, rows in scores.items()}


def by_comparing_words(model, ids):
    """The earlier place is looked for, text by text, instead of being computed."""
    layers = [layer.numpy() for layer in model.attention_weights(ids)]
    B, T = ids.shape
    n, L, H = T // 2, len(layers), layers[0].shape[1]
    previous, first, induction = np.zeros((3, L, H), dtype=np.float32)
    for b in range(B):
        for t in range(1, T):
            for layer, weights in enumerate(layers):
                previous[layer] += weights[b, :, t, t - 1]
                first[layer] += weights[b, :, t, 0]
                if t >= n:
                    assert ids[b, t] == ids[b, t - n]
                    induction[layer] += weights[b, :, t, t - n + 1]
    previous, first, induction = previous / (B * (T - 1)), first / (B * (T - 1)), induction / (B * n)
    tables = {"previous": previous, "first": first, "induction": induction}
    return {name: torch.from_numpy(table) for name, table in tables.items()}


# --- patching ---------------------------------------------------------------------------------------------------------


def effects_as_in_arena(model, clean, corrupted, control, position, answer, other):
    """A cache of the other run, a hook with functools.partial, and a metric that is 0 and 1 at the two ends."""
    model.eval()
    resid_post = {}

    def cache_hook(layer, module, args, output):
        resid_post[layer] = output.detach().clone()

    def patch_residual_component(layer, module, args, output):
        corrupted_residual_component = output.clone()
        corrupted_residual_component[:, position, :] = resid_post[layer][:, position, :]
        return corrupted_residual_component

    def logits_to_ave_logit_diff(logits):
        final_logits = logits[:, -1, :]
        pair = final_logits.gather(dim=-1, index=torch.stack([answer, other], dim=-1))
        return (pair[:, 0] - pair[:, 1]).mean()

    with torch.no_grad():
        clean_logit_diff = logits_to_ave_logit_diff(model(clean))
        corrupted_logit_diff = logits_to_ave_logit_diff(model(corrupted))
        rows = []
        for tokens in (clean, control):
            hooks = [b.register_forward_hook(partial(cache_hook, i)) for i, b in enumerate(model.blocks)]
            model(tokens)
            for hook in hooks:
                hook.remove()
            results = torch.zeros(len(model.blocks), dtype=torch.float32)
            for layer, block in enumerate(model.blocks):
                hook = block.register_forward_hook(partial(patch_residual_component, layer))
                patched_logit_diff = logits_to_ave_logit_diff(model(corrupted))
                hook.remove()
                results[layer] = (patched_logit_diff - corrupted_logit_diff) / (clean_logit_diff - corrupted_logit_diff)
            rows.append(results)
    return dict(zip(("effect", "control"), rows))


class _Patched:
    """A context manager that gives one block another forward."""

    def __init__(self, block, position, value):
        self.block, self.position, self.value = block, position, value

    def __enter__(self):
        self.before = self.block.forward

        def forward(*args, **kwargs):
            h = self.before(*args, **kwargs)
            chosen = torch.zeros(h.shape[1], 1, dtype=torch.bool)
            chosen[self.position] = True
            return torch.where(chosen, self.value, h)

        self.block.forward = forward
        return self

    def __exit__(self, *exc):
        self.block.forward = self.before


@torch.no_grad()
def effects_with_a_context_manager(model, clean, corrupted, control, position, answer, other):
    model = model.train(False)

    def score(ids):
        picked = model(ids)[range(len(ids)), -1]
        return sum(float(p[a] - p[o]) for p, a, o in zip(picked, answer, other)) / len(ids)

    def recorded(ids):
        h = {}
        hooks = [
            block.register_forward_hook(lambda m, i, o, name=name: h.update({name: o}))
            for name, block in enumerate(model.blocks)
        ]
        model(ids)
        [hook.remove() for hook in hooks]
        return h

    low, high = score(corrupted), score(clean)
    out = {"effect": [], "control": []}
    for key, ids in zip(out, (clean, control)):
        states = recorded(ids)
        for number, block in enumerate(model.blocks):
            with _Patched(block, position, states[number]):
                out[key].append((score(corrupted) - low) / (high - low))
    return {key: np.array(row) for key, row in out.items()}


def effects_at_the_input_of_the_next(model, clean, corrupted, control, position, answer, other):
    """What a block returns is what the next one is given: the hooks stand before the next block, or the last norm."""
    readers = [*list(model.blocks)[1:], model.final_norm]
    pair = torch.stack((answer, other), 1)
    training = model.training
    model.eval()

    def run(ids, reader=None, vectors=None):
        def before(_, inputs):
            h, *rest = inputs
            if vectors is None:
                taken.append(h[:, position].clone())
                return None
            h = h.index_copy(1, torch.tensor([position]), vectors.unsqueeze(1))
            return (h, *rest)

        taken = []
        handle = None if reader is None else reader.register_forward_pre_hook(before)
        logits = model(ids)[:, -1].take_along_dim(pair, 1)
        if handle:
            handle.remove()
        return (logits[:, 0] - logits[:, 1]).sum(), taken

    with torch.no_grad():
        (bad, _), (good, _) = run(corrupted), run(clean)

        def ratio(reader, ids):
            return (run(corrupted, reader, run(ids, reader)[1][0])[0] - bad).div(good - bad).item()

        answer_comes_back = tuple(ratio(reader, clean) for reader in readers)
        nothing_comes_back = tuple(ratio(reader, control) for reader in readers)
    model.train(training)
    return {"effect": answer_comes_back, "control": nothing_comes_back}


# --- RoPE for longer texts --------------------------------------------------------------------------------------------


def angles_with_where(T, d_head, theta, factor, low, high, original):
    """Two choices in turn, the middle ones last, as in transformers."""
    inv_freq = 1.0 / (theta ** (torch.arange(0, d_head, 2, dtype=torch.int64).float() / d_head))
    wavelen = 2 * math.pi / inv_freq
    scaled = torch.where(wavelen > original / low, inv_freq / factor, inv_freq)
    smooth = (original / wavelen - low) / (high - low)
    between = (1 - smooth) * scaled / factor + smooth * scaled
    medium = ~(wavelen < original / high) * ~(wavelen > original / low)
    scaled = torch.where(medium, between, scaled)
    return torch.outer(torch.arange(T, dtype=torch.float32), scaled)


def angles_of_complex_numbers(T, d_head, theta, factor, low, high, original):
    """In float64, and rounded at the end."""
    pair = torch.arange(d_head // 2, dtype=torch.float64)
    speed = torch.tensor(theta, dtype=torch.float64).pow(-2 * pair / d_head)
    ramp = torch.clamp((speed * original / math.tau - low) / (high - low), min=0.0, max=1.0)
    return (torch.arange(T, dtype=torch.float64).unsqueeze(1) * (speed / factor * (1 - ramp) + speed * ramp)).float()


def angles_by_masks(T, d_head, theta, factor, low, high, original):
    """Each of the three kinds of pairs is written into its place."""
    speed = theta ** (-torch.arange(0, d_head, 2, dtype=torch.float32) / d_head)
    turns = original * speed / (2 * torch.pi)
    out, slow, middle = speed.clone(), turns < low, (turns >= low) & (turns <= high)
    out[slow] = speed[slow] / factor
    share = (turns[middle] - low) / (high - low)
    out[middle] = speed[middle] * share + speed[middle] / factor * (1 - share)
    return torch.stack([t * out for t in range(T)])


def angles_in_python(T, d_head, theta, factor, low, high, original):
    rows = []
    for t in range(T):
        row = []
        for i in range(d_head // 2):
            speed = 1 / theta ** (2 * i / d_head)
            kept = min(1.0, max(0.0, (original * speed / (2 * math.pi) - low) / (high - low)))
            row.append(t * speed * (kept + (1 - kept) / factor))
        rows.append(row)
    return torch.tensor(rows)


# --- a norm on queries and keys ---------------------------------------------------------------------------------------


class TheirRMSNorm(nn.Module):
    """As in transformers: computed in float32, and back to the dtype that came."""

    def __init__(self, gain, eps):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(gain), eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.promote_types(torch.float32, input_dtype))
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def qk_norm_as_in_transformers(q, k, v, q_gain, k_gain, angles, eps):
    """rotate_half, repeat_kv by expand, a mask of the smallest number."""
    query_states, key_states = TheirRMSNorm(q_gain, eps)(q), TheirRMSNorm(k_gain, eps)(k)
    emb = torch.cat((angles, angles), dim=-1)
    cos, sin = emb.cos()[None, None].to(q.dtype), emb.sin()[None, None].to(q.dtype)
    query_states = (query_states * cos) + (rotate_half(query_states) * sin)
    key_states = (key_states * cos) + (rotate_half(key_states) * sin)

    def repeat_kv(hidden_states, n_rep):
        batch, num_key_value_heads, slen, head_dim = hidden_states.shape
        hidden_states = hidden_states[:, :, None].expand(batch, num_key_value_heads, n_rep, slen, head_dim)
        return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)

    n_rep = q.shape[1] // k.shape[1]
    attn_weights = torch.matmul(query_states, repeat_kv(key_states, n_rep).transpose(2, 3)) * q.shape[-1] ** -0.5
    T = q.shape[2]
    causal_mask = torch.triu(torch.full((T, T), torch.finfo(q.dtype).min, dtype=q.dtype), diagonal=1)
    attn_weights = torch.nn.functional.softmax(attn_weights + causal_mask, dim=-1)
    return torch.matmul(attn_weights, repeat_kv(v, n_rep)).detach()


def qk_norm_with_the_fused_kernel(q, k, v, q_gain, k_gain, angles, eps):
    """PyTorch's own norm and attention, grouped by its flag."""
    D = q.size(-1)
    cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)

    def rope(x):
        left, right = x.split(D // 2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    q = rope(torch.nn.functional.rms_norm(q, (D,), q_gain, eps))
    k = rope(torch.nn.functional.rms_norm(k, (D,), k_gain, eps))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def qk_norm_as_in_llms_from_scratch(q, k, v, q_gain, k_gain, angles, eps):
    """The group's size, repeat_interleave, masked_fill, and keys transposed by their numbers."""
    q_norm, k_norm = nn.RMSNorm(q.shape[3], eps=eps), nn.RMSNorm(q.shape[3], eps=eps)
    q_norm.weight.data, k_norm.weight.data = q_gain, k_gain
    queries, keys = q_norm(q), k_norm(k)
    cos, sin = torch.cat([angles.cos()] * 2, dim=1).to(q.dtype), torch.cat([angles.sin()] * 2, dim=1).to(q.dtype)
    queries, keys = queries * cos + rotate_half(queries) * sin, keys * cos + rotate_half(keys) * sin
    group_size = q.shape[1] // k.shape[1]
    keys, values = keys.repeat_interleave(group_size, dim=1), v.repeat_interleave(group_size, dim=1)
    attn_scores = queries @ keys.transpose(2, 3)
    num_tokens = q.shape[2]
    mask = torch.triu(torch.ones(num_tokens, num_tokens, dtype=torch.bool), diagonal=1)
    attn_weights = torch.softmax(attn_scores.masked_fill(mask, -torch.inf) / q.shape[3] ** 0.5, dim=-1)
    return (attn_weights @ values).detach()


def qk_norm_with_complex_numbers(q, k, v, q_gain, k_gain, angles, eps):
    """Pairs as complex numbers, as in Llama's own code, here half-split."""
    turn = torch.polar(torch.ones_like(angles, dtype=q.dtype), angles.to(q.dtype))  # (T, D / 2)

    def ready(x, gain):
        x = x / x.pow(2).mean(-1, keepdim=True).add(eps).sqrt() * gain
        pairs = torch.complex(*x.contiguous().chunk(2, dim=-1)) * turn
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    heads = [h // (q.shape[1] // k.shape[1]) for h in range(q.shape[1])]
    scores = ready(q, q_gain) @ ready(k, k_gain)[:, heads].mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(q.shape[2], q.shape[2]).tril() == 0, float("-inf"))
    return torch.softmax(scores, -1) @ v[:, heads]


# --- LoRA -------------------------------------------------------------------------------------------------------------


class LoRALayerAsPublished(nn.Module):
    """In the manner of loralib: kaiming for A, zeros for B, and a transpose at every use."""

    def __init__(self, linear, r, lora_alpha, lora_dropout=0.0):
        super().__init__()
        self.linear = linear
        self.linear.weight.requires_grad = False
        if self.linear.bias is not None:
            self.linear.bias.requires_grad = False
        self.r, self.lora_alpha, self.scaling = r, lora_alpha, lora_alpha / r
        self.lora_dropout = nn.Dropout(p=lora_dropout) if lora_dropout > 0 else nn.Identity()
        self.A = nn.Parameter(self.linear.weight.new_zeros((r, self.linear.in_features)))
        self.B = nn.Parameter(self.linear.weight.new_zeros((self.linear.out_features, r)))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        nn.init.zeros_(self.B)

    def forward(self, x):
        result = nn.functional.linear(x, self.linear.weight, bias=self.linear.bias)
        result += (self.lora_dropout(x) @ self.A.transpose(0, 1) @ self.B.transpose(0, 1)) * self.scaling
        return result

    def merge(self):
        merged = nn.Linear(self.linear.in_features, self.linear.out_features, bias=self.linear.bias is not None)
        merged = merged.to(self.linear.weight.dtype)
        state = {"weight": self.linear.weight.data + (self.B @ self.A) * self.scaling}
        if self.linear.bias is not None:
            state["bias"] = self.linear.bias.data
        merged.load_state_dict(state)
        return merged


class LoRAWithLayersInside(nn.Module):
    """As in peft: A and B are the weights of two linear layers, here under the names that are asked for."""

    def __init__(self, base_layer, r, lora_alpha):
        super().__init__()
        self.linear = base_layer
        for p in self.linear.parameters():
            p.requires_grad_(False)
        down, up = nn.Linear(base_layer.in_features, r, bias=False), nn.Linear(r, base_layer.out_features, bias=False)
        nn.init.normal_(down.weight, std=1 / r)
        nn.init.zeros_(up.weight)
        self.register_parameter("A", down.weight)
        self.register_parameter("B", up.weight)
        self.scaling = lora_alpha / r

    def get_delta_weight(self):
        return self.B.data @ self.A.data * self.scaling

    @torch.no_grad()
    def merge(self):
        orig_weights = self.linear.weight.data.clone()
        orig_weights += self.get_delta_weight()
        out_features, in_features = orig_weights.shape
        new = nn.Linear(in_features, out_features, bias=self.linear.bias is not None, dtype=orig_weights.dtype)
        new.weight.copy_(orig_weights)
        if new.bias is not None:
            new.bias.copy_(self.linear.bias)
        return new

    def forward(self, x):
        return self.linear(x) + nn.functional.linear(nn.functional.linear(x, self.A), self.B) * self.scaling


class LoRAWithASubclass(nn.Module):
    """LLMs-from-scratch: the part that is added is a function of its own."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear = linear
        for param in self.linear.parameters():
            param.requires_grad = False
        self.A = torch.nn.Parameter(torch.randn(rank, linear.in_features) / math.sqrt(rank))
        self.B = torch.nn.Parameter(torch.zeros(linear.out_features, rank))
        self.alpha, self.rank = alpha, rank

    def lora(self, x):
        return (self.alpha / self.rank) * (x @ self.A.t() @ self.B.t())

    def forward(self, x):
        return self.linear(x) + self.lora(x)

    def merge(self):
        """The columns of the matrix are what it makes of the unit vectors."""
        unit = torch.eye(self.linear.in_features, dtype=self.A.dtype)
        with torch.no_grad():
            columns = self.forward(unit)
            if self.linear.bias is not None:
                columns = columns - self.linear.bias
        layer = nn.Linear(*self.linear.weight.shape[::-1], bias=False)
        layer.weight = nn.Parameter(columns.T)
        if self.linear.bias is not None:
            layer.bias = nn.Parameter(self.linear.bias.detach())
        return layer


class LoRAOnTheWeight(nn.Module):
    """As minLoRA has it: the product joins the weight before the layer is called."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear = linear
        self.linear.requires_grad_(requires_grad=False)
        out, into = linear.weight.shape
        self.register_parameter("A", nn.Parameter(torch.empty(rank, into, dtype=linear.weight.dtype)))
        self.register_parameter("B", nn.Parameter(torch.zeros(out, rank, dtype=linear.weight.dtype)))
        nn.init.xavier_uniform_(self.A)
        self.scaling = alpha / rank

    @property
    def weight(self):
        return torch.add(self.linear.weight, torch.matmul(self.B, self.A), alpha=self.scaling)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.linear.bias)

    def merge(self):
        new = nn.utils.skip_init(nn.Linear, self.A.size(1), self.B.size(0), bias=self.linear.bias is not None)
        new = new.to(self.weight.dtype)
        with torch.no_grad():
            new.weight.copy_(self.weight)
            if self.linear.bias is not None:
                new.bias.copy_(self.linear.bias)
        return new


STRANGERS = {
    "pretrained.map_gpt2": [
        with_a_list_of_transposed,
        assigned_block_by_block,
        copied_into_empty_tensors,
        as_a_tree,
        number_by_number,
    ],
    "pretrained.head_roles": [by_diagonals_of_a_pattern, by_comparing_words],
    "pretrained.patch": [
        effects_as_in_arena,
        effects_with_a_context_manager,
        effects_at_the_input_of_the_next,
    ],
    "pretrained.rope_scaling": [angles_with_where, angles_of_complex_numbers, angles_by_masks, angles_in_python],
    "pretrained.qk_norm": [
        qk_norm_as_in_transformers,
        qk_norm_with_the_fused_kernel,
        qk_norm_as_in_llms_from_scratch,
        qk_norm_with_complex_numbers,
    ],
    "pretrained.lora": [LoRALayerAsPublished, LoRAWithLayersInside, LoRAWithASubclass, LoRAOnTheWeight],
}
