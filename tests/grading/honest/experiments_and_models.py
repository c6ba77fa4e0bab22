# Answers that are called with models, optimizers and generators, which come from the grader: a training step, an update
# that clips, a test for leaks. They call methods of what they are given and alter what they may.
# expects: training.step training.clip masks.leak_test
# earns: training.step training.clip masks.leak_test
# %%
import torch
# %%
def training_step(model, ids, targets, optimizer, max_norm):
    for parameter in model.parameters():
        parameter.grad = None
    logits, loss = model(ids, targets)
    loss.backward()
    clip_gradients(list(model.parameters()), max_norm)
    optimizer.step()
    return float(loss)
# %%
def clip_gradients(parameters, max_norm):
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = sum((g.double() ** 2).sum().item() for g in gradients) ** 0.5
    for g in gradients:
        g.mul_(min(1.0, max_norm / norm) if norm else 1.0)
    return norm
# %%
def leaks_future(model, ids):
    with torch.no_grad():
        whole = model(ids)
        for t in range(1, ids.shape[1]):
            if not torch.allclose(model(ids[:, :t]), whole[:, :t], rtol=1e-4, atol=1e-4):
                return True
    return False
