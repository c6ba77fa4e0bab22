# SIGKILL to itself in the middle of an answer.
# expects: attention.softmax
# %%
import os
import signal


def softmax(x, dim):
    os.kill(os.getpid(), signal.SIGKILL)
