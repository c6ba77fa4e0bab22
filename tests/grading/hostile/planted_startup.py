# Files that Python or pytest would run by themselves, and a course_lib of its own in which every answer is right.
# expects: attention.softmax attention.memory
# touches: mark
# %% [file sitecustomize.py]
open("{OUTSIDE}/{MARK}-site", "w").close()
# %% [file usercustomize.py]
open("{OUTSIDE}/{MARK}-user", "w").close()
# %% [file conftest.py]
open("{OUTSIDE}/{MARK}-conftest", "w").close()
# %% [file pytest_plugin.py]
open("{OUTSIDE}/{MARK}-plugin", "w").close()
# %% [file setup.py]
open("{OUTSIDE}/{MARK}-setup", "w").close()
# %% [file __main__.py]
open("{OUTSIDE}/{MARK}-main", "w").close()
# %% [file course_lib/__init__.py]
open("{OUTSIDE}/{MARK}-course", "w").close()
# %% [file course_lib/grading/__init__.py]
check = grade = lambda *args: {"passed": True}
# %% [file course_lib/grading/judge/compare.py]
compare = same = lambda *args, **kwargs: None
# %% [file course_lib/classroom/sandbox/protocol.py]
open("{OUTSIDE}/{MARK}-protocol", "w").close()
# %% [file evil.pth]
import os; open("{OUTSIDE}/{MARK}-pth", "w").close()
# %%
import importlib
import subprocess
import sys

sys.path.insert(0, "")
for name in [name for name in sys.modules if name.startswith("course_lib")]:
    del sys.modules[name]
import course_lib.grading

attention_memory = course_lib.grading.grade


def softmax(x, dim):
    subprocess.run([sys.executable, "-c", "pass"], timeout=1)
    return importlib.import_module("course_lib.grading").check("attention.softmax", softmax)
