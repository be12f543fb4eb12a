"""Deep scale-spaces: a stack of blurred copies of the image, convolved with dilated filters.

D. E. Worrall and M. Welling, "Deep scale-spaces: Equivariance over scale", NeurIPS 2019.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants
from sesn.algorithms import padded_convolution, spectral_convolution
from sesn.algorithms.spectral import Taps
from sesn.errors import Inadmissible, UsageError
from sesn.layers.pool import GlobalPool
from sesn.layers.project import ScaleProjection
from sesn.layers.store import Store
from sesn.methods._layer import BaselineLayer, same_axes, spectral_pays
from sesn.methods.method import CHANNELS, COLOURS, EXTENT, HIDDEN_SCALES, MNIST_SIDE, Goals, Method, Source, projected
from sesn.networks import Recipe, Regime, mnist, stir, wrn
from sesn.networks.skeleton import FIELD
from sesn.networks.wrn import BlockPlace
from sesn.scales import ScaleGrid

Init = Literal["he", "delta"]


def discrete_gaussian(t: float, radius: int) -> Tensor:
    """Lindeberg's discrete Gaussian exp(-t) I_n(t), n = -radius .. radius, in float64, normalised to sum 1.

    I_n is a modified Bessel function: exp(-t) I_n(t) is the n-th Fourier coefficient of exp(t (cos u - 1)).
    """
    points = 8 * radius + 64  # beyond this the coefficients vanish, so that the sum is the integral
    u = torch.arange(points, dtype=torch.float64, device="cpu") * (2 * math.pi / points)
    n = torch.arange(-radius, radius + 1, dtype=torch.float64, device="cpu")
    taps = (n[:, None] * u).cos() @ (t * (u.cos() - 1)).exp()
    return taps / taps.sum()


def blur_variance(scale: int, base: int, zero_scale: float) -> float:
    """t_k = zero_scale^2 (base^(2k) - 1), in squared pixels: what takes blur zero_scale to zero_scale base^k."""
    return zero_scale**2 * float(base ** (2 * scale) - 1)


def blur_radius(t: float) -> int:
    """Where a blur of variance t is cut: 4 ceil(sqrt(t))."""
    return 4 * math.ceil(math.sqrt(t))


class DSSLift(nn.Module):
    """The scale-space of an image, [b, c, h, w] -> [b, c, s, h, w]; it has no parameters.

    Scale 0 is the image; scale k is the image blurred along both axes with the discrete Gaussian of variance
    t_k = zero_scale^2 (base^(2k) - 1), cut at 4 ceil(sqrt(t_k)), normalised to sum 1, zeros outside the image.
    Nothing is downsampled.

    Args:
        scales: how many.
        base: the factor between neighbouring scales; `DSSConv` dilates by its powers.
        zero_scale: the blur, in pixels, that the image is taken to have.
        device, dtype: as every layer takes them; without parameters this one follows its input.
    """

    def __init__(
        self,
        scales: int,
        *,
        base: int = 2,
        zero_scale: float = 0.25,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.scales = _checks.whole("scales", scales, 1, "give the number of scales")
        self.base = _admissible(base)
        _checks.require(_checks.positive(zero_scale), "zero_scale", zero_scale, "a positive, finite number")
        self.zero_scale = float(zero_scale)
        self.variances = [blur_variance(k, self.base, self.zero_scale) for k in range(self.scales)]
        #: pixels that the widest blur sees to each side
        self.receptive_radius = blur_radius(self.variances[-1])
        self._store = Store()

    def forward(self, image: Tensor) -> Tensor:
        """Blur an image [b, c, h, w] to a field [b, c, s, h, w]."""
        _checks.real_tensor("image", image, "b c h w")
        if self.scales == 1:
            return image.unsqueeze(2)
        rows, columns = (self._matrices(size, image) for size in image.shape[-2:])
        # [s h, h] @ [b, c, h, w] does the rows of all scales at once; the columns need one matrix per scale.
        down = (rows.flatten(0, 1) @ image).reshape(*image.shape[:2], self.scales - 1, *image.shape[2:])
        return torch.cat([image.unsqueeze(2), down @ columns.transpose(-1, -2)], dim=2)

    def _matrices(self, size: int, like: Tensor) -> Tensor:
        """[s - 1, size, size]: the blurs of scales 1, 2, ... along an axis, zero padding included."""
        return self._store.constant(size, like, lambda: torch.stack([_banded(t, size) for t in self.variances[1:]]))

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Nominal multiply-adds for an image of this shape: the taps of both one-dimensional blurs at every pixel."""
        return math.prod(shape) * sum(2 * (2 * blur_radius(t) + 1) for t in self.variances[1:])

    def extra_repr(self) -> str:
        """The scales."""
        return f"1 -> {self.scales} scales, base={self.base}, zero_scale={self.zero_scale:g}"


