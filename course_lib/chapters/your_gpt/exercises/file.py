from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.chapters.your_gpt import comparison
from course_lib.chapters.your_gpt.fixtures import a_stage
from course_lib.chapters.your_gpt.fixtures import results_of_stage as probe
from course_lib.config import TransformerConfig
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.sampling import sample_next_token


class Embedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        table = torch.randn(config.vocab_size, config.d_model)
        self.weight = nn.Parameter(0.02 * table)

    def forward(self, ids):
        return self.weight[ids]


class Positions(nn.Module):
    def __init__(self, config):
        super().__init__()
        table = torch.randn(config.max_seq_len, config.d_model)
        self.weight = nn.Parameter(0.02 * table)

    def forward(self, x):
        return x + self.weight[: x.shape[1]]


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.eps = config.norm_eps
        self.weight = nn.Parameter(torch.ones(config.d_model))
        self.bias = nn.Parameter(torch.zeros(config.d_model))

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True, unbiased=False)
        steady = (x - mean) / torch.sqrt(var + self.eps)
        return steady * self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_heads = config.n_heads
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def split(self, x):
        B, T, d_model = x.shape
        return x.view(B, T, self.n_heads, d_model // self.n_heads).transpose(1, 2)

    def forward(self, x):
        B, T, d_model = x.shape
        q = self.split(self.q_proj(x))  # (B, H, T, D)
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, T, T)
        allowed = torch.ones(T, T, dtype=torch.bool).tril().to(x.device)
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        heads = weights @ v  # (B, H, T, D)
        return self.out_proj(heads.transpose(1, 2).reshape(B, T, d_model))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.d_model, config.d_ff)
        self.down_proj = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x):
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm1, self.attention = Norm(config), Attention(config)
        self.norm2, self.feed_forward = Norm(config), FeedForward(config)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class MyGPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embedding = Embedding(config)
        self.positions = Positions(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.final_norm = Norm(config)
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("proj.bias"):
                nn.init.zeros_(weight)
        self.output.weight = self.token_embedding.weight  # one table, two uses

    def forward(self, ids, targets=None):
        x = self.positions(self.token_embedding(ids))
        for block in self.blocks:
            x = block(x)
        logits = self.output(self.final_norm(x))  # (B, T, V)
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def training_step(model, ids, targets, optimizer):
    optimizer.zero_grad()
    _, loss = model(ids, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def write(model, ids, n_tokens, generator):
    for _ in range(n_tokens):
        read = ids[:, -model.config.max_seq_len :]
        with torch.no_grad():
            logits = model(read)[:, -1]  # (B, V)
        drawn = sample_next_token(logits, generator=generator)  # (B,)
        ids = torch.cat([ids, drawn[:, None]], dim=1)
    return ids


# --- the stages -------------------------------------------------------------------------------------------------------


same = comparison.same_results


def judge(case, expected, got):
    found = comparison.first_difference(case.args[0].data[0], expected, got)
    if found is None or got == comparison.LENT:
        return found and str(found)
    return str(replace(found, where=case.args[0].says.partition(": ")[2]))


def compared(of, seed):
    """Return the cases of a stage: the sizes, the weights and the inputs depend on the seed."""
    rng = generator(seed)

    def drawn(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    n_heads, d_head = drawn(2, 4), drawn(2, 4)
    config = TransformerConfig(
        vocab_size=drawn(9, 14),
        d_model=n_heads * d_head * 2,
        n_heads=n_heads,
        n_layers=2,
        max_seq_len=drawn(6, 10),
        d_ff=drawn(10, 20),
    )
    found = comparison.cases(of, config, seed)
    if of in ("Block", "MyGPT", "training_step", "write"):
        found += [comparison.alone(case) for case in found]
    says = "a GPT of {} blocks with {} heads and {} features: {}"
    sizes = config.n_layers, config.n_heads, config.d_model
    return [Case(Given(a_stage, *each.data, says=says.format(*sizes, each.where))) for each in found]


@stage
def embedding(seed):
    "`Embedding`: 1, 3 and max_seq_len tokens, in 1 row and in 4."
    return compared("Embedding", seed)


@stage
def positions(seed):
    "`Positions`: 1, 3 and max_seq_len tokens, in 1 row and in 4."
    return compared("Positions", seed)


@stage
def norm(seed):
    "`Norm`: every norm of the model, with weights that are not 1 and biases that are not 0."
    return compared("Norm", seed)


@stage
def attention(seed):
    "`Attention`: 1, 3 and max_seq_len tokens, in 1 row and in 4."
    return compared("Attention", seed)


@stage
def feed_forward(seed):
    "`FeedForward`: 1, 3 and max_seq_len tokens, in 1 row and in 4."
    return compared("FeedForward", seed)


@stage
def block(seed):
    "`Block`: the order of norms, branches and sums."
    return compared("Block", seed)


@stage
def my_gpt(seed):
    "`MyGPT`: logits, loss, targets of -100, and one table for reading and for the output."
    return compared("MyGPT", seed)


@stage
def one_update(seed):
    "`training_step`: two updates, with short and long gradients, by SGD and by AdamW."
    return compared("training_step", seed)


@stage
def writing(seed):
    "`write`: short texts, and texts longer than max_seq_len."
    return compared("write", seed)
