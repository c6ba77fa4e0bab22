# Two hundred threads that wait for a minute, some of them computing. The answers beside them are right.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import threading
import time

end = time.monotonic() + 60
attention_memory = 4 * 2048 * 2048


def wait():
    while time.monotonic() < end:
        time.sleep(0.5)


def compute():
    while time.monotonic() < end:
        sum(range(1000))


def softmax(x, dim):
    for number in range(200):
        threading.Thread(target=compute if number < 4 else wait).start()
    raise RuntimeError("enough")
