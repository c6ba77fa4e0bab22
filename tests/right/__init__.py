"""Right answers in other styles, one module per chapter: `RIGHT = {exercise id: [answers]}`, each of which must pass.

A checker that knows one way to write an answer rejects the others. So every code exercise has at least two more here:
loops, einsum, numpy, PyTorch's own function, in-place work on a copy.
"""
