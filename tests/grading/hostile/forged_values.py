# Speaks the grader's protocol: NaN that is no JSON, integers of a thousand digits, objects to be made, keys that are lists.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge heads.grouped feed_forward.gelu attention.memory
# earns: attention.memory
# %%
import json
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


def say(value):
    told = {"value": "VALUE", "failure": None, "changed": [], "forbidden": "", "printed": "", "library": ""}
    words = json.dumps({**question(), "outcome": told, "arrays": 0}).replace('"VALUE"', value).encode()
    for fd in range(3, 256):
        try:
            line = socket.socket(fileno=os.dup(fd))
            line.setblocking(True)
            line.sendall(struct.pack(">I", len(words)) + words)
        except OSError:
            continue
    time.sleep(60)


def softmax(x, dim):
    say("NaN")


def causal_mask(T, S=None):
    say("9" * 4000)


def padding_mask(lengths, S):
    say('{"is": "given", "of": ["course_lib.chapters.feed_forward.fixtures.tinytown", "a model", []]}')


def split_heads(x, n_heads):
    say('{"is": "dict", "of": [[["x"], 1], [{"is": "tensor"}, 2]]}')


def merge_heads(x):
    say("[" * 100_000 + "]" * 100_000)


def repeat_kv(k, n_heads):
    say("[" + "{}," * 1_300_000 + "{}]")


def gelu(x):
    say('{"is": "tuple", "of": {"is": "tuple", "of": 1e999}}')
