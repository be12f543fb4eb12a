"""Scale-steered CNNs: log-radial harmonics, whose scale is steered by a phase; the maximum over scales is kept.

R. Ghosh and A. K. Gupta, "Scale steerable filters for locally scale-invariant convolutional neural networks",
ICML workshop 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants
from sesn.basis.log_radial import LogRadial
from sesn.errors import WrongTypeError
from sesn.methods._layer import BaselineLayer, correlate, largest, odd_side, positive
from sesn.methods.cnn import conv1x1
from sesn.methods.method import CHANNELS, COLOURS, Goals, Method, Source
from sesn.networks import RECIPES, Recipe, Regime, mnist, stir, wrn
from sesn.scales import ScaleGrid

#: Width of the angular Gaussian.
ANGULAR_SIGMA = math.pi / 16


def radial_frequency(order: float, side: int) -> float:
    """kappa = 2 pi k / ln(r_max), r_max = sqrt(2) (M - 1) / 2: the corner of the largest kernel closes k turns."""
    return 2 * math.pi * order / math.log(math.sqrt(2) * (side - 1) / 2)


def harmonics(side: int, orders: Sequence[float], angles: int) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts [k, angle, side, side] of the log-radial harmonics, in float64, each of L2 norm 1.

    They are those of `sesn.basis.log_radial` with r in pixels.
    """
    offsets = torch.arange(side, dtype=torch.float64) - side // 2
    rows, columns = torch.meshgrid(offsets, offsets, indexing="ij")
    waves = LogRadial(2 * len(orders) * angles, angles, ANGULAR_SIGMA, tuple(orders))(columns, rows)
    waves = waves / waves.square().sum(dim=(-2, -1), keepdim=True).sqrt()
    real, imaginary = waves.reshape(len(orders), angles, 2, side, side).unbind(2)
    return real, imaginary


