# The library's own class and functions under the answers' names, by way of torch.compile, which gives back what it gets.
# expects: normalization.rms_norm masks.causal attention.memory
# earns: attention.memory
# %%
import torch
import course_lib.masks
import course_lib.normalization

attention_memory = 2048 * 2048 * 4
RMSNorm = torch.compile(course_lib.normalization.RMSNorm)
causal_mask = torch.compile(dynamic=True)(course_lib.masks.causal_mask)
