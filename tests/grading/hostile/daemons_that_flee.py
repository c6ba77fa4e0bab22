# A process that forks and ends, again and again, so that whoever kills it comes too late: 300 generations.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# touches: mark
# %%
import contextlib
import os
import time

if os.fork() == 0:
    os.setsid()
    with contextlib.suppress(OSError):
        with open("/proc/self/comm", "w") as file:
            file.write("{MARK}")
    for _ in range(300):
        if os.fork():
            os.kill(os.getpid(), 9)
        time.sleep(0.005)
    os.kill(os.getpid(), 9)
# %%
attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()
