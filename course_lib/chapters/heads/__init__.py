"""Multi-head attention: the code of this chapter."""
