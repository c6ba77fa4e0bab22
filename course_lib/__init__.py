"""The library of "Transformers, Measured": one flat module per chapter, each short enough to read in class.

The Transformer, in the order of the course: `embeddings attention masks heads positions feed_forward normalization
blocks gpt counting encoder_decoder training sampling beam cache efficiency pretrained assistant`. Shared by several of
them: `config trace layers checks linear fast device`. Used in training: `training_options`.

`tinytown`: a world of text with known entropy. `hub`: public weights and other libraries' formats. `claims`: the engine
of experiments on common statements about Transformers. `live`: the engine of interactive figures. `ladder`: the model
that grows through the course. `grading`: checks one answer in a notebook. `classroom`: grades a full class. `room`:
collects a class's guesses live. `lessons`: teachers' notes and course plans. `bench`: speed compared with other
libraries. `site`: the web edition and the slides. `cli`: the commands. `chapters`: teaching material, one folder per
chapter. `course`: the chapters' order, names and terms, the learner's record and folder, files.

Modules import only from their own or lower layers, and no chapter imports another. The Transformer does not depend
on the teaching material. `claims` and `live` build on it, then come `grading` and `ladder`, then `bench` and `lessons`,
and at the top `chapters`, `classroom`, `room`, `site` and `cli`.

`python -m course_lib --help` lists the commands.
"""

__version__ = "0.1.0"  # defined only here; pyproject.toml reads it
