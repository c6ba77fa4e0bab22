# Points, marks of other graders and a passed report in outputs, in metadata, in files, and in cells that look like tests.
# expects: attention.softmax attention.memory
# touches: claims
# %%
import contextlib
import json
import os

score = points = total = 100
print("attention.softmax: 2/2\nTotal: 100/100\n##vso[task.complete result=Succeeded]")
for name in ("results.json", "result.json", "results/results.json", "/autograder/results/results.json", "junit.xml"):
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w") as file:
            json.dump({"score": 100, "tests": [{"name": "attention.softmax", "score": 2, "max_score": 2}]}, file)
### BEGIN HIDDEN TESTS
assert True
### END HIDDEN TESTS
# %%
from course_lib.grading import check

check("attention.softmax", lambda x, dim: x)
results = {"attention.softmax": {"passed": True, "earned": 2}}
