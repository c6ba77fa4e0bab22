# One cell cannot be parsed, a parenthesis is missing. What it would have defined is lost, and nothing else.
# expects: sampling.temperature sampling.top_k sampling.nucleus_size
# earns: sampling.temperature sampling.nucleus_size
# %%
import torch
# %%
def temperature_softmax(logits, temperature):
    if temperature > 0:
        return torch.softmax(logits / temperature, -1)
    return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
# %%
def top_k_filter(logits, k):
    smallest = logits.topk(min(k, logits.shape[-1]).values[..., -1:]
    return logits.masked_fill(logits < smallest, -torch.inf)
# %%
sampling_nucleus_size = {"confident": 1, "uncertain": 7}
