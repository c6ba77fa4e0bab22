"""Your GPT: the code of this chapter."""
