"""The hub: public weights and other libraries' formats.

`weights` lists their origin and their place on disk, `fetch` downloads them, `names` maps other libraries' names to
ours, `layouts` converts their tensors, and `checkpoints` and `stories` read their files. `course_lib.pretrained` is
the entry point to all of it.
"""
