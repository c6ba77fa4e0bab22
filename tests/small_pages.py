"""Pages to write into a folder: one of each kind, as small as the rules allow."""

MODULE = '''
import torch

from course_lib.grading.exercise import Case, generator, stage


def halved(x):
    """Not a word of x / 2 here counts."""
    return x / 2  # neither does x / 2 here


def scaled(x, times=2):
    """x · times, then half of it."""
    twice = x * times
    return halved(twice)


def unrelated(x):
    return x * times


@stage
def small(seed):
    "Two numbers."
    return [Case(torch.tensor([1.0, -2.0]))]


@stage
def drawn(seed):
    "Drawn numbers, three times."
    return [Case(torch.randn(3, generator=generator(seed)), 3)]
'''


PAGE = """---
place: 1
title: Scaled
kind: code
points: 2
difficulty: 1
minutes: 3
signature: scaled(x, times=2)
forbidden: [softmax]
rtol: 1.0e-3
---
Write `scaled(x, times=2)`.

## Why
Everything is scaled
somewhere.

## Hints
1. How often, and what is
   left of it?
2. Which operator?
3. Which order?

## Mistakes
### added
`x * times` → `x + times`
You add where you should multiply:
`times` is a factor.

### twice whatever times says
`x * times` → `x * 2`, `return halved(twice)` → `return halved(1 * twice)`
also `halved(x * 2)`
You forget `times`.

### not halved
`/ 2` → nothing
You forget the half.

### negative
`-scaled(x, times)`
A sign too many.

### twice as large
```python
def wrong(x, times=2):
    return 2 * scaled(x, times)
```
You double it.

### in between
```diff
     twice = x * times
-    return halved(twice)
+    third = twice / 3
+    return third
```
You take a third.

### everything by three
`2` → `3` everywhere
Three is not two.
"""


NUMBER = """---
place: 2
title: A product
kind: number
points: 1
difficulty: 1
minutes: 3
---
How many?

## Why
To know.

## Answer
```python
rows = 30
masks_table = {"rows": rows, "all": rows * 512}
```

## Hints
1. One.
2. Two.
3. Three.

## Mistakes
### added
`{"all": rows + 512}`
You add.

### roughly
`{"all": 15_000}` within `0.05`
also `{"rows": 31}`
You round.
"""


CHOICE = """---
place: 3
title: Which?
kind: choice
points: 1
difficulty: 1
minutes: 3
---
Which?

## Why
To know.

## Options
- [x] `a`: This one, with a text
  that is right.

  Right: it is this one.
- [ ] `b`: Not that one.

  It is not.

## Hints
1. One.
2. Two.
3. Three.
"""


REFLECT = """---
place: 4
title: Why?
kind: reflect
points: 0
difficulty: 1
minutes: 3
min_words: 5
---
Why?

## Why
To know.

## Answer
```python
masks_why = "Because of this and that."
```

## Hints
1. One.
2. Two.
3. Three.

## Model answer
Because of this
and that.

And more.

## Rubric
- Says this.
- Says that.
"""
