# Speaks the grader's protocol: lengths of four gigabytes, negative and missing ones, and half a frame, a byte at a time.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge heads.grouped attention.memory
# earns: attention.memory
# %%
import os
import socket
import struct
import sys
import time

attention_memory = 4 * 2048 * 2048


def question():
    """The number that an answer must bear, as it stands in the frames of the worker."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if "asked" in frame.f_locals:
                return frame.f_locals["asked"]
            frame = frame.f_back
    return {}


def say(*pieces, pause=0.0):
    lines = []
    for fd in range(3, 256):
        try:
            lines.append(socket.socket(fileno=os.dup(fd)))
            lines[-1].setblocking(True)
        except OSError:
            continue
    end = time.monotonic() + 60
    for piece in pieces:
        for line in lines:
            try:
                line.sendall(piece)
            except OSError:
                continue
        time.sleep(pause)
    while time.monotonic() < end:
        time.sleep(1)


def framed(text):
    text = text.replace(b'{"outcome"', b'{"question": %d, "outcome"' % question().get("question", 0))
    return struct.pack(">I", len(text)) + text


def softmax(x, dim):
    say(struct.pack(">I", 0xFFFFFFFF), b"x" * 10_000_000)


def causal_mask(T, S=None):
    say(framed(b'{"outcome": {}, "arrays": -5}'))


def padding_mask(lengths, S):
    say(framed(b'{"outcome": {}, "arrays": 1e3}'))


def split_heads(x, n_heads):
    say(framed(b'{"outcome": {}, "arrays": 67000000}'), b"x" * 10_000)


def merge_heads(x):
    say(struct.pack(">I", 1000), *[b"{"] * 200, pause=0.2)


def repeat_kv(k, n_heads):
    say(framed(b"null"), framed(b"[]"), framed(b""), framed(b"\xff\xfe"))
