"""Start here: what teaches this chapter."""
