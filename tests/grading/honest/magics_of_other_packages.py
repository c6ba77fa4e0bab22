# Line magics of extensions that the course does not ask for stand above answers in the same cells: TensorBoard, a line
# profiler, a watermark, Colab's. On the learner's machine they did their work; the answers are no part of it.
# expects: heads.merge counting.flops attention.memory
# earns: heads.merge counting.flops attention.memory
# %%
%load_ext tensorboard
%tensorboard --logdir runs
import torch

def merge_heads(x):
    return x.movedim(1, 2).flatten(2)
# %%
%load_ext line_profiler
def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens

%lprun -f train_flops train_flops(2, 3)
%memit train_flops(2, 3)
# %%
%watermark -v -p torch,numpy
%tensorflow_version 2.x
attention_memory = 2048 * 2048 * 4
