import torch


def model_loss(model, ids, targets):
    return model(ids, targets)[1]


def overfit_with(
    model,
    ids,
    targets,
    steps,
    *,
    trained=lambda model: model,
    make=lambda parameters: torch.optim.AdamW(parameters, lr=5e-3),
    objective=model_loss,
    update=lambda optimizer: optimizer.step(),
    note=lambda loss: loss,
):
    model = trained(model)
    optimizer, losses = make(model.parameters()), []
    for _ in range(steps):
        loss = objective(model, ids, targets)
        optimizer.zero_grad()
        loss.backward()
        update(optimizer)
        losses.append(note(loss.item()))
    return losses
