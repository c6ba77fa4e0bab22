"""The library of "Transformers, Measured": one flat module per chapter, each short enough to be read in class.

The Transformer, in the order of the course: `embeddings attention masks heads positions feed_forward normalization
blocks gpt counting encoder_decoder training sampling beam cache efficiency pretrained`; what several of them share:
`config trace arguments checks linear files record told`; what training is made of: `gradients processes checkpoints`.
`tinytown`: the world of text whose entropy is known. `hub`: public weights, other libraries' formats. `claims`: the
engine of experiments on what is said about Transformers. `live`: the engine of live figures. `ladder`: the model that
grows through the course. `grading`: one answer in a notebook, judged. `classroom`: a whole class. `room`: a class live,
its guesses together. `lessons`: the teacher's notes, and courses planned from them. `bench`: how fast all of it is,
beside what would be used instead. `site`: the web edition and the slides. `cli`: the commands. `chapters`: what
teaches, a folder per chapter; `contents` and `chapters.toml`: their order, names and titles; `glossary`: their terms.
`handout`: the learner's folder; `pull`: a clone brought up to date; `wheel`: what pip installs. Nothing imports upward,
and no chapter another: what runs knows nothing of what teaches; `claims` and `live` build on what runs, `grading` and
`ladder` on these, on all of these `bench` and `lessons`, and on that `chapters`, `classroom`, `room`, `site` and `cli`.

`python -m course_lib --help` lists the commands.
"""

__version__ = "0.1.0"  # the one place: pyproject.toml reads it here
