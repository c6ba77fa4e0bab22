# The notebook changes its folder, by %cd and by os.chdir, to one that exists and to one that does not. The answers come
# after it; the cell that names a folder which is not there fails alone.
# expects: counting.llama7b counting.bert
# earns: counting.llama7b counting.bert
# %%
%cd ~/transformers/exercises
%pwd
# %%
import os
import tempfile

os.chdir(tempfile.gettempdir())
# %%
os.chdir("/home/ada/courses/transformers")
# %%
d, blocks = 5120, 40
counting_llama7b = 2 * 32000 * d + blocks * (4 * d * d + 3 * d * 13824 + 2 * d) + d
# %%
os.chdir("/")
layer = 4 * (1024**2 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024
counting_bert = (30522 + 512 + 2) * 1024 + 2 * 1024 + 24 * layer
