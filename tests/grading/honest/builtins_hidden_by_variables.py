# Variables are called list, sum, max, id, type, len, print, range, dict, str, Exception and input. The answers use other
# ways; the grader must not lean on the learner's names.
# expects: masks.padding attention.memory normalization.worked_example
# earns: masks.padding attention.memory normalization.worked_example
# %%
import torch

list = [1, 2, 3]
sum = 0
max, min = 7, 1
id = "ada"
type = "decoder"
dict = {}
# %%
len = 12
print = None
range = (0, 1)
str = "text"
isinstance = callable = getattr = tuple = set = int = float = bool = None
Exception = BaseException = NotImplementedError = "none of these"
input = torch.ones(2)
globals = locals = vars = dir = open = compile = exec = eval = 5
# %%
def padding_mask(lengths, S):
    return torch.arange(S).repeat(lengths.shape[0], 1).lt(lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1)
# %%
attention_memory = 2048 * 2048 * 4
# %%
x = torch.tensor([4.0, 6.0, 10.0, 12.0])
normalization_worked_example = {"y1": -2.5298, "y2": -0.1325, "y3": -0.6838, "y4": 1.8974}
normalization_worked_example["std_before"], normalization_worked_example["std_after"] = x.std(), (1.0 / 3 * 4) ** 0.5
