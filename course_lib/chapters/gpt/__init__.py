"""The GPT model: the code of this chapter."""
