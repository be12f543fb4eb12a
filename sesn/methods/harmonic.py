"""Harmonic networks: 3x3 kernels as combinations of the filters of the discrete cosine transform.

M. Ulicny, V. A. Krylov and R. Dahyot, "Harmonic networks: Integrating spectral information into CNNs", BMVC 2019.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sesn.algorithms import compose_kernel, padded_convolution
from sesn.methods._layer import BaselineLayer
from sesn.methods.cnn import conv1x1
from sesn.methods.method import WIDE_SIDE, Method, Source, no_scales
from sesn.networks import Recipe, wrn


def cosine_filters(side: int = 3) -> Tensor:
    """The orthonormal DCT-II filters [side^2, side, side] in float64, the vertical frequency outermost.

    f_u(y) = c_u cos(pi (y + 1/2) u / side), c_0 = sqrt(1 / side), c_u = sqrt(2 / side); the plane's are products.
    """
    u, y = torch.meshgrid(*[torch.arange(side, dtype=torch.float64)] * 2, indexing="ij")
    norm = (torch.where(u == 0, 1.0, 2.0 * torch.ones_like(u)) / side).sqrt()
    lines = norm * (math.pi / side * (y + 0.5) * u).cos()
    return torch.einsum("uy,vx->uvyx", lines, lines).flatten(0, 1)


class HarmonicConv(BaselineLayer):
    """3x3 convolution [b, c, h, w] -> [b, c', h', w'] with kernels sum_n w[o, i, n] f_n over the nine DCT filters.

    The filters are an orthonormal basis, so this is an ordinary convolution in rotated coordinates: it can express the
    same, and trains differently only where the optimiser is not rotation invariant. No bias; the output side is
    ceil(h / stride).
    """

    weight: nn.Parameter
    receptive_radius, taps = 1, 9

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        stride: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, stride)
        self.weight = nn.Parameter(torch.empty(self.out_channels, self.in_channels, 9, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform in +-1 / sqrt(9 c)."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, image: Tensor) -> Tensor:
        """Convolve a map [b, c, h, w]."""
        self._check_image(image, self.weight)
        filters = self._store.constant("filters", self.weight, cosine_filters)
        return padded_convolution(image, compose_kernel(self.weight, filters), stride=self.stride, padding=(1, 1))


# --- its networks


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """DCT kernels in the stem and in all 3 x 3 convolutions; the shortcuts are plain."""
    return wrn.BlockParts(
        stem=HarmonicConv,
        conv=lambda place, i, o, stride: HarmonicConv(i, o, stride=stride),
        shortcut=conv1x1,
        fan_out=(HarmonicConv, nn.Conv2d),
    )


HARM_WRN = Method(
    "harm-wrn",
    "Harm WRN",
    Source("Ulicny et al. 2019, arXiv:1905.00135"),
    "#7E4CB2",
    {"stl10": wrn.WRNSkeleton(wrn_parts)},
    no_scales,
    side=WIDE_SIDE,
    absences={
        "mnist": "the paper has it on STL-10 only; use cnn",
        "stl10/released": "the paper quotes the number of its authors, and the released code has no such network",
    },
)
