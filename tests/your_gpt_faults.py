"""Faults for tests/filled_my_gpt.py, and right files that are written in another way.

A fault: its stage, an old and a new text, the tensor in which it first shows, the smallest input for which it shows,
and words of the message: the name of the mistake, or what to look at.
"""

from pathlib import Path

FILLED = (Path(__file__).parent / "filled_my_gpt.py").read_text(encoding="utf-8")
LOOKUP = "P.lookup(self.weight, ids)"
ROWS = "self.weight[: x.shape[1]]"
NORM = "P.norm(x, self.weight, self.bias, self.eps)"
HEADS = "heads, _ = P.attention(q, k, v, P.mask(x.shape[1]).to(x.device))"
FFN = 'P.feed_forward(x, up.weight.T, up.bias, down.weight.T, down.bias, "gelu")'
BLOCK = "return P.block(x, self.attention, self.feed_forward, self.norm1, self.norm2)"
LOSS = "F.cross_entropy(logits.flatten(0, 1), targets.flatten())"
STEP = "return P.step(model, ids, targets, optimizer, 1.0)"
READ = "ids[:, -model.config.max_seq_len :]"
DRAW = "P.draw(logits, generator)[:, None]"


def scores(change, mask="~P.mask(x.shape[1])"):
    """Return attention by hand, with a change of the scores, and the mask of what is hidden."""
    return f"""s = q @ k.mT / q.shape[-1] ** 0.5
        s = {change}
        heads = s.masked_fill({mask}, -torch.inf).softmax(-1) @ v"""


def step(clip="nn.utils.clip_grad_norm_(model.parameters(), 1.0)", before="optimizer.zero_grad()", loss="loss.item()"):
    """Return a training step by hand."""
    return f"""{before}
    loss = model(ids, targets)[1]
    loss.backward()
    {clip}
    optimizer.step()
    return {loss}"""


ONE, THREE, FOUR_ROWS = "1 token in 1 row", "3 tokens in 1 row", "1 token in 4 rows"
LONG, SHORT = "a gradient far above norm 1", "a gradient below norm 1"

