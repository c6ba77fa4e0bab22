# Sockets whose names lie in no folder: calls the teacher's, and looks for those of others.
# expects: attention.softmax
# %%
import contextlib
import socket

TOLD = "broken" "-out: "


def softmax(x, dim):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as line, contextlib.suppress(OSError):
            line.connect("\0{MARK}-listener")
            raise RuntimeError(TOLD + "somebody answers")
    with contextlib.suppress(OSError), open("/proc/net/unix") as file:
        names = [each.split("@", 1)[1].strip() for each in file if "@" in each]
        if names:
            raise RuntimeError(TOLD + ", ".join(names)[:500])
    return x
