"""Feed-forward: the code of this chapter."""
