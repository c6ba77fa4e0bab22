"""A whole class, graded: notebooks of people nobody should trust, read, run in a sandbox, judged outside of it.

submissions        which files are one submission; `folders`: files and archives as one tree, which no path leaves
submission_reader  what one holds, read as text, nothing runs; `notebook_reader`: its cells; `other_forms`:
                   those of scripts and pages; `salvage`: of what is amiss; `data_files`: which data comes with it
worker             the untrusted side: runs a notebook (`notebook_run`) and answers calls; `forkserver` forks it,
                   `isolation` parts it from the next in the kernel's own terms
protocol           what passes between the two sides: numbers, text and raw arrays, never objects
sandbox            between both sides: bubblewrap, docker or none; `views`: what is seen of this machine; `quotas`
                   within; `probe` tries it before it is used
remote, session    the trusted side's end: a worker that fails is replaced, an answer that fails is a result; `watcher`
                   measures what a worker takes, `cgroups` lets the kernel do it
marking            one submission: a result for every expected exercise; `graded`: the same as plain data
journal            results on disk as they come; what is there is not graded again
grading_policy     what the points count: weights, lateness, and a person's word, from `course.toml` (`policy_file`);
                   `handed_in`: when each handed in; `term`: which chapters when, whose class, on which platform;
                   `course_file`: that file, and what is wrong in it
class_run          a class: workers at a time, resume; `jobs` on `cluster`: on Dask
command            the command line; `plan`: how long it would take, `console`: what it says, `outputs`: what it writes
manifest           who was found, in which files, in whose row of the `roster`, before the first mark
export             results for other programs; `report` for people, `terminal` for a console, with `statistics`
text, spreadsheets what every program takes for text, and for a table; `file_names`: whose a downloaded file is
autograder         Gradescope's autograder, a workflow for GitHub
"""
