# Ten children take 300 MiB each and hold it for a minute: no process takes much, all together do.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import os
import time

attention_memory = 4 * 2048 * 2048
TOLD = "broken" "-out: "


def softmax(x, dim):
    told, tell = os.pipe()
    for _ in range(10):
        if os.fork() == 0:
            block = bytearray(b"x" * (300 << 20))
            os.write(tell, b"x")
            time.sleep(60)
            os.kill(os.getpid(), 9)
    held = b""
    while len(held) < 10:
        held += os.read(told, 1)
    time.sleep(2)  # time to be noticed
    raise RuntimeError(TOLD + "3,000 MiB are held")
