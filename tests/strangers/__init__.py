"""Right answers as strangers write them: `STRANGERS = {exercise id: [answers]}`, each of which passes with every seed.

Each is written afresh in the manner of a well-known code base or kind of reader, and is right by the statement: views
and `contiguous`, einsum, loops over rows, `.float()` and back, a constant made as a float32 tensor, additive masks,
NumPy, helper classes, recursion.
"""
