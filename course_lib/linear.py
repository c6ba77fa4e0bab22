"""Linear: PyTorch's linear layer, which does not leave cores idle while a single token is computed.

Chapter 14. A matrix that meets one vector is read once and used once, so that memory decides how long it takes. One
core alone cannot ask memory for as much as memory can give.
"""

import torch
from torch import Tensor, nn

WORTH_SPLITTING = 1 << 18  # weights: below, handing rows out takes longer than it saves


class Linear(nn.Linear):
    """Compute y = x Wᵀ + b, as `nn.Linear` does; one token on a CPU does not take longer than reading W takes.

    Parameters and shapes: those of `nn.Linear`. What is trained, longer than a token or on a GPU is left to it.
    """

    def forward(self, x: Tensor) -> Tensor:
        one_token = x.numel() == self.in_features and x.device.type == "cpu" and not torch.is_grad_enabled()
        if one_token and self.weight.numel() >= WORTH_SPLITTING:
            if x.dtype == torch.float32:
                return self.shared_out(x)
            if x.dtype == torch.bfloat16:
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
        cores = torch.get_num_threads()
        rows = self.out_features // cores
        shares = self.weight[: cores * rows].view(cores, rows, self.in_features)
        y = torch.bmm(shares, x.view(1, 1, -1).expand(cores, 1, -1).transpose(1, 2)).flatten()  # (cores · rows,)
        if rest := self.out_features % cores:
            y = torch.cat([y, self.weight[-rest:] @ x.flatten()])  # (out_features,)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], self.out_features)
