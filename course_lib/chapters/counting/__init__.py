"""Parameter counting: the code of this chapter."""
