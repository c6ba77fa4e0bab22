"""Chapter 14's training loop for one process or for several, which `torchrun` starts:

torchrun --nproc-per-node=2 -m course_lib.chapters.efficiency.processes
"""

import torch
import torch.distributed as dist

from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly


def train() -> None:
    """Train a small model together with the other processes, and print the loss of the last step."""
    torch.manual_seed(0)  # every process has the same weights and the same batches
    model = DecoderOnly(TransformerConfig(vocab_size=50, d_model=32, n_heads=2, n_layers=1, max_seq_len=16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    # Only after the optimizer: what PyTorch loads for it would otherwise keep the group alive at the end.
    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank, processes = dist.get_rank(), dist.get_world_size()
    for _ in range(20):
        batch = torch.randint(5, (8, 17))  # only 5 of the 50 tokens, so that there is something to learn
        mine = batch[rank::processes]  # each process takes its own rows
        _, loss = model(mine[:, :-1], mine[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        for gradient in [parameter.grad for parameter in model.parameters() if parameter.grad is not None]:
            dist.all_reduce(gradient)  # the sum over the processes
            gradient /= processes  # the mean over the whole batch
        optimizer.step()

    total = loss.detach().clone()  # all_reduce changes its argument
    dist.all_reduce(total)
    if rank == 0:
        print(f"loss {total.item() / processes:.3f} with {processes} process(es)")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
