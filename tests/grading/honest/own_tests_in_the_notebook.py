# doctest, unittest and asserts against torch's own functions run in the notebook; the first finds an example that fails, the
# second ends the program unless it is told not to. The forbidden functions stand in the tests alone, not in the answer.
# expects: attention.softmax counting.flops
# earns: attention.softmax counting.flops
# %%
import doctest
import unittest

import torch
# %%
def softmax(x, dim):
    """Shares.

    >>> softmax(torch.zeros(2), 0)
    tensor([1., 1.])
    """
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)

x = torch.randn(3, 5)
assert torch.allclose(softmax(x, 1), torch.softmax(x, 1))
assert torch.allclose(softmax(x, 0), torch.nn.functional.softmax(x, 0))
# %%
doctest.testmod(verbose=True)
# %%
class TestFlops(unittest.TestCase):
    def test_one(self):
        self.assertEqual(train_flops(1, 1), 8)

def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens

unittest.main(argv=["notebook"], verbosity=2)
