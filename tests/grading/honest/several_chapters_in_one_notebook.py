# The learner keeps everything in one notebook of their own. Only one exercise still has its check; the others were answered
# without, one of them in a form that no search for `name =` at the beginning of a line would find.
# expects: attention.memory counting.flops masks.patterns heads.merge
# earns: attention.memory counting.flops masks.patterns heads.merge
# %%
from course_lib.grading import check

attention_memory = 2048 * 2048 * 4
check("attention.memory", attention_memory)
# %%
def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens
# %%
rest, masks_patterns = None, {"b", "d", "i"}
# %%
if True:
    def merge_heads(x):
        return x.transpose(1, 2).flatten(2)
