"""Claims: what teaches this chapter."""
