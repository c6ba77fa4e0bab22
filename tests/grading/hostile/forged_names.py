# Speaks the grader's protocol while the cells run: thousands of answers for each name, cells that do not exist.
# Then each of these answers is "left open", so that the next is asked.
# expects: attention.softmax attention.memory
# touches: text
# %%
import json
import os
import socket
import struct
import time

lines = []
for fd in range(3, 256):
    try:
        lines.append(socket.socket(fileno=os.dup(fd)))
        lines[-1].setblocking(True)
    except OSError:
        continue


def say(**message):
    words = json.dumps({**message, "arrays": 0}).encode()
    for line in lines:
        try:
            line.sendall(struct.pack(">I", len(words)) + words)
        except OSError:
            continue


say(cell=-1)
say(cell="<b>")
say(cell=None)
say(cell=10**30)
say(
    found={"softmax": 9999, "attention_memory": 9999, "x": 1},
    open=["softmax", 5, None],
    troubles=["\ud800\x1b[31m<b>" * 100, {"t": [[[5]]]}, None] * 1000,
    salvaged=["\ud800\x1b[31m<script>alert(1)</script>" * 100, {"t": [[[5]]]}, None] * 1000,
)
dots = {"value": {"is": "dots"}, "failure": None, "changed": [], "forbidden": "", "printed": "", "library": ""}
number, end = 0, time.monotonic() + 60
while time.monotonic() < end:
    number += 1
    try:
        heard = lines[-1].recv(1 << 20)
    except OSError:
        break
    if not heard:
        break
    say(question=number, outcome=dots)
    say(question=number, end=True)
