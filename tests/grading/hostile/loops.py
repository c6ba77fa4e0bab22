# A loop in an answer, and one that swallows whatever is thrown into it. Both end after a minute.
# expects: attention.softmax masks.causal
# %%
import time

end = time.monotonic() + 60


def softmax(x, dim):
    while time.monotonic() < end:
        pass


def causal_mask(T, S=None):
    while time.monotonic() < end:
        try:
            while time.monotonic() < end:
                pass
        except BaseException:
            pass
        finally:
            continue
