# A cell that never ends, and one that swallows what should stop it: the answers below them still count.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %%
import signal
import time

signal.alarm(60)
while True:
    pass
# %%
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        time.sleep(1)
    except BaseException:
        pass
# %%
attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()
