# Prints 150 MB in a right answer, to stdout and stderr, by print, by the streams and by their descriptors.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %%
import logging
import os
import sys
import warnings

attention_memory = 4 * 2048 * 2048
line = "x" * (1 << 20) + "\n"


def softmax(x, dim):
    if x.ndim == 1 and len(x) == 3:
        for _ in range(20):
            print(line)
            sys.stderr.write(line)
            os.write(1, line.encode())
            os.write(2, line.encode())
            warnings.warn(line, stacklevel=1)
            logging.error(line)
            sys.__stdout__.write(line)
    return (x - x.logsumexp(dim, keepdim=True)).exp()
