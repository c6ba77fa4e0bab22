# Speaks the grader's protocol: announces more calls than there are, and no outcome at all.
# expects: attention.softmax masks.causal attention.memory
# earns: attention.memory
# %%
import os
import socket
import sys
import time

from course_lib.classroom.sandbox.protocol import frame

attention_memory = 4 * 2048 * 2048


def question():
    """The number that an answer must bear, as it stands in the frames of the worker."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if "asked" in frame.f_locals:
                return frame.f_locals["asked"]
            frame = frame.f_back
    return {}


def lines():
    for fd in range(3, 256):
        try:
            line = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        if line.family == socket.AF_UNIX:
            line.setblocking(True)
            yield line


def softmax(x, dim):
    for line in lines():
        line.sendall(1000 * frame({**question(), "call": True}))
    time.sleep(60)


def causal_mask(T, S=None):
    for line in lines():
        line.sendall(1000 * frame({**question(), "call": True}) + frame({**question(), "end": True}))
    os.kill(os.getpid(), 9)
