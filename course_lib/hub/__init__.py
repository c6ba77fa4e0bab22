"""The hub: public weights and other libraries' formats.

`weights` says where they come from and where they lie, `fetch` brings them, `names` says what others call our parts,
`checkpoints` reads their files. `course_lib.pretrained` is the door to all of it.
"""
