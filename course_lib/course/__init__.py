"""The course around the library: its contents and terms, the learner's record and folder, files, the wheel."""
