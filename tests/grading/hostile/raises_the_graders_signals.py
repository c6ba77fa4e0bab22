# Raises what the grader itself uses to stop an answer, what ends a program, and what has no message.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge heads.grouped feed_forward.gelu attention.memory
# earns: attention.memory
# %%
from course_lib.grading.judge.limits import Exit, Stop

attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    raise Stop


def causal_mask(T, S=None):
    raise Exit


def padding_mask(lengths, S):
    raise KeyboardInterrupt


def split_heads(x, n_heads):
    raise GeneratorExit


def merge_heads(x):
    error = ValueError("first")
    for _ in range(5000):
        error = ExceptionGroup("a group", [error])
    raise error


def repeat_kv(k, n_heads):
    raise type("Odd", (BaseException,), {"__str__": lambda self: 5, "args": property(lambda self: 1 / 0)})


def gelu(x):
    raise type("NotImplementedError", (NotImplementedError,), {"__str__": lambda self: "✓ Passed"})
