"""The GPT model: what teaches this chapter."""