class SSConv(BaselineLayer):
    """Scale-steered convolution and the maximum over scales, [b, c, h, w] -> [b, c', h', w']; no ReLU, no bias.

    Scale i has side m_i and s_i = m_i / nominal. Its filter is the real part of

        sum_k (a_k + i b_k) exp(-i kappa_k ln s_i) (R_k + i I_k),

    with R_k + i I_k the harmonics on the largest side, cropped about the centre to m_i x m_i. Amplitudes are not
    renormalised. The output side is ceil(h / stride).

    Args:
        in_channels, out_channels: channels of the two maps.
        sizes: the side of each scale's filter, odd, increasing.
        nominal: the side whose filter is not steered.
        orders: how many turns the phase makes from radius 1 to the corner of the largest filter.
        angles: directions from 0 to pi, both included (they give the same function, as released).
        stride: spatial stride.
        recipe: "released" also has the parameter `const`, one per pair of channels, which is counted and never used.
    """

    real: nn.Parameter
    imag: nn.Parameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        sizes: Iterable[int],
        nominal: float,
        orders: Iterable[float],
        *,
        angles: int = 9,
        stride: int = 1,
        recipe: Recipe = "paper",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, stride)
        if isinstance(sizes, str) or not isinstance(sizes, Iterable):
            raise WrongTypeError(_checks.complaint("sizes", sizes, "a sequence of odd sides", "such as (5, 7, 9)"))
        self.sizes = found = tuple(_checks.odd("sizes", size) for size in sizes)
        good = bool(found) and found[0] >= 3 and list(found) == sorted(set(found))
        _checks.require(good, "sizes", found, "one or more increasing odd sides of at least 3", "such as (5, 7, 9)")
        self.nominal = positive("nominal", [nominal])[0]
        self.orders = positive("orders", orders, "such as (0.5, 1, 2)")
        self.angles = _checks.whole("angles", angles, 2)
        self.recipe = _checks.one_of("recipe", recipe, RECIPES)
        self.scale_grid = ScaleGrid(size / self.nominal for size in self.sizes)
        self.receptive_radius, self.taps = self.sizes[-1] // 2, sum(size**2 for size in self.sizes)
        self.details = f"sizes={self.sizes}", f"nominal={self.nominal:g}"
        self.details += (f"recipe={recipe!r}",) if recipe != "paper" else ()
        self.unused_parameters: tuple[str, ...] = ("const",) if recipe == "released" else ()
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = len(self.orders), self.out_channels, self.in_channels, self.angles
        self.real = nn.Parameter(torch.empty(shape, **options))
        self.imag = nn.Parameter(torch.empty(shape, **options))
        const = nn.Parameter(torch.empty(shape[1:3], **options)) if self.unused_parameters else None
        self.register_parameter("const", const)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform in +-sqrt(2 / (angles c c')); `const` zero."""
        bound = math.sqrt(2 / (self.angles * self.in_channels * self.out_channels))
        nn.init.uniform_(self.real, -bound, bound)
        nn.init.uniform_(self.imag, -bound, bound)
        if isinstance(self.const, nn.Parameter):
            nn.init.zeros_(self.const)

    def kernels(self) -> list[Tensor]:
        """The filter of each scale [c', c, m_i, m_i]."""
        weight = torch.stack([self.real, self.imag]).permute(2, 3, 0, 1, 4)  # [o, i, part, k, angle]
        taps = self._store.constant("taps", self.real, self._taps)
        flat = weight.reshape(-1, taps.shape[0]) @ taps
        parts = torch.functional.split(flat, [side * side for side in self.sizes], dim=1)
        shape = self.out_channels, self.in_channels
        return [part.reshape(*shape, side, side) for part, side in zip(parts, self.sizes, strict=True)]

    def forward(self, image: Tensor) -> Tensor:
        """Convolve a map [b, c, h, w] at all scales and keep the largest response, [b, c', h', w']."""
        self._check_image(image, self.real)
        return largest([correlate(image, kernel, -(kernel.shape[-1] // 2), self.stride) for kernel in self.kernels()])

    def _taps(self) -> Tensor:
        """[2 k angle, sum of sizes^2]: what each coefficient contributes to each scale's filter, steering included."""
        side = self.sizes[-1]
        real, imag = harmonics(side, self.orders, self.angles)
        kappas = torch.tensor([radial_frequency(order, side) for order in self.orders], dtype=torch.float64)
        planes = []
        for size in self.sizes:
            turn = (-kappas * math.log(size / self.nominal))[:, None, None, None]
            steered = torch.stack([turn.cos() * real - turn.sin() * imag, -turn.sin() * real - turn.cos() * imag])
            cut = (side - size) // 2
            planes.append(steered[..., cut : side - cut, cut : side - cut].reshape(-1, size * size))
        return torch.cat(planes, dim=1)

    def meaning(self) -> Constants:
        """What the harmonics are and how they are steered."""
        return {"sizes": self.sizes, "nominal": (self.nominal,), "orders": self.orders}


# --- its networks

#: Sides of the kernels, one per scale, by recipe and resolution.
MNIST_SIZES: dict[tuple[Recipe, int], tuple[int, ...]] = {
    ("paper", 28): (5, 7, 9, 11, 13, 15),
    ("paper", 56): (7, 9, 11, 13, 15, 17),
    ("released", 28): (5, 7, 9, 11, 13),
    ("released", 56): (7, 9, 11, 13, 15, 17),
}
MNIST_NOMINAL, MNIST_ORDERS = 11, (0.5, 1.0, 2.0)
STL10_SIZES, STL10_NOMINAL, STL10_ORDERS = (3, 5, 7), 3, (1.0,)
#: The release does not hand the list of sizes on to its blocks, so that they have a single scale.
BLOCK_SIZES: dict[Recipe, tuple[int, ...]] = {"paper": STL10_SIZES, "released": (3,)}


def mnist_parts(regime: Regime) -> mnist.StageParts:
    """54 weights per pair of channels; the released network counts a batch norm that it never runs."""
    sizes = MNIST_SIZES[regime.recipe, regime.resolution]
    return mnist.StageParts(
        lambda stage, i, o: SSConv(i, o, sizes, MNIST_NOMINAL, MNIST_ORDERS, recipe=regime.recipe),
        channels=(30, 60, 90),
        hidden_bias=True,
        leftover=nn.BatchNorm2d if regime.recipe == "released" else None,
    )


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """18 weights per pair of channels, and plain shortcuts."""

    def conv(i: int, o: int, sizes: Sequence[int] = STL10_SIZES, stride: int = 1) -> nn.Module:
        return SSConv(i, o, sizes, STL10_NOMINAL, STL10_ORDERS, stride=stride, recipe=recipe)

    return wrn.BlockParts(
        stem=conv,
        conv=lambda place, i, o, stride: conv(i, o, BLOCK_SIZES[recipe], stride),
        shortcut=conv1x1,
        base=(11, 22, 44),
        stem_width=11,
    )


def at_step(step: float) -> nn.Module:
    """Three filters; their sides are whole and odd, which the steps between them follow: the nearest from below."""
    sizes = [odd_side(MNIST_NOMINAL * scale) for scale in (1 / step, 1, step)]
    return SSConv(COLOURS, CHANNELS, sizes, MNIST_NOMINAL, MNIST_ORDERS)


SS_CNN = Method(
    "ss-cnn",
    "SS-CNN",
    Source("Ghosh & Gupta 2019, arXiv:1906.03861", "Steerable Filters"),
    "#EB86D1",
    {
        "mnist": mnist.MNISTSkeleton(mnist_parts),
        "stl10": wrn.WRNSkeleton(wrn_parts),
        "stir": stir.STIRSkeleton(mnist_parts),
    },
    at_step,
    representative=False,
    goals=Goals(work=1.5),
)
