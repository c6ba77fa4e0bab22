# Sleeps in an answer, in pieces and in one, for a minute.
# expects: attention.softmax masks.causal
# %%
import threading
import time

end = time.monotonic() + 60


def softmax(x, dim):
    while time.monotonic() < end:
        try:
            time.sleep(0.01)
        except BaseException:
            continue


def causal_mask(T, S=None):
    threading.Event().wait(max(0, end - time.monotonic()))
