# One answer maps over a pool of threads, one waits for a thread. Cells call a program and start a process of their own,
# and an answer stands below the line that looks at its exit code.
# expects: heads.split embeddings.lookup attention.memory
# earns: heads.split embeddings.lookup attention.memory
# %%
import multiprocessing
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
# %%
def split_heads(x, n_heads):
    with ThreadPoolExecutor(2) as pool:
        return torch.stack(list(pool.map(lambda part: part.clone(), x.chunk(n_heads, -1))), dim=1)
# %%
found = {}

def embedding_lookup(weight, ids):
    def work():
        found["rows"] = weight.index_select(0, ids.reshape(-1)).view(*ids.shape, -1)
    helper = threading.Thread(target=work)
    helper.start()
    helper.join()
    return found["rows"]
# %%
print(subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout)
# %%
child = os.fork()
if child == 0:
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3

process = multiprocessing.Process(target=print, args=["from another process"])
process.start()
process.join()
assert process.exitcode == 0
background = threading.Thread(target=threading.Event().wait, args=(0.2,), daemon=True)
background.start()
attention_memory = 4 * 2048 * 2048
