"""The library of "Transformers, Measured": one flat module per chapter, each short enough to be read in class.

Parts: `embeddings positions masks attention cache feedforward normalization`.
Whole models: `config blocks models trace accounting`.
Text: `text`; Tinytown: `world grammar tinytown`, and in two languages `french`.
Use: `training filters sampling decoding beam`. Real weights: `pretrained checkpoints names weights`.
Measurements: `experiments`. Exercises: `course_lib.grading`; figures: `course_lib.live`.
`python -m course_lib --help` lists the commands.
"""

__version__ = "0.1.0"  # the one place: pyproject.toml reads it here
