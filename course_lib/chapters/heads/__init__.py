"""Multi-head attention: what teaches this chapter."""
