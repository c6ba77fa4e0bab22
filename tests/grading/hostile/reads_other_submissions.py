# Looks for notebooks of other learners beside its own, above it, and in the teacher's folder.
# expects: attention.softmax attention.memory
# touches: canary
# %%
import contextlib
import glob
import json
import os
import time

end = time.monotonic() + 20
names = {}
for root in ("{OUTSIDE}", os.getcwd(), "..", "../..", "/tmp", "/sub", "/home", *glob.glob("/proc/[0-9]*/cwd")):
    for folder, folders, files in os.walk(root):
        if time.monotonic() > end:
            break
        for name in files:
            if name.endswith(".ipynb"):
                with contextlib.suppress(Exception):
                    with open(os.path.join(folder, name)) as file:
                        for cell in json.load(file)["cells"]:
                            exec("".join(cell["source"]), names)
# %%
globals().update({name: value for name, value in names.items() if name in ("softmax", "attention_memory")})
