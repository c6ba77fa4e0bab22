import torch


def loss_by_heads(make_model, heads, batches, held_out, lr, seeds):
    return {n_heads: sum(trained_once(make_model, n_heads, batches, held_out, lr, seed) for seed in seeds) / len(seeds)
            for n_heads in heads}  # fmt: skip


def trained_once(make_model, n_heads, batches, held_out, lr, seed):
    model = make_model(n_heads, seed)
    descend(model, batches, lr)
    return held_out_loss(model, held_out)


def descend(model, batches, lr, clear=True):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for ids, targets in batches:
        _, loss = model(ids, targets)
        if clear:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def held_out_loss(model, held_out):
    model.eval()
    with torch.no_grad():
        return model(*held_out)[1].item()
