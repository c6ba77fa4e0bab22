"""Processes: one training run shared by several, on one machine or on many.

Chapter 12. `torchrun` starts the same script as often as it is told. Each process holds the model and reads its own
batches; after the backward pass all of them average their gradients, so that all make the same update
(DistributedDataParallel; Li et al. 2020). With shards no process keeps the whole: weights, gradients and moments are
split, and a block's weights are gathered when it is their turn (fully_shard; Rajbhandari et al. 2020, ZeRO; Zhao et al.
2023). Who trains alone never notices any of this.
"""

import atexit
import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from course_lib.blocks import TransformerBlock


def join_processes() -> torch.device:
    """Join the run that `torchrun` started, and return the device of this process: put model and ids there.

    It reads what torchrun has written into the environment. A script that python started by itself is alone: nothing
    happens, so that the same script serves both. They talk over gloo on CPUs, over nccl on GPUs.

        torchrun --nproc-per-node 2 my_script.py

    Errors: ValueError if there are more processes on this machine than GPUs.
    """
    local, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if 0 < gpus <= local:
        raise ValueError(f"process {local} of this machine finds {gpus} GPUs: give --nproc-per-node {gpus} at most")
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
        atexit.register(leave_processes)
    return device


def leave_processes() -> None:
    """Leave the run that `join_processes` joined; at the end of a script this happens by itself."""
    if dist.is_initialized():
        dist.destroy_process_group()


def count() -> int:
    """Return how many processes share the run: 1 for who is alone."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return which of them this one is: 0, the one that writes files and shows the bar, to count() − 1."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather(numbers: Tensor) -> Tensor:
    """Return what each process holds, (processes, …), to each of them. All have to call it, with one shape."""
    if not dist.is_initialized():
        return numbers[None]
    everyones = [torch.empty_like(numbers) for _ in range(count())]
    dist.all_gather(everyones, numbers)
    return torch.stack(everyones)


def require_same(what: str, numbers: list[float], remedy: str) -> None:
    """Raise ValueError unless all processes hold the same number, of which `numbers` has each one's."""
    if len(set(numbers)) > 1:
        raise ValueError(f"the processes differ in {what}: {numbers}. {remedy}")


def draw_apart() -> None:
    """Let each process drop other features: from here on it draws other numbers than the first. Weights are drawn
    before, and batches have a generator of their own."""
    if rank():
        torch.manual_seed(torch.initial_seed() + rank())


def share_model(
    model: nn.Module, optimizer: torch.optim.Optimizer, shard: bool, done: int = 0
) -> tuple[nn.Module, nn.Module]:
    """Return (the module that holds what is trained, the module to call): the same weights in all processes, those of
    the first, and gradients that are averaged over all. Who is alone is given `model` twice.

    With shard both are a copy of which each process keeps its part, and the optimizer goes over to it; `model` stays
    whole and as it is, until `give_back`. done: updates done, which must be as many in all of them.
    """
    if not dist.is_initialized():
        return model, model
    everyones = gather(torch.tensor([float(done)])).flatten().tolist()
    require_same("updates done", everyones, "All must see the same checkpoint: name a file in a folder that they share")
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    if not shard:
        return model, DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh  # a second to import, and few need it
    from torch.distributed.fsdp import fully_shard

    sharded = copy.deepcopy(model)
    mesh = init_device_mesh(next(model.parameters()).device.type, (count(),))
    for module in sharded.modules():
        if isinstance(module, TransformerBlock):
            fully_shard(module, mesh=mesh)
    fully_shard(sharded, mesh=mesh)  # what stands in no block
    hand_over(optimizer, model, sharded)
    return sharded, sharded


def give_back(trained: nn.Module, model: nn.Module) -> None:
    """Give the model the weights that were trained in shards, and wait for all. All have to call it."""
    if trained is not model:
        model.load_state_dict(whole(trained.state_dict()))
    if dist.is_initialized():
        dist.barrier()  # nobody leaves while others still read what it has sent


def require_company(shard: bool) -> None:
    """Raise ValueError if shards are asked for where there is nobody to share with."""
    if shard and not dist.is_initialized():
        raise ValueError(
            "shard=True splits the model among processes, and this one is alone: call join_processes() first, and "
            "start the script with torchrun --nproc-per-node 2"
        )


def hand_over(optimizer: torch.optim.Optimizer, model: nn.Module, sharded: nn.Module) -> None:
    """Let the optimizer go on with the shards: its parameters, and of its moments each process's part."""
    from torch.distributed.tensor import distribute_tensor

    part_of: dict[Any, Any] = dict(zip(model.parameters(), sharded.parameters()))
    for group in optimizer.param_groups:
        group["params"] = [part_of[parameter] for parameter in group["params"]]
    for whole in list(optimizer.state):
        part, numbers = part_of[whole], optimizer.state.pop(whole)
        optimizer.state[part] = {
            name: distribute_tensor(number, part.device_mesh, part.placements) if number.dim() else number
            for name, number in numbers.items()
        }


def whole(state: Any) -> Any:
    """Return a tensor, or a state that holds tensors, with all that is split among processes whole. All have to call
    it."""
    return tree_map(lambda each: each.full_tensor() if hasattr(each, "full_tensor") else each, state)


@contextmanager
def averaging(model: Any, now: bool) -> Iterator[None]:
    """Within it a backward pass averages gradients over processes only if `now`: once per update is enough."""
    if hasattr(model, "set_requires_gradient_sync"):  # split by fully_shard
        model.set_requires_gradient_sync(now)
    elif isinstance(model, DistributedDataParallel) and not now:
        with model.no_sync():
            yield
        return
    yield
