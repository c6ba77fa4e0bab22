"""Linear: PyTorch's linear layer, which does not leave cores idle while a token or a few are computed.

Chapter 14. A matrix that meets one vector is read once and used once, so that memory decides how long it takes. One
core alone cannot ask memory for as much as memory can give.
"""

import torch
from torch import Tensor, nn

WORTH_SPLITTING = 1 << 18  # weights: below, handing rows out takes longer than it saves
FEW = 16  # tokens: with more, arithmetic decides, and PyTorch's kernel uses all cores


class Linear(nn.Linear):
    """Compute y = x Wᵀ + b, as `nn.Linear` does; a few tokens on a CPU do not take longer than reading W takes.

    Parameters and shapes: those of `nn.Linear`. What is trained, longer or on a GPU is left to it.
    """

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.numel() // self.in_features
        if self.weight.numel() >= WORTH_SPLITTING and x.device.type == "cpu" and not torch.is_grad_enabled():
            if x.dtype == torch.float32 and 1 <= tokens <= FEW:
                return self.shared_out(x)
            if x.dtype == torch.bfloat16 and tokens == 1:
                return self.without_onednn(x)
        return super().forward(x)

    def without_onednn(self, x: Tensor) -> Tensor:
        """Leave it to PyTorch's own kernel: for one vector in bfloat16 it reads W twice as fast as oneDNN's."""
        before = torch.backends.mkldnn.enabled
        try:
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
            return super().forward(x)
        finally:
            torch.backends.mkldnn.enabled = before

    def shared_out(self, x: Tensor) -> Tensor:
        """Let each core compute its share of the outputs: alone, `nn.Linear` multiplies one vector on one core."""
        rows = x.reshape(-1, self.in_features)  # (n, in_features)
        cores = torch.get_num_threads()
        share = self.out_features // cores
        shares = self.weight[: cores * share].view(cores, share, self.in_features)
        y = torch.bmm(shares, rows.expand(cores, *rows.shape).transpose(1, 2)).flatten(0, 1).t()  # (n, cores · share)
        if rest := self.out_features % cores:
            y = torch.cat([y, rows @ self.weight[-rest:].t()], dim=1)  # (n, out_features)
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], self.out_features)
