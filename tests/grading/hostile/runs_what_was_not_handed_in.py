# %run is pointed at what lies outside: the teacher's secret, the course's answers, a folder, a device, itself as a script.
# expects: attention.softmax attention.memory heads.merge
# earns: attention.memory
# %%
attention_memory = 2048 * 2048 * 4
# %%
%run {CANARY}
# %%
%run ../../../../../../{CANARY}
# %%
%run /dev/zero.ipynb
# %%
%run -m course_lib.chapters.attention.exercises.softmax
# %%
import course_lib, glob
for path in glob.glob(course_lib.__path__[0] + "/chapters/*/exercises/*.py"):
    get_ipython().run_line_magic("run", path)
