"""Start here: the code of this chapter."""
