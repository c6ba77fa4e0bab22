# A loop that no exception of Python's can enter: it never comes back to Python. An alarm ends it after a minute.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import signal

signal.alarm(60)
attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    return sum(range(10**12))
