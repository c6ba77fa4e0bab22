"""Feed-forward: what teaches this chapter."""
