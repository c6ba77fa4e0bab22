"""The library of "Transformers, Measured": one flat module per chapter, each short enough to be read in class.

Parts: `embeddings positions masks attention feedforward normalization`. Whole models: `config blocks models
    accounting`.
Text: `text`. Use: `training sampling pretrained`. Measurements: `experiments`. Exercises: `course_lib.grading`;
    figures: `course_lib.viz`. `python -m course_lib --help` lists the commands.
"""
