"""Linear: a replacement for PyTorch's linear layer that uses all CPU cores for one or a few tokens.

Chapter 14. Multiplying a matrix by one vector uses each weight once, so memory bandwidth determines how long it takes.
A single core cannot use all of this bandwidth. Intel's library for matrix products, which PyTorch calls, uses all cores
for one vector on Intel's processors, but only one on others.
"""

import threading

import torch
from jaxtyping import Float
from torch import Tensor, nn

WORTH_SPLITTING = 1 << 18  # weights: for smaller layers, splitting takes longer than it saves
FEW = 16  # tokens: with more, arithmetic is the bottleneck, and PyTorch's kernel uses all cores
SETTING = threading.Lock()  # held while a setting of the entire process is changed


def one_core_per_vector() -> bool:
    """Return whether `nn.Linear` in float32 multiplies a single vector on one core only, as on AMD's processors."""
    about: dict = getattr(torch.cpu, "get_capabilities", dict)()
    return not (torch.backends.mkl.is_available() and "Intel" in str(about.get("cpu_name", "")))


SPLITS = one_core_per_vector()


class FastLinear(nn.Linear):
    """Compute y = x Wᵀ + b as `nn.Linear` does, but for a few tokens on a CPU in no more time than reading W takes.

    Args: linear: the layer whose weight and bias this one uses, not copies of them.
    Shapes: as in `nn.Linear`, which computes the result in training, for more tokens and on a GPU.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.train(linear.training)

    def forward(self, x: Float[Tensor, "*batch in_features"]) -> Float[Tensor, "*batch out_features"]:
        tokens = x.numel() // self.in_features
        recorded = torch.is_grad_enabled() or torch.compiler.is_compiling()  # an export may run on other cores
        if x.device.type == "cpu" and not recorded:
            if SPLITS and x.dtype == self.weight.dtype == torch.float32 and 1 <= tokens <= FEW:
                return self.split_rows(x)
            if x.dtype == torch.bfloat16 and tokens == 1:
                return self.without_onednn(x)
        return super().forward(x)

    def without_onednn(self, x: Tensor) -> Tensor:
        """Use PyTorch's own kernel: for one vector in bfloat16 it reads W twice as fast as oneDNN's kernel."""
        with SETTING:  # without the lock, a second thread could read False here and leave the kernel off for good
            before = torch.backends.mkldnn.enabled
            try:
                torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
                return super().forward(x)
            finally:
                torch.backends.mkldnn.enabled = before

    def split_rows(self, x: Tensor) -> Tensor:
        """Split the output features among the cores, each of which multiplies its share of the matrix."""
        rows = x.reshape(-1, self.in_features)  # (n, in_features)
        cores = torch.get_num_threads()
        share = self.out_features // cores
        shares = self.weight[: cores * share].view(cores, share, self.in_features)
        y = torch.bmm(shares, rows.expand(cores, *rows.shape).transpose(1, 2)).flatten(0, 1).t()  # (n, cores · share)
        if rest := self.out_features % cores:
            y = torch.cat([y, rows @ self.weight[-rest:].t()], dim=1)  # (n, out_features)
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], self.out_features)
