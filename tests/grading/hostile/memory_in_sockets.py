# Thirty children fill the buffers of sockets, as large as they may be, until 1,200 MiB are held that no process owns.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import contextlib
import os
import socket
import time

attention_memory = 4 * 2048 * 2048
TOLD = "broken" "-out: "
MOST = 1200 << 20


def fill(most):
    kept, held = [], 0
    with contextlib.suppress(OSError):
        while held < most:
            pair = socket.socketpair()
            kept.append(pair)
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
                end.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while held < most:
                        held += end.send(b"x" * (1 << 16))
    return kept, held


def softmax(x, dim):
    told, tell = os.pipe()
    children = 0
    with contextlib.suppress(OSError):
        while children < 30:
            if os.fork() == 0:
                kept, held = fill(MOST // 30)
                os.write(tell, held.to_bytes(8, "big"))
                time.sleep(60)
                os.kill(os.getpid(), 9)
            children += 1
    held = sum(int.from_bytes(os.read(told, 8), "big") for _ in range(children))
    time.sleep(2)  # time to be noticed
    if held > 1000 << 20:
        raise RuntimeError(f"{TOLD}{held >> 20} MiB are held")
    return x
