# Right answers, and an exit that waits: handlers, a thread, an object that sleeps when it is deleted. 60 seconds at most.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %%
import atexit
import signal
import threading
import time

signal.alarm(60)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    try:
        signal.signal(number, signal.SIG_IGN)
    except ValueError:  # not the main thread
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])


class Slow:
    def __del__(self):
        time.sleep(60)


keeps = Slow()
atexit.register(time.sleep, 60)
threading._register_atexit(time.sleep, 60)
threading.Thread(target=time.sleep, args=(60,)).start()
# %%
attention_memory = 4 * 2048 * 2048


def softmax(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()
