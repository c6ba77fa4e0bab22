# Asks the kernel for news of files that every learner sees: whoever opens one, tells something.
# expects: attention.softmax
# %%
import ctypes
import fcntl
import os
import signal

TOLD = "broken" "-out: "
libc = ctypes.CDLL(None, use_errno=True)


def heard():
    watch = libc.inotify_init1(os.O_NONBLOCK)
    if watch >= 0 and libc.inotify_add_watch(watch, os.__file__.encode(), 0x20) >= 0:  # IN_OPEN
        open(os.__file__).close()
        if os.read(watch, 4096):
            yield "inotify"
    if libc.fanotify_init(0, 0) >= 0:
        yield "fanotify"
    folder = os.open(os.path.dirname(os.__file__), os.O_RDONLY)
    try:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS)
        yield "dnotify"
    except (OSError, ValueError):
        pass
    os.close(folder)


def softmax(x, dim):
    if ways := list(heard()):
        raise RuntimeError(TOLD + ", ".join(ways))
    return x
