# IPython's commands of one line, in the cells of the answers too: %load_ext, %timeit, %config, ?name, name??, %pip, a
# magic that is assigned, one inside of a block. None is Python, all are usual.
# expects: attention.softmax attention.saturation
# earns: attention.softmax attention.saturation
# %%
%load_ext autoreload
%autoreload 2
%config InlineBackend.figure_format = "retina"
%precision 4
import torch
%pip install -q einops
!pip install --quiet torchinfo
# %%
here = %pwd
names = !ls
%env OMP_NUM_THREADS=1
# %%
def softmax(x, dim):
    shares = (x - x.max(dim, keepdim=True)[0]).exp()
    return shares / shares.sum(dim, keepdim=True)

%timeit -n 1 -r 1 softmax(torch.ones(3), 0)
?softmax
softmax?
softmax??
%time softmax(torch.ones(3), 0)
# %%
if torch.cuda.is_available():
    !nvidia-smi
else:
    %who
# %%
%%timeit -n 1 -r 1
softmax(torch.ones(4), 0)
# %%
def attention_entropy(scores, d_k, scaled):
    p = softmax(scores / d_k**0.5 if scaled else scores, -1)
    return -torch.where(p > 0, p * p.clamp(min=1e-45).log(), torch.zeros_like(p)).sum(-1)
torch.nn.functional.softmax?
