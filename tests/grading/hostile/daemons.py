# Right answers, and processes that leave the family: two forks, a session of their own, the streams held open, a minute.
# expects: attention.softmax attention.memory masks.causal
# earns: attention.softmax attention.memory
# touches: mark
# %%
import contextlib
import os
import signal
import time

SEEN = []  # by the answer that earns points: forking at each call could cost it the time that it has


def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os.kill(os.getpid(), signal.SIGKILL)
        with contextlib.suppress(OSError):
            with open("/proc/self/comm", "w") as file:
                file.write("{MARK}")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_IGN)
        time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL)


daemon()
# %%
attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    if not SEEN:
        SEEN.append(x)
        daemon()
    return (x - x.logsumexp(dim, keepdim=True)).exp()


def causal_mask(T, S=None):
    daemon()
