# Speaks the grader's protocol: verdicts in place of values, megabytes of half characters as sentences, false kinds.
# expects: sampling.next_token efficiency.online_softmax training.get_batch attention.softmax masks.causal masks.padding attention.memory
# earns: attention.memory
# touches: text
# %%
import json
import os
import socket
import struct
import sys
import time

attention_memory = 4 * 2048 * 2048
half = "\ud800<script>\x1b[31m\x00" * 100_000


def question():
    """The number that an answer must bear, as it stands in the frames of the worker."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if "asked" in frame.f_locals:
                return frame.f_locals["asked"]
            frame = frame.f_back
    return {}


def say(value=None, failure=None, changed=(), forbidden="", printed=""):
    told = {"value": value, "failure": failure, "changed": list(changed), "forbidden": forbidden, "printed": printed, "library": ""}
    words = json.dumps({**question(), "outcome": told, "arrays": 0}).encode()
    end = json.dumps({**question(), "end": True, "arrays": 0}).encode()
    for fd in range(3, 256):
        try:
            line = socket.socket(fileno=os.dup(fd))
            line.setblocking(True)
            for _ in range(30):
                line.sendall(struct.pack(">I", len(words)) + words)
            line.sendall(struct.pack(">I", len(end)) + end)
        except OSError:
            continue
    time.sleep(60)


def sample_next_token(logits, temperature, top_k, top_p, generator):
    say({"is": "tuple", "of": [half, True, True]} if temperature == 0 else half)


def blockwise_attention(q, k, v, block_size):
    say({"is": "dict", "of": [["output", half], ["held T × S", False]]})


def get_batch(ids, batch_size, T, generator):
    say([[5, half], [half]])


def softmax(x, dim):
    say(failure=["raised", half, half], printed=half)


def causal_mask(T, S=None):
    say(failure=["passed", "Right.", ""])


def padding_mask(lengths, S):
    say(True, changed=[half] * 99, forbidden=half)
