"""Processes: distribute one training run over several processes, on one or several machines.

Chapter 12. `torchrun` starts the same script in several processes. Each process has a copy of the model and its own
batches. After the backward pass the processes average their gradients, so that all make the same update
(DistributedDataParallel; Li et al. 2020). With shards no process stores the entire model: weights, gradients and
moments are split, and a block's weights are gathered only when they are needed (fully_shard; Rajbhandari et al. 2020,
ZeRO; Zhao et al. 2023). With a single process none of this applies.
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
    """Join the run that `torchrun` started, and return the device of this process. Move model and ids to this device.

    The settings come from the environment variables that torchrun sets. A script started by plain python is a single
    process and joins nothing, so the same script works either way. The processes communicate through gloo on CPUs and
    nccl on GPUs.

        torchrun --nproc-per-node 2 my_script.py

    Errors: ValueError if there are more processes on this machine than GPUs.
    """
    local, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if 0 < gpus <= local:
        raise ValueError(
            f"process {local} of this machine finds only {gpus} GPUs: start with --nproc-per-node {gpus} or less"
        )
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
        atexit.register(leave_processes)
    return device


def leave_processes() -> None:
    """Leave the run that `join_processes` joined; this happens automatically at the end of a script."""
    if dist.is_initialized():
        dist.destroy_process_group()


def count() -> int:
    """Return the number of processes in the run, 1 without `torchrun`."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, from 0 to count() − 1. Process 0 writes files and shows the progress bar."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather(numbers: Tensor) -> Tensor:
    """Return the tensors of all processes, (processes, …). All have to call it, with tensors of the same shape."""
    if not dist.is_initialized():
        return numbers[None]
    everyones = [torch.empty_like(numbers) for _ in range(count())]
    dist.all_gather(everyones, numbers)
    return torch.stack(everyones)


def require_same(what: str, numbers: list[float], remedy: str) -> None:
    """Raise ValueError unless all processes have the same number; `numbers` has one entry per process."""
    if len(set(numbers)) > 1:
        raise ValueError(f"the processes differ in {what}: {numbers}. {remedy}")


def draw_apart() -> None:
    """Give each process its own random numbers, so that dropout differs between them. Call this after the weights are
    initialized; batches have their own generator."""
    if rank():
        torch.manual_seed(torch.initial_seed() + rank())


def share_model(
    model: nn.Module, optimizer: torch.optim.Optimizer, shard: bool, done: int = 0
) -> tuple[nn.Module, nn.Module]:
    """Return (the module with the trained weights, the module to call). All processes start from the weights of the
    first one, and their gradients are averaged. A single process gets `model` twice.

    With shard, both are a copy whose weights are split among the processes, and the optimizer switches to this copy.
    `model` then stays unchanged until `give_back`. done: the number of updates so far, the same in all processes.
    """
    if not dist.is_initialized():
        return model, model
    everyones = gather(torch.tensor([float(done)])).flatten().tolist()
    require_same("updates done", everyones, "All must see the same checkpoint: name a file in a folder that they share")
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    if not shard:
        return model, DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh  # slow to import, and rarely needed
    from torch.distributed.fsdp import fully_shard

    sharded = copy.deepcopy(model)
    mesh = init_device_mesh(next(model.parameters()).device.type, (count(),))
    for module in sharded.modules():
        if isinstance(module, TransformerBlock):
            fully_shard(module, mesh=mesh)
    fully_shard(sharded, mesh=mesh)  # the parameters outside the blocks
    hand_over(optimizer, model, sharded)
    return sharded, sharded


def give_back(trained: nn.Module, model: nn.Module) -> None:
    """Copy weights that were trained in shards to the model, and wait for all processes. All have to call it."""
    if trained is not model:
        model.load_state_dict(whole(trained.state_dict()))
    if dist.is_initialized():
        dist.barrier()  # no process leaves while others still read its data


def require_company(shard: bool) -> None:
    """Raise ValueError if `shard` is set but there is only one process."""
    if shard and not dist.is_initialized():
        raise ValueError(
            "shard=True splits the model among processes, and there is only one: call join_processes() first, and "
            "start the script with torchrun --nproc-per-node 2"
        )


def hand_over(optimizer: torch.optim.Optimizer, model: nn.Module, sharded: nn.Module) -> None:
    """Switch the optimizer to the sharded parameters; of its moments, each process keeps its own part."""
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
    """Return a tensor or a state dict with every sharded tensor gathered into a full tensor. All processes have to call
    it."""
    return tree_map(lambda each: each.full_tensor() if hasattr(each, "full_tensor") else each, state)


@contextmanager
def averaging(model: Any, now: bool) -> Iterator[None]:
    """Average gradients over processes within this context only if `now` is true: once per update is enough."""
    if hasattr(model, "set_requires_gradient_sync"):  # split by fully_shard
        model.set_requires_gradient_sync(now)
    elif isinstance(model, DistributedDataParallel) and not now:
        with model.no_sync():
            yield
        return
    yield
