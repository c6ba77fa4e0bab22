# Memory that belongs to no process: files in memory, segments that nobody is attached to. 1,200 MiB, for a few seconds.
# expects: attention.softmax
# %%
import contextlib
import ctypes
import os
import time

TOLD = "broken" "-out: "
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]


def softmax(x, dim):
    block, files, segments, held = b"x" * (8 << 20), [], [], 0
    with contextlib.suppress(OSError):
        for _ in range(150):
            files.append(os.memfd_create("m"))
            held += os.write(files[-1], block)
    for _ in range(150 - len(files) + 50):
        segment = libc.shmget(0, 8 << 20, 0o1600)
        address = libc.shmat(segment, None, 0) if segment >= 0 else None
        if address and address != ctypes.c_void_p(-1).value:
            segments.append(segment)
            ctypes.memset(address, 1, 8 << 20)
            libc.shmdt(address)
            held += 8 << 20
    time.sleep(2)  # time to be noticed
    for segment in segments:
        libc.shmctl(segment, 0, None)
    if held > 1000 << 20:
        raise RuntimeError(f"{TOLD}{held >> 20} MiB are held")
    return x
