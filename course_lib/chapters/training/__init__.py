"""Training: the code of this chapter."""
