"""Linear: PyTorch's linear layer, changed to use all CPU cores for one or a few tokens.

`Layer` is a module whose errors name the arguments.

Chapter 14. Multiplying a matrix by one vector uses each weight once, so memory bandwidth determines how long it takes.
A single core cannot use all of this bandwidth.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.arguments import RAW, named, require_arguments, require_fitting_call
from course_lib.checks import require_sizes

WORTH_SPLITTING = 1 << 18  # weights: for smaller layers, splitting takes longer than it saves
FEW = 16  # tokens: with more, arithmetic is the bottleneck, and PyTorch's kernel uses all cores


class Layer(nn.Module):
    """A `torch.nn.Module` whose errors name the arguments. Calls that succeed are no slower.

    The arguments of `__init__` are checked against its signature. If `forward` fails, PyTorch's message is about inner
    matrices; we replace it by a ValueError or TypeError that names the argument, its value and the allowed values.
    """

    def __new__(cls, *args, **kwargs):
        if args or kwargs:  # copy and pickle pass none
            require_arguments(cls.__init__, named(cls.__init__, None, *args, **kwargs))
        return super().__new__(cls)

    def __call__(self, *args, **kwargs):
        try:
            return (self._compiled_call_impl or self._call_impl)(*args, **kwargs)
        except RAW as error:
            require_fitting_call(self, args, kwargs, error)
            raise


class Linear(Layer, nn.Linear):
    """Compute y = x Wᵀ + b as `nn.Linear` does, but for a few tokens on a CPU in no more time than reading W takes.

    Parameters and shapes: as in `nn.Linear`, which we call for training, for more tokens and on a GPU.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **where: Any):
        require_sizes(in_features=in_features, out_features=out_features)
        super().__init__(in_features, out_features, bias, **where)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Tensor:
        tokens = x.numel() // self.in_features
        recorded = torch.is_grad_enabled() or torch.compiler.is_compiling()  # an export may run on other cores
        if self.weight.numel() >= WORTH_SPLITTING and x.device.type == "cpu" and not recorded:
            if x.dtype == torch.float32 and 1 <= tokens <= FEW:
                return self.shared_out(x)
            if x.dtype == torch.bfloat16 and tokens == 1:
                return self.without_onednn(x)
        return super().forward(x)

    def without_onednn(self, x: Tensor) -> Tensor:
        """Use PyTorch's own kernel: for one vector in bfloat16 it reads W twice as fast as oneDNN's kernel."""
        before = torch.backends.mkldnn.enabled
        try:
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
            return super().forward(x)
        finally:
            torch.backends.mkldnn.enabled = before

    def shared_out(self, x: Tensor) -> Tensor:
        """Split the output features among the cores: `nn.Linear` multiplies one vector on a single core."""
        rows = x.reshape(-1, self.in_features)  # (n, in_features)
        cores = torch.get_num_threads()
        share = self.out_features // cores
        shares = self.weight[: cores * share].view(cores, share, self.in_features)
        y = torch.bmm(shares, rows.expand(cores, *rows.shape).transpose(1, 2)).flatten(0, 1).t()  # (n, cores · share)
        if rest := self.out_features % cores:
            y = torch.cat([y, rows @ self.weight[-rest:].t()], dim=1)  # (n, out_features)
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], self.out_features)