class DSSConv(BaselineLayer):
    """Dilated convolution of a scale-space, [b, c, s, h, w] -> [b, c', s, h', w'].

    Output scale k = sum_i correlation(field[k + i], w_i dilated by base^k), i = 0 .. interscale - 1, with nothing
    past the coarsest scale: one weight for all scales. There is no bias. The output side is ceil(h / stride).

    Args:
        in_channels, out_channels: channels of the two fields.
        kernel_size: taps along each axis, odd; they lie base^k pixels apart at scale k.
        scales: how many the field has.
        interscale: how many neighbouring scales a filter sees.
        base: dilation of scale 1.
        stride: spatial stride.
        init: "he" draws weights from N(0, 2 / (k^2 interscale c)), as on MNIST; "delta", as on STL-10, from
            U(-0.01, 0.01) with the centre taps passing channels on: g / c' where floor(i g / c) = floor(o g / c'),
            g = gcd(c, c').
    """

    weight: nn.Parameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        scales: int,
        *,
        interscale: int = 1,
        base: int = 2,
        stride: int = 1,
        init: Init = "he",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, stride)
        self.kernel_size = _checks.odd("kernel_size", kernel_size)
        self.scales = _checks.whole("scales", scales, 1, "give the number of scales")
        self.interscale = _checks.whole("interscale", interscale, 1)
        rule = f"at most the number of scales ({self.scales})"
        _checks.require(self.interscale <= self.scales, "interscale", interscale, rule, "use more scales")
        self.base = _admissible(base)
        self.init = _checks.one_of("init", init, ("he", "delta"))
        self.scale_grid = ScaleGrid(float(self.base**k) for k in range(self.scales))
        self.receptive_radius = self.kernel_size // 2 * int(self.base ** (self.scales - 1))
        seen = sum(min(self.interscale, self.scales - k) for k in range(self.scales))
        self.taps = seen * self.kernel_size**2
        self.details = f"kernel_size={self.kernel_size}", f"scales={self.scales}"
        self.details += (f"interscale={self.interscale}",) if self.interscale > 1 else ()
        shape = self.out_channels, self.in_channels, self.interscale, self.kernel_size, self.kernel_size
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As `init` says."""
        if self.init == "he":
            nn.init.normal_(self.weight, std=math.sqrt(2 / self.weight[0].numel()))
            return
        nn.init.uniform_(self.weight, -0.01, 0.01)
        common = math.gcd(self.in_channels, self.out_channels)
        group_in, group_out = (
            torch.arange(count, device=self.weight.device) * common // count
            for count in (self.in_channels, self.out_channels)
        )
        pairs = group_out[:, None] == group_in[None, :]
        centre = self.kernel_size // 2
        with torch.no_grad():
            self.weight[:, :, :, centre, centre] = torch.where(
                pairs[..., None], common / self.out_channels, self.weight[:, :, :, centre, centre]
            )

    def forward(self, field: Tensor) -> Tensor:
        """Convolve a field [b, c, s, h, w] to a field [b, c', s, h', w']."""
        self._check_field(field, self.weight, self.scales)
        slices = field.unbind(2)
        return torch.stack([self._scale(k, slices[k : k + self.interscale]) for k in range(self.scales)], dim=2)

    def _scale(self, scale: int, seen: tuple[Tensor, ...]) -> Tensor:
        dilation = self.base**scale
        x = seen[0] if len(seen) == 1 else torch.cat(seen, dim=1)
        down, across = (min(self.kernel_size // 2, (size - 1) // dilation) for size in x.shape[-2:])
        centre = self.kernel_size // 2  # farther taps than `down` and `across` only ever see padding
        taps = self.weight[:, :, : len(seen), centre - down : centre + down + 1, centre - across : centre + across + 1]
        kernel = taps.transpose(1, 2).flatten(1, 2)
        axes = same_axes(x, self.stride)
        places = Taps(-down * dilation, 2 * down + 1, dilation), Taps(-across * dilation, 2 * across + 1, dilation)
        if spectral_pays(x, kernel, *axes, places):
            return spectral_convolution(x, kernel, None, *axes, places)
        padding = down * dilation, across * dilation
        return padded_convolution(x, kernel, stride=self.stride, padding=padding, dilation=dilation)

    def meaning(self) -> Constants:
        """The dilation from scale to scale."""
        return {"base": (self.base,)}


def _banded(t: float, size: int) -> Tensor:
    """The blur along an axis of `size` pixels as a matrix in float64."""
    radius = blur_radius(t)
    taps = discrete_gaussian(t, radius)
    offset = torch.arange(size)[:, None] - torch.arange(size)[None, :]
    return torch.where(offset.abs() <= radius, taps[(offset + radius).clamp(0, 2 * radius)], 0.0)


# --- its networks

#: Dilations 1, 2, 4, 8 by the paper; the release has the first two.
MNIST_SCALES: dict[Recipe, int] = {"paper": 4, "released": 2}
MNIST_ZERO_SCALE = 0.25
STL10_ZERO_SCALE = 0.5
#: Scales that a group gets; groups 0 and 1 enter by a convolution over two scales and lose one.
STL10_SCALES = (4, 3, 2, 2)


def mnist_scalar(regime: Regime) -> mnist.StageParts:
    """A new scale-space before every convolution, and the maximum over scales after it."""
    scales = MNIST_SCALES[regime.recipe]
    return mnist.StageParts(
        lambda stage, i, o: nn.Sequential(
            DSSLift(scales, zero_scale=MNIST_ZERO_SCALE), DSSConv(i, o, 7, scales), ScaleProjection()
        )
    )


def mnist_vector(regime: Regime) -> mnist.StageParts:
    """Lifted once; the maximum over scales is taken after the last norm."""
    scales = MNIST_SCALES[regime.recipe]

    def layer(stage: int, in_channels: int, out_channels: int) -> nn.Module:
        conv = DSSConv(in_channels, out_channels, 7, scales)
        return conv if stage else nn.Sequential(DSSLift(scales, zero_scale=MNIST_ZERO_SCALE), conv)

    return mnist.StageParts(layer, (FIELD, FIELD, FIELD), projection=ScaleProjection)


# STL-10


class FirstScales(nn.Module):
    """Keep the first `count` scales of a field: those whose filters saw all the scales that they ask for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, field: Tensor) -> Tensor:
        """[b, c, s, h, w] -> [b, c, count, h, w]."""
        return field[:, :, : self.count]

    def extra_repr(self) -> str:
        """How many."""
        return str(self.count)


def _loses_a_scale(place: BlockPlace) -> bool:
    return place.block == 0 and STL10_SCALES[place.group + 1] < STL10_SCALES[place.group]


def _conv(place: BlockPlace, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    enters = place.enters_group
    scales = STL10_SCALES[place.group + (0 if enters else 1)]
    seen = 2 if enters and _loses_a_scale(place) else 1
    return DSSConv(in_channels, out_channels, 3, scales, interscale=seen, stride=stride, init="delta")


def _trim(place: BlockPlace) -> nn.Module:
    return FirstScales(STL10_SCALES[place.group + 1]) if _loses_a_scale(place) else nn.Identity()


def wrn_parts(recipe: Recipe) -> wrn.BlockParts:
    """Four scales at first; filters over two scales, which cost one of them, enter groups 1 and 2.

    The middle group is narrower (30 instead of 32), which pays for the filters' extent, under both recipes.
    """
    scales = STL10_SCALES
    return wrn.BlockParts(
        stem=lambda i, o: nn.Sequential(
            DSSLift(scales[0], zero_scale=STL10_ZERO_SCALE), DSSConv(i, o, 3, scales[0], init="delta")
        ),
        conv=_conv,
        shortcut=lambda place, i, o, stride: DSSConv(i, o, 1, scales[place.group + 1], stride=stride, init="delta"),
        carrier=FIELD,
        head=lambda channels: nn.Sequential(FIELD.activated(channels), ScaleProjection(), GlobalPool("mean")),
        base=(16, 30, 64),
        trim=_trim,
        fan_out=(),
    )


def at_step(step: float) -> nn.Module:
    """The image and its blur, with the filter dilated by the step; the layer itself refuses broken numbers."""
    base: int = int(step) if float(step).is_integer() else step  # type: ignore[assignment]
    lift = DSSLift(2, base=base, zero_scale=MNIST_ZERO_SCALE)
    return nn.Sequential(lift, DSSConv(COLOURS, CHANNELS, MNIST_SIDE, 2, base=base))


def between(extent: int = EXTENT) -> nn.Module:
    """Scale-space to scale-space."""
    return DSSConv(CHANNELS, CHANNELS, MNIST_SIDE, HIDDEN_SCALES, interscale=extent)


def _admissible(base: int) -> int:
    """The step of the scales: filters are dilated by it, so that it is a whole number of pixels."""
    try:
        return _checks.whole("base", base, 2)
    except UsageError as refusal:
        raise Inadmissible(str(refusal)) from None


SOURCE = Source("Worrall & Welling 2019, arXiv:1905.11697", "Filter Dilation")
GOALS = Goals(work=1.5)
DSS_SCALAR = Method(
    "dss-scalar",
    "DSS Scalar",
    SOURCE,
    "#0282FF",
    {"mnist": mnist.MNISTSkeleton(mnist_scalar), "stir": stir.STIRSkeleton(mnist_scalar)},
    projected(at_step),
    representative=False,
    goals=GOALS,
    absences={"stl10": "on STL-10 the paper keeps the scales; use dss-vector"},
)
DSS_VECTOR = Method(
    "dss-vector",
    "DSS Vector",
    SOURCE,
    "#0B2AE9",
    {
        "mnist": mnist.MNISTSkeleton(mnist_vector),
        "stl10": wrn.WRNSkeleton(wrn_parts),
        "stir": stir.STIRSkeleton(mnist_vector),
    },
    at_step,
    between,
    goals=GOALS,
    labels={"stl10": "DSS"},
)
