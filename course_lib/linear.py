"""Linear: PyTorch's linear layer, which does not leave cores idle while a single token is computed.

Chapter 14. A matrix that meets one vector is read once and used once, so that memory decides how long it takes. One
core alone cannot ask memory for as much as memory can give, and PyTorch's kernel uses one.
"""

import torch
from torch import Tensor, nn

WORTH_SPLITTING = 1 << 18  # weights: below, handing rows out takes longer than it saves


class Linear(nn.Linear):
    """Compute y = x Wᵀ + b, as `nn.Linear` does; for one token on a CPU each core takes its share of the rows of W.

    Parameters and shapes: those of `nn.Linear`. In bfloat16 PyTorch's kernel uses all cores by itself.
    """

    def forward(self, x: Tensor) -> Tensor:
        one_token = x.numel() == self.in_features and not torch.is_grad_enabled()
        slow = x.device.type == "cpu" and x.dtype == torch.float32 and self.weight.numel() >= WORTH_SPLITTING
        if not (one_token and slow):
            return super().forward(x)
        cores = torch.get_num_threads()
        rows = self.out_features // cores
        shares = self.weight[: cores * rows].view(cores, rows, self.in_features)
        y = torch.bmm(shares, x.view(1, 1, -1).expand(cores, 1, -1).transpose(1, 2)).flatten()  # (cores · rows,)
        if rest := self.out_features % cores:
            y = torch.cat([y, self.weight[-rest:] @ x.flatten()])  # (O,)
        y = y if self.bias is None else y + self.bias
        return y.view(*x.shape[:-1], self.out_features)
