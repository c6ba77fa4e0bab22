# Names in Greek, with accents and in full-width letters. Python takes ｓｏｆｔｍａｘ for softmax (NFKC), so it is the answer.
# expects: normalization.layer_norm attention.softmax
# earns: normalization.layer_norm attention.softmax
# %%
import torch
# %%
def layer_norm(x, γ, β, ε):
    μ = x.mean(-1, keepdim=True)
    σ2 = ((x - μ) ** 2).mean(-1, keepdim=True)
    return γ * (x - μ) / torch.sqrt(σ2 + ε) + β
# %%
größte = torch.amax

def ｓｏｆｔｍａｘ(x, dim):
    naïve = torch.exp(x - größte(x, dim, True))
    return naïve / naïve.sum(dim, True)
