# Connects to a listener on this machine: TCP, UDP, by name, by HTTP, by a socket file, by sockets no namespace parts.
# expects: attention.softmax
# touches: listener
# %%
import contextlib
import socket
import subprocess
import sys
import urllib.request

TOLD = "broken" "-out: "


def attempts():
    for family, place in ((socket.AF_INET, ("127.0.0.1", {PORT})), (socket.AF_INET6, ("::1", {PORT})),
                          (socket.AF_INET6, ("::ffff:127.0.0.1", {PORT})), (socket.AF_UNIX, "{UNIX}"),
                          (socket.AF_UNIX, "\0{MARK}-listener")):
        with contextlib.suppress(OSError), socket.socket(family) as line:
            line.settimeout(0.3)
            line.connect(place)
            line.sendall(b"home")
            yield f"connects to {place}"
    for family in (socket.AF_VSOCK, socket.AF_PACKET, 44):  # past every network namespace, under it, and around it
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            with contextlib.suppress(OSError), socket.socket(family, kind):
                yield f"opens a socket of family {family}"
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"home", ("127.0.0.1", {PORT}))
    with contextlib.suppress(OSError), socket.create_connection(("localhost", {PORT}), 0.3):
        yield "connects by name"
    with contextlib.suppress(OSError):
        yield f"reads {urllib.request.urlopen('http://127.0.0.1:{PORT}/', timeout=0.3).status}"
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as line:
        line.sendto(bytes(20), ("127.0.0.1", {PORT}))
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        code = "import socket; socket.create_connection(('127.0.0.1', {PORT}), 0.3)"
        subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=1, stderr=subprocess.DEVNULL)
        yield "connects from another process"


def softmax(x, dim):
    if told := list(attempts()):
        raise RuntimeError(TOLD + ", ".join(told))
    return x
