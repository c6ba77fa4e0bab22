"""Parameter counting: what teaches this chapter."""
