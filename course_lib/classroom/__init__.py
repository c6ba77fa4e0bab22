"""A whole class, graded: notebooks of people nobody should trust, read, run behind a wall, judged outside of it.

submissions   what was handed in, read as text, nothing runs: `folders` and archives, which no path leaves; `cells`
worker        the untrusted side: runs a `notebook`, answers calls; `forkserver` forks it, `walls` part it from the next
protocol      what passes between the two sides: numbers, text and raw arrays, never objects
sandbox       the wall to the outside: bubblewrap, docker or none; `bounds` are the limits within
remote        the trusted side's end: a worker that fails is replaced, an answer that fails is a result
marking       one submission: a result for every expected exercise; `marked`: the same as plain data
journal       results on disk as they come; what is there is not graded again
grade         a class: workers at a time, resume; `jobs` on `cluster`: the same on Dask; `command`: the command line
formats       results for other programs, `report` for people, with `statistics` and file `names`
standin       Gradescope's autograder, a workflow for GitHub
"""
