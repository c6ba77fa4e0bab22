"""Training: what teaches this chapter."""
