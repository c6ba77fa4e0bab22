import copy

import torch
from torch import nn

from course_lib.chapters.blocks.fixtures import small_stack
from course_lib.chapters.blocks.fixtures import trained_both as probe
from course_lib.grading.exercise import Case, Given, generator, stage


def compare_orders(pre, post, inputs, targets, learning_rate):
    """Train both models; return the losses of every step of the pre-norm model,
    and of the post-norm model."""

    def train(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
        losses = []
        for ids, wanted in zip(inputs, targets):
            _, loss = model(ids, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    return train(pre), train(post)


def pre(x, branch, norm):
    return x + branch(norm(x))


def post(x, branch, norm):
    return norm(x + branch(x))


SIZES = {"vocab_size": 12, "d_model": 24, "n_blocks": 12}


@stage
def twelve_blocks(seed):
    "Two untrained models of twelve blocks, one of each order, Xavier initialization; 16 batches; learning rate 0.01."
    rng = generator(seed)
    follows = torch.randperm(12, generator=rng)
    inputs = torch.randint(12, (16, 4, 8), generator=rng)  # (steps, B, T)
    models = [
        Given(small_stack, SIZES | {"pre_norm": pre_norm}, seed, says=f"a {name} model of twelve blocks")
        for name, pre_norm in (("pre-norm", True), ("post-norm", False))
    ]
    return [Case(*models, inputs, follows[inputs], 0.01)]


# Over 20 seeds the pre-norm model ends at 0.7 to 1.3. The post-norm model stays at chance (ln 12 = 2.48) and ends at
# 2.48 to
# 2.62. float64 or a fused step changes the losses of pre-norm and the first four of post-norm by less than 0.001, the
# others by up to 0.03. Other settings of AdamW could hide in that, so we watch the optimizer's steps.
def judge(case, expected, got):
    if not isinstance(got, dict):
        return "Expected two lists of numbers: the losses of the pre-norm model, and of the post-norm model."
    for name in ("pre", "post"):
        right, own = (
            {key.removeprefix(f"{name}: "): value for key, value in each.items() if key.startswith(f"{name}: ")}
            for each in (expected, got)
        )
        if own["losses"] != right["losses"]:
            return f"Expected {right['losses']} losses of the {name}-norm model, one per step; got {own['losses']}."
        if not own["moved"]:
            return f"No parameter of the {name}-norm model that you were given has moved."
        if own["moved"] != right["moved"]:
            return f"{own['moved']} of {right['moved']} parameters of the {name}-norm model have moved: train all."
        if own["other settings"]:
            other = ", ".join(own["other settings"])
            return f"The {name}-norm model needs AdamW with `learning_rate` and its default settings: look at {other}."
        if own["updates"] not in (right["updates"], [0]):  # we cannot see the steps of a hand-written optimizer
            return f"The {name}-norm model takes {own['updates']} steps; expected {right['updates']}, one per batch."
        if own["gradients altered"]:
            return f"The {name}-norm model's gradients are changed between `backward` and the step: do not clip them."
        for step, (one, other) in enumerate(zip(right["followed"], own["followed"], strict=True)):
            if not abs(one - other) < (0.01 if step < 4 else 0.02):
                return f"Loss {step} of the {name}-norm model is {other:.2f}; expected {one:.2f}."
        late, own_late = right["mean of the last three"], own["mean of the last three"]
        if not abs(late - own_late) < 0.1:
            return f"The last losses of the {name}-norm model are about {own_late:.2f}; expected {late:.2f}."
    return None
