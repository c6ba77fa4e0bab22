# Fills /tmp, /dev/shm and its own folder, 180 MiB in all: more than it was given must not fit. Then it empties them.
# expects: attention.softmax
# touches: mark
# %%
import contextlib
import os

TOLD = "broken" "-out: "


def fill(folder, most):
    written = 0
    for number in range(most // (4 << 20)):
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, f"{MARK}-{number}"), "wb") as file:
                written += file.write(b"x" * (4 << 20))
    return written


def softmax(x, dim):
    sizes = {folder: fill(folder, 60 << 20) for folder in ("/tmp", "/dev/shm", ".")}
    for folder in sizes:
        for name in os.listdir(folder):
            if name.startswith("{MARK}"):
                os.unlink(os.path.join(folder, name))
    if sum(sizes.values()) > 120 << 20:
        raise RuntimeError(TOLD + repr(sizes))
    return x
