"""What the layers are compared with, written as plainly as possible."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sesn import ScaleConv, ScaleLift
from sesn.algorithms import padded_convolution


class Textbook(nn.Module):
    """The obvious form: every scale's kernel padded to V x V, one convolution, grouped by scale for H -> H."""

    functions: Tensor

    def __init__(self, layer: ScaleLift | ScaleConv) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().clone().flatten(1, -2))
        self.lift = isinstance(layer, ScaleLift)
        self.stride = layer.stride
        self.register_buffer("functions", layer.basis.functions.to(layer.weight), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[b, c(, s), h, w] -> [b, c', s, h', w']."""
        kernel = torch.einsum("oin,nsyx->osiyx", self.weight, self.functions)
        o, s, i, v, _ = kernel.shape
        if self.lift:
            y = padded_convolution(x, kernel.reshape(o * s, i, v, v), stride=self.stride, padding=(v // 2, v // 2))
            return y.reshape(y.shape[0], o, s, *y.shape[2:])
        grouped = x.transpose(1, 2).flatten(1, 2)
        kernel = kernel.transpose(0, 1).reshape(s * o, i, v, v)
        y = padded_convolution(grouped, kernel, stride=self.stride, padding=(v // 2, v // 2), groups=s)
        return y.reshape(y.shape[0], s, o, *y.shape[2:]).transpose(1, 2)


class FilterBank(nn.Module):
    """An ordinary CNN layer with as many filters, C_out per scale with its taps: equal nominal multiply-adds."""

    def __init__(self, layer: ScaleLift | ScaleConv) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(layer.in_channels, layer.out_channels, box, layer.stride, box // 2, bias=False)
            for box in layer.basis.boxes
        )

    def forward(self, x: Tensor) -> Tensor:
        """[b, c, h, w] -> [b, c' s, h', w']."""
        return torch.cat([convolution(x) for convolution in self.convolutions], dim=1)