FAULTS = {
    "tokens scaled": ("Embedding", LOOKUP, f"{LOOKUP} * 12**0.5", "token_embedding", ONE, "Tokens scaled: "),
    "one token in a thousand too large": (
        "Embedding", LOOKUP, f"{LOOKUP} * 1.001", "token_embedding", ONE, "Look up row ids[b, t] of the table"),
    "batch and tokens exchanged": (
        "Embedding", LOOKUP, "P.lookup(self.weight, ids.T)", "token_embedding", FOUR_ROWS, "exchanges rows and tokens"),
    "positions from the end": (
        "Positions", ROWS, "self.weight[-x.shape[1] :]", "positions", ONE, "Positions from the end: "),
    "one position for all": ("Positions", ROWS, "self.weight[0]", "positions", THREE, "One position for all: "),
    "positions by the batch": (
        "Positions", ROWS, "self.weight[: len(x), None]", "positions", FOUR_ROWS, "Positions along the batch: "),
    "every second position": (
        "Positions", ROWS, "self.weight.repeat(2, 1)[::2][: x.shape[1]]", "positions", THREE, "One token is right"),
    "no bias in the norm": ("Norm", NORM, "P.norm(x, self.weight, 0 * self.bias, self.eps)", "blocks.0.norm1", ONE,
        "The norm's bias missing: "),
    "eps fixed": (
        "Norm", NORM, "P.norm(x, self.weight, self.bias, 1e-5)", "blocks.0.norm1", ONE, "An eps of its own: "),
    "RMSNorm": ("Norm", NORM, "x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias",
        "blocks.0.norm1", ONE, "RMSNorm: "),
    "variance by d - 1": (
        "Norm", NORM,
        "(x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias",
        "blocks.0.norm1", ONE, "Unbiased variance: "),
    "eps outside": (
        "Norm", NORM,
        "(x - x.mean(-1, True)) / (x.var(-1, False, keepdim=True).sqrt() + self.eps) * self.weight + self.bias",
        "blocks.0.norm1", ONE, "Eps outside the root: "),
    "mean over all tokens": (
        "Norm", NORM,
        "(x - x.mean((1, 2), True)) / (x.var((1, 2), False, keepdim=True) + self.eps).sqrt() * self.weight + self.bias",
        "blocks.0.norm1", THREE, "Norm over tokens and features: "),
    "no gradient through the mean": (
        "Norm", NORM, "P.norm(x - x.mean(-1, True).detach(), self.weight, self.bias, self.eps).detach() + 0 * x",
        "gradient through blocks.0.norm1", ONE, "part of it is cut off from the gradient"),
    "no scale": ("Attention", HEADS, scores("q @ k.mT"), "blocks.0.attention", THREE, "No scaling: "),
    "wrong scale": ("Attention", HEADS, scores("q @ k.mT / x.shape[-1] ** 0.5"), "blocks.0.attention", THREE,
        "Scaled by the width of the model: "),
    "no mask": (
        "Attention", HEADS, scores("s", "torch.tensor(False)"), "blocks.0.attention", THREE, "No mask: "),
    "mask off by one": ("Attention", HEADS, scores("s", "torch.ones(len(x[0]), len(x[0])).triu(2).bool()"),
        "blocks.0.attention", THREE, "Mask one token too wide: "),
    "own token hidden": (
        "Attention", HEADS, scores("s", "torch.ones(len(x[0]), len(x[0])).triu(0).bool()"), "blocks.0.attention", ONE,
        "Own token hidden: "),
    "mask transposed": ("Attention", "P.mask(x.shape[1])", "P.mask(x.shape[1]).T", "blocks.0.attention", THREE,
        "Mask the wrong way round: "),
    "a window of two": (
        "Attention", HEADS, scores("s", "~P.mask(x.shape[1]).triu(-1)"), "blocks.0.attention", THREE,
        "One token is right, so look at what mixes tokens"),
    "heads mixed up in the reshape": (
        "Attention", "q = P.split(self.q_proj(x), self.n_heads)  # (B, H, T, D)\n        k = P.split(self.k_proj(x), "
        "self.n_heads)\n        v = P.split(self.v_proj(x), self.n_heads)",
        "q, k, v = (p(x).view(len(x), self.n_heads, x.shape[1], -1) for p in (self.q_proj, self.k_proj, self.v_proj))",
        "blocks.0.attention", THREE, "Heads cut across tokens: "),
    "heads merged without a transpose": (
        "Attention", "self.out_proj(P.merge(heads))", "self.out_proj(heads.reshape(x.shape))", "blocks.0.attention",
        THREE, "Heads merged without a transpose: "),
    "no output projection": ("Attention", "self.out_proj(P.merge(heads))", "P.merge(heads)", "blocks.0.attention", ONE,
        "No output projection: "),
    "RoPE on values": ("Attention", HEADS, """half = v.shape[-1] // 2
        a = torch.arange(x.shape[1])[:, None] * 10000 ** (-torch.arange(half) / half)
        v = torch.view_as_complex(torch.stack([v[..., :half], v[..., half:]], -1)) * torch.polar(torch.ones(a.shape), a)
        v = torch.cat([v.real, v.imag], -1)
        """ + HEADS, "blocks.0.attention", THREE, "RoPE on values: "),
    "softmax over the queries": ("Attention", HEADS, scores("s").replace("softmax(-1)", "softmax(-2)"),
        "blocks.0.attention", THREE, "Softmax over the queries: "),
    "bias missing": (
        "Attention", "self.k_proj = nn.Linear(config.d_model, config.d_model)",
        "self.k_proj = nn.Linear(config.d_model, config.d_model, bias=False)", "blocks.0.attention", ONE,
        "your model has no weight `blocks.0.attention.k_proj.bias`"),
    "dropout in evaluation": ("Attention", "self.out_proj(P.merge(heads))",
        "F.dropout(self.out_proj(P.merge(heads)), 0.2)", "blocks.0.attention", ONE,
        "Dropout stays on in the attention: "),
    "no dropout switch in evaluation": (
        "FeedForward", f"return {FFN}", f"return F.dropout({FFN}, 0.3)", "blocks.0.feed_forward", ONE,
        "Dropout stays on in the feed-forward: "),
    "ReLU": ("FeedForward", 'down.bias, "gelu")', 'down.bias, "relu")', "blocks.0.feed_forward", ONE, "ReLU: "),
    "another form of GELU": ("FeedForward", f"return {FFN}", 'return down(F.gelu(up(x), approximate="tanh"))',
        "blocks.0.feed_forward", ONE, "The tanh form of GELU: "),
    "no activation": (
        "FeedForward", f"return {FFN}", "return down(up(x))", "blocks.0.feed_forward", ONE, "No activation: "),
    "norm after the branch": (
        "Block", BLOCK,
        "x = x + self.norm1(self.attention(x))\n        return x + self.norm2(self.feed_forward(x))", "blocks.0", ONE,
        "Norm after the branch: "),
    "no residual": ("Block", BLOCK, BLOCK.replace("x, self.att", "0 * x, self.att"), "blocks.0", ONE,
        "Each branch reads the normalized stream"),
    "one norm twice": (
        "Block", BLOCK, BLOCK.replace("norm2", "norm1"), "blocks.0", ONE, "One norm for both branches: "),
    "branches exchanged": (
        "Block", BLOCK, "return P.block(x, self.feed_forward, self.attention, self.norm2, self.norm1)", "blocks.0", ONE,
        "Feed-forward first: "),
    "missing final norm": ("MyGPT", "self.output(self.final_norm(x))", "self.output(x)", "logits", ONE,
        "No final norm: "),
    "untied": ("MyGPT", "self.output.weight = self.token_embedding.weight", "pass",
        "output.weight and token_embedding.weight", ONE, "Two tables: "),
    "blocks backwards": (
        "MyGPT", "in self.blocks:", "in self.blocks[::-1]:", "logits", ONE, "Blocks backwards: "),
    "one block twice": (
        "Norm", "nn.ModuleList(Block(config) for _ in range(config.n_layers))",
        "nn.ModuleList([Block(config)] * config.n_layers)", "blocks.0.norm1", ONE, "is shared with another layer"),
    "loss over padding": (
        "MyGPT", LOSS, f"{LOSS[:-1]}, reduction='sum') / targets.numel()", "loss where some targets are -100",
        FOUR_ROWS, "Loss over padding: "),
    "wrong shift of targets": (
        "MyGPT", LOSS, "F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())", "loss", ONE,
        "Targets shifted again: "),
    "mean over the wrong axis": (
        "MyGPT", LOSS, "torch.stack([F.cross_entropy(*row) for row in zip(logits, targets)]).mean()",
        "loss where some targets are -100", FOUR_ROWS, "Mean of the rows' means: "),
    "softmax twice": ("MyGPT", LOSS, LOSS.replace("logits", "logits.softmax(-1)"), "loss", ONE,
        "Softmax before the loss: "),
    "no clipping": ("training_step", "optimizer, 1.0)", "optimizer, 1e9)", "loss of step 2", LONG, "No clipping: "),
    "clipping at 5": (
        "training_step", "optimizer, 1.0)", "optimizer, 5.0)", "loss of step 2", LONG, "Clipping at norm 5: "),
    "clipping at a half": (
        "training_step", "optimizer, 1.0)", "optimizer, 0.5)", "loss of step 2", LONG, "Clipping at another norm: "),
    "clipping at 3": (
        "training_step", "optimizer, 1.0)", "optimizer, 3.0)", "loss of step 2", LONG, "Compare the steps in order: "),
    "each tensor clipped": (
        "training_step", STEP, step("for p in model.parameters(): nn.utils.clip_grad_norm_([p], 1.0)"),
        "loss of step 2", LONG, "Each tensor clipped: "),
    "short gradients made longer": ("training_step", STEP, step(
        "n = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "    for p in model.parameters(): p.grad.div_(n.clamp(max=1.0))"),
        "loss of step 2", SHORT, "Always scaled to norm 1: "),
    "old gradients": (
        "training_step", STEP, step(before="pass"), "token_embedding.weight after 2 steps", SHORT,
        "Old gradients kept: "),
    "loss afterwards": ("training_step", STEP, step(loss="model(ids, targets)[1].item()"), "loss of step 1", SHORT,
        "Loss after the update: "),
    "weight decay on norms": (
        "training_step", STEP, step("nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "    for p in model.parameters(): p.data.mul_(0.99)"),
        "token_embedding.weight after 2 steps", SHORT, "Weight decay on norms: "),
    "Adam's epsilon": ("training_step", STEP, "for group in optimizer.param_groups: group['eps'] = 1e-8\n    " + STEP,
        "loss of step 2", "AdamW", "Adam's epsilon changed: "),
    "no loss returned": (
        "training_step", STEP, STEP.replace("return ", ""), "loss of step 1", SHORT, "Nothing returned: "),
    "temperature": ("write", DRAW, "P.draw(logits / 0.8, generator)[:, None]", "ids",
        "new tokens after 3 tokens in 4 rows", "Temperature of 0.8: "),
    "temperature after top-k": (
        "write", DRAW,
        "P.draw(logits.masked_fill(logits < logits.topk(3).values[:, -1:], -torch.inf) / 0.8, generator)[:, None]",
        "ids", "", "Temperature after top-k: "),
    "greedy": ("write", DRAW, "logits.argmax(-1)[:, None]", "ids", "", "Greedy: "),
    "the first position": ("write", "[:, -1]  # (B, V)", "[:, 0]  # (B, V)", "ids", "after 3 tokens in 4 rows",
        "Logits of the first position: "),
    "the beginning of the text": (
        "write", READ, "ids[:, : model.config.max_seq_len]", "ids", "24 new tokens", "The first tokens read: "),
    "a text too long": ("write", READ, "ids", "ids", "24 new tokens", "Text not shortened: "),
    "one token for all rows": (
        "write", DRAW, "P.draw(logits[:1], generator).repeat(len(ids))[:, None]", "ids", "in 4 rows",
        "One token for all rows: "),
    "the new tokens alone": (
        "write", "    return ids\n", "    return ids[:, -n_tokens:]\n", "ids", "", "Only the new tokens returned: "),
}  # fmt: skip


RIGHT = {
    "q, k and v from one product": (
        "q = P.split(self.q_proj(x), self.n_heads)  # (B, H, T, D)\n        k = P.split(self.k_proj(x), self.n_heads)\n"
        "        v = P.split(self.v_proj(x), self.n_heads)",
        "every = self.q_proj, self.k_proj, self.v_proj\n"
        "        y = F.linear(x, torch.cat([p.weight for p in every]), torch.cat([p.bias for p in every]))\n"
        "        q, k, v = (P.split(part, self.n_heads) for part in y.chunk(3, -1))"),
    "one layer for q, k and v": (
        "self.q_proj = nn.Linear(config.d_model, config.d_model)\n        self.k_proj = nn.Linear(config.d_model, "
        "config.d_model)\n        self.v_proj = nn.Linear(config.d_model, config.d_model)",
        "self.qkv_proj = nn.Linear(config.d_model, 3 * config.d_model)",
        "q = P.split(self.q_proj(x), self.n_heads)  # (B, H, T, D)\n        k = P.split(self.k_proj(x), self.n_heads)\n"
        "        v = P.split(self.v_proj(x), self.n_heads)",
        "q, k, v = (P.split(part, self.n_heads) for part in self.qkv_proj(x).chunk(3, -1))"),
    "einsum": (
        HEADS,
        "s = torch.einsum('bhtd,bhsd->bhts', q, k) / q.shape[-1] ** 0.5\n"
        "        s = s.masked_fill(~P.mask(x.shape[1]), -torch.inf).softmax(-1)\n"
        "        heads = torch.einsum('bhts,bhsd->bhtd', s, v)"),
    "torch's fused kernel": (HEADS, "heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    "the mask in a buffer": (
        "        self.n_heads = config.n_heads\n",
        "        self.n_heads = config.n_heads\n"
        "        self.register_buffer('mask', torch.ones(config.max_seq_len, config.max_seq_len).tril().bool())\n",
        "P.mask(x.shape[1]).to(x.device)", "self.mask[: x.shape[1], : x.shape[1]]"),
    "positions in a buffer": (
        "        self.weight = nn.Parameter(0.02 * torch.randn(config.max_seq_len, config.d_model))",
        "        self.register_buffer('steps', torch.arange(config.max_seq_len), persistent=False)\n"
        "        self.weight = nn.Parameter(0.02 * torch.randn(config.max_seq_len, config.d_model))",
        ROWS, "F.embedding(self.steps[: x.shape[1]], self.weight)"),
    "torch's layer_norm": (NORM, "F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)"),
    "helpers with other names": (
        f"        return {NORM}",
        f"        return self.steady(x)\n\n    def steady(self, x):\n        return {NORM}"),
    "classes with other names": ("Attention", "CausalSelfAttention", "FeedForward", "MLP"),
    "no output layer, but the table itself": (
        "        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)\n", "",
        "        self.output.weight = self.token_embedding.weight  # one table, two uses\n", "",
        "self.output(self.final_norm(x))", "self.final_norm(x) @ self.token_embedding.weight.T"),
    "dropout that evaluation switches off": (
        BLOCK, "drop = lambda y: F.dropout(y, self.norm1.p, self.training)\n"
        "        x = x + drop(self.attention(self.norm1(x)))\n"
        "        return x + drop(self.feed_forward(self.norm2(x)))",
        "self.eps = config.norm_eps", "self.eps, self.p = config.norm_eps, config.dropout"),
    "a training step by hand": (STEP, step(before="model.train()\n    optimizer.zero_grad(set_to_none=True)")),
    "a list of columns": (
        "    for _ in range(n_tokens):\n", "    columns = list(ids.T)\n    for _ in range(n_tokens):\n",
        "        ids = torch.cat([ids, P.draw(logits, generator)[:, None]], dim=1)\n    return ids",
        "        columns.append(P.draw(logits, generator))\n        ids = torch.stack(columns, 1)\n    return ids"),
    "multinomial": (DRAW, "torch.multinomial(logits.softmax(-1), 1, generator=generator)"),
}  # fmt: skip


def with_fault(text, name):
    """Return the filled file with a fault."""
    _, old, new, *_ = FAULTS[name]
    assert text.count(old) == 1, (name, text.count(old))
    return text.replace(old, new)


def written_otherwise(text, name):
    """Return the filled file, written in another way that is right as well."""
    changes = iter(RIGHT[name])
    for old, new in zip(changes, changes):
        assert old in text, (name, old)
        text = text.replace(old, new)
    return text
