# Answers get their names by globals(), exec, setattr on the module __main__, a loop over a table, and %time. Each is a name
# of the notebook in the end.
# expects: counting.flops feed_forward.swiglu_width attention.memory heads.parameters normalization.parameters
# earns: counting.flops feed_forward.swiglu_width attention.memory heads.parameters normalization.parameters
# %%
import math
import __main__
# %%
globals()["train_flops"] = lambda n_params, n_tokens: 8 * n_params * n_tokens
# %%
exec("""
def swiglu_hidden(d_model, multiple_of):
    return math.ceil(8 * d_model / (3 * multiple_of)) * multiple_of
""")
# %%
__main__.attention_memory = 4 * 2048 * 2048
assert attention_memory == 16_777_216
# %%
for name, number in {"heads_parameters": 4 * 513 * 512}.items():
    vars()[name] = number
# %%
%time normalization_parameters = 4 * 768
