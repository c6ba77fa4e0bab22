# Jupyter allows `await` at the top level of a cell. One answer stands in such a cell, another is a number that was awaited.
# expects: sampling.temperature counting.gpt2
# earns: sampling.temperature counting.gpt2
# %%
import asyncio
import torch
# %%
await asyncio.sleep(0)

def temperature_softmax(logits, temperature):
    if temperature == 0:
        hard = torch.zeros_like(logits)
        hard.scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        return hard
    return (logits / temperature).softmax(-1)
# %%
async def count():
    await asyncio.sleep(0.01)
    d = 768
    block = 4 * (d * d + d) + 2 * d * 3072 + 3072 + d + 4 * d
    return 50257 * d + 2048 * d + 10 * block + 2 * d

counting_gpt2 = await count()
# %%
async with asyncio.timeout(1):
    both = await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
