"""Claims: the code of this chapter."""
