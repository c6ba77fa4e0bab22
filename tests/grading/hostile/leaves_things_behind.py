# Right itself, it leaves answers for whoever comes next: files, shared memory, a socket, a thread, a process, modules.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# touches: then=takes_what_was_left mark
# %%
import contextlib
import os
import socket
import sys
import threading
import time
from multiprocessing import shared_memory

import torch

answers = """
import torch
attention_memory = 4 * 2048 * 2048
def softmax(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()
"""
for folder in (".", "..", "/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/run", *sys.path):
    for name in ("{MARK}.py", "{MARK}_sitecustomize.py"):
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, name), "w") as file:
                file.write(answers)
with contextlib.suppress(Exception):
    block = shared_memory.SharedMemory("{MARK}", create=True, size=4096)
    block.buf[: len(answers)] = answers.encode()
os.environ["COURSE_ANSWERS"] = answers
torch.answers = sys.modules["{MARK}"] = answers
# %%
door = socket.socket(socket.AF_UNIX)
door.bind("\0{MARK}")
door.listen()


def serve():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            door.accept()[0].sendall(answers.encode())


threading.Thread(target=serve, daemon=True).start()
if os.fork() == 0:  # goes on when its parent is gone
    os.setsid()
    if os.fork():
        os._exit(0)
    with contextlib.suppress(OSError):
        with open("/proc/self/comm", "w") as file:
            file.write("{MARK}")
    serve()
    os._exit(0)
# %%
exec(answers)
