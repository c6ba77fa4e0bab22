# SIGSTOP to itself: the process neither answers nor ends. So that it ends by itself, a child wakes it after a minute.
# expects: attention.softmax
# %%
import os
import signal
import time


def softmax(x, dim):
    me = os.getpid()
    if os.fork() == 0:
        time.sleep(60)
        os.kill(me, signal.SIGKILL)
        os._exit(0)
    os.kill(me, signal.SIGSTOP)
