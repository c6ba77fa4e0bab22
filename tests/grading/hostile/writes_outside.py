# Writes to whatever it can reach: the course, installed packages, the home, other folders; and to the teacher's file.
# What it writes is empty and bears a mark, by which it is found and removed.
# expects: attention.softmax
# touches: mark canary
# %%
import contextlib
import os
import site
import sys
import sysconfig

import course_lib
import torch

TOLD = "broken" "-out: "
folders = ["{REPO}", "{REPO}/course_lib", "{REPO}/tests", "{HOME}", "{OUTSIDE}", "/etc", "/usr/lib", "/usr/local/lib",
           "/usr/bin", "/var/tmp", "/run", "/opt", "/", "/dev", "/proc/1/root{OUTSIDE}", os.path.dirname(torch.__file__),
           os.path.dirname(course_lib.__file__), sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"),
           *site.getsitepackages(), *sys.path]


def softmax(x, dim):
    told = []
    for folder in folders:
        for name in ("{MARK}", "{MARK}.pth", "{MARK}.py"):
            with contextlib.suppress(OSError):
                os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    for module in list(sys.modules.values()):  # nothing is written: that they open for writing is enough
        with contextlib.suppress(OSError, TypeError):
            os.close(os.open(getattr(module, "__file__", None) or "/", os.O_WRONLY | os.O_APPEND))
            told.append(module.__file__)
    with contextlib.suppress(OSError):
        with open("{CANARY}", "a") as file:
            file.write("changed")
        told.append("the canary")
    if told:
        raise RuntimeError(TOLD + ", ".join(told[:5]))
    return x
