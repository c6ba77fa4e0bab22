"""From base to assistant: the code of this chapter."""
