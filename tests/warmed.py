"""What the process has done from which the tests' kernels are forked (`warm.py`): its first step of training and its
first picture, for which torch and matplotlib import another thousand modules, all of them their own."""

import gc
import os

import torch
from matplotlib.figure import Figure

from course_lib.live import figure
from tests import warm  # noqa: F401  # what a kernel runs first

weight = torch.nn.Parameter(torch.ones(2, 2))
if os.environ.get("COURSE_DEVICE") == "pretend":
    from tests import pretend  # noqa: F401  # makes it known
else:  # with a second device, the backward pass starts threads, and a fork would lose them
    (weight @ weight).sum().backward()
torch.nn.utils.clip_grad_norm_([weight], 1.0)
torch.optim.AdamW([weight], fused=True).step()
torch.broadcast_shapes((1,), (2,))
del weight

# Nothing compares the pixels of a notebook's pictures; their words, and that they can be drawn.
figure.DPI = 50
drawn = Figure()
drawn.subplots().set_title("$x$")
figure.png(drawn)
del drawn

gc.collect()
gc.freeze()  # a kernel that looks for garbage need not look through all of this, nor copy it
