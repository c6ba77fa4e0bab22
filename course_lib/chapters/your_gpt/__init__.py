"""Your GPT: what teaches this chapter."""
