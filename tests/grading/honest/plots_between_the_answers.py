# The learner draws: %matplotlib inline, plt.show(), a figure saved beside the notebook, a plot in the cell of an answer.
# No screen is needed for that.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %%
%matplotlib inline
import matplotlib.pyplot as plt
import torch
# %%
def softmax(x, dim):
    top = x.amax(dim=dim, keepdim=True)
    raised = (x - top).exp()
    return raised / raised.sum(dim=dim, keepdim=True)

plt.figure(figsize=(3, 2))
plt.plot(softmax(torch.linspace(-2, 2, 9), 0).numpy())
plt.title("mine")
plt.show()
# %%
figure, axes = plt.subplots()
axes.imshow(torch.eye(4))
figure.savefig("scores.png")
plt.close("all")
# %%
attention_memory = 2048 * 2048 * 4
plt.bar(["32 bit", "16 bit"], [attention_memory, attention_memory / 2]);
