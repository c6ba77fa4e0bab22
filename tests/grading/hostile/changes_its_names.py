# A namespace that answers for every name; deleted builtins; globals cleared in the middle of an answer.
# expects: attention.softmax masks.causal attention.memory heads.parameters
# %%
import builtins


class Names(dict):
    def __missing__(self, name):
        return 1_050_625

    def get(self, name, default=None):
        return 1_050_625

    def items(self):
        return [(name, 1_050_625) for name in ("attention_memory", "heads_parameters")]


shell = get_ipython()
shell.user_ns = Names(shell.user_ns)
shell.user_global_ns.update(attention_memory=1_050_625)
# %%
def softmax(x, dim):
    globals().clear()
    return x


def causal_mask(T, S=None):
    vars(builtins).clear()
    return T
