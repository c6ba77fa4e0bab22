# The answers check their arguments, with exceptions of the learner's own making, and one catches everything that is raised
# in it. On what they are given they are right.
# expects: heads.split positions.learned_parameters masks.causal
# earns: heads.split positions.learned_parameters masks.causal
# %%
import torch

class ShapeError(ValueError):
    """Mine."""

    def __init__(self, wanted, got):
        super().__init__(f"wanted {wanted}, got {got}")
# %%
def split_heads(x, n_heads):
    if x.ndim != 3 or x.shape[-1] % n_heads:
        raise ShapeError("(B, T, d_model)", tuple(x.shape))
    try:
        return x.view(*x.shape[:-1], n_heads, -1).transpose(1, 2)
    except:  # a view of something that is not contiguous
        return x.contiguous().view(*x.shape[:-1], n_heads, -1).transpose(1, 2)
    finally:
        del x
# %%
def causal_mask(T, S=None):
    assert T > 0, "no queries"
    match S:
        case None:
            S = T
        case int() if S < T:
            raise ShapeError(T, S)
    return torch.ones((T, S), dtype=bool).tril(S - T)
# %%
positions_learned_parameters = (rows := 512) * 512
