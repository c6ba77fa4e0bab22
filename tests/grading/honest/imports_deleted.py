# The cell of the imports is gone; in the learner's kernel the names were still there. The imports with which every exercise
# notebook begins are given, so two answers are earned, one of which needs none. The third needs a module that the learner
# alone had imported: after "Restart and run all" it raises for the learner, too.
# expects: attention.softmax attention.worked_example feed_forward.swiglu_width
# earns: attention.softmax attention.worked_example
# %%
def softmax(x, dim):
    e = (x - x.amax(dim, True)).exp()
    return e / e.sum(dim, True)
# %%
def attention_weights(Q, K):
    return torch.softmax(Q @ K.T / math.sqrt(Q.shape[-1]), dim=-1)
# %%
def swiglu_hidden(d_model, multiple_of):
    return next(width for width in itertools.count(0, multiple_of) if 3 * width >= 8 * d_model)
