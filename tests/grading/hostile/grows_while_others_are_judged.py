# Answers, and leaves threads and a child behind that take 1,500 MiB while the grader looks at the answer.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import os
import threading
import time

attention_memory = 4 * 2048 * 2048
kept = []


def grow(chunks):
    for _ in range(chunks):
        kept.append(bytearray(b"x" * (50 << 20)))
        time.sleep(0.01)
    time.sleep(30)


def softmax(x, dim):
    if os.fork() == 0:
        grow(15)
        os.kill(os.getpid(), 9)
    threading.Thread(target=grow, args=(15,), daemon=True).start()
    return x
