"""Scale-channel networks: one network sees the image at several sizes, with shared weights, and its scores are pooled.

Y. Jansson and T. Lindeberg, "Exploring the ability of CNNs to generalise to previously unseen scales over wide scale
ranges", ICPR 2020. The channels are foveated: every one sees as many pixels as the image has, about its centre.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants, WithMeaning
from sesn.algorithms.resample import resampling_matrix
from sesn.layers.store import Store
from sesn.methods._layer import KernelLayer, correlate, positive, resize
from sesn.methods.cnn import mnist_parts, wrn_parts
from sesn.methods.method import CHANNELS, COLOURS, HIDDEN_SCALES, HIDDEN_STEP, MNIST_SIDE, WIDE_SIDE, Method, Source
from sesn.networks import Recipe, Skeleton, mnist, stir, wrn

Pooling = Literal["mean", "max"]
#: Pixels to each side that the resampler reads, of the coarser of the two grids.
LOBES = 3


def magnification(size: int, factor: float) -> Tensor:
    """[size, size]: a line enlarged or shrunk about its centre: what leaves is cut off, and zeros come in."""
    return resampling_matrix(size, factor, "lanczos3", "zeros", canvas="keep")


def magnified(image: Tensor, factor: float, store: Store) -> Tensor:
    """The image [b, c, h, w] enlarged or shrunk about its centre, on a canvas of its own size."""
    if factor == 1:
        return image
    rows, columns = (
        store.constant((size, factor), image, partial(magnification, size, factor)) for size in image.shape[-2:]
    )
    return resize(image, rows, columns)


class ScaleChannelConv(KernelLayer):
    """A convolution in every scale channel, with one kernel: [b, c, h, w] or [b, c, s, h, w] -> [b, c', s, h, w].

    Channel k resizes its map by 1 / scales[k] about the centre, on a canvas of the same number of pixels, convolves it
    and resizes the response back. So the channels stand on one grid of pixels, and what is past the border of a channel
    is zero. Inside a network nothing is resized back between layers.

    Args:
        in_channels, out_channels: channels of the two maps.
        kernel_size: side of the kernel, odd.
        scales: the sizes, relative to the kernel's, of what the channels look for.
        device, dtype: of the parameters.
    """

    weight: nn.Parameter

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        scales: Sequence[float],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, scales, device=device, dtype=dtype)
        # The kernel on a resized map, and the resampler on the way there and back, from pixel centre to pixel centre.
        reach = self.kernel_size // 2 * self.scales[-1] + 2 * LOBES * max(1.0, self.scales[-1])
        self.receptive_radius = math.ceil(reach) + 2
        self.grid = self.scale_grid  # its output has an axis of scales
        self.reset_parameters()

    def forward(self, image: Tensor) -> Tensor:
        """Convolve an image in every channel, or each channel of a field by itself."""
        if isinstance(image, Tensor) and image.dim() == 5:
            self._check_field(image, self.weight, len(self.scales))
            maps = image.unbind(2)
        else:
            self._check_image(image, self.weight)
            maps = (image,) * len(self.scales)
        channels = zip(maps, self.scales, strict=True)
        return torch.stack([self._channel(one, scale) for one, scale in channels], dim=2)

    def _channel(self, image: Tensor, scale: float) -> Tensor:
        responses = correlate(magnified(image, 1 / scale, self._store), self.weight, -(self.kernel_size // 2), 1)
        return magnified(responses, scale, self._store)


class ScaleChannelNet(WithMeaning):
    """A network on several sizes of an image, with the same weights at all; its scores are pooled over them.

    Args:
        network: from images [b, c, h, w] to scores [b, n].
        scales: the sizes of what the channels look for; a channel sees the image resized by 1 / scale.
        pooling: "mean" or "max".
    """

    def __init__(self, network: nn.Module, scales: Sequence[float], pooling: Pooling) -> None:
        super().__init__()
        self.network = network
        self.scales = positive("scales", scales)
        self.pooling = cast(Pooling, _checks.one_of("pooling", pooling, ("mean", "max")))
        self._store = Store()

    def forward(self, image: Tensor) -> Tensor:
        """Scores of the classes; the channels of an image join the batch."""
        _checks.real_tensor("image", image, "b c h w")
        seen = torch.stack([magnified(image, 1 / scale, self._store) for scale in self.scales], dim=1)
        scores: Tensor = self.network(seen.flatten(0, 1))
        each = scores.reshape(image.shape[0], len(self.scales), -1)
        return each.mean(dim=1) if self.pooling == "mean" else each.amax(dim=1)

    def meaning(self) -> Constants:
        """The scales."""
        return {"scales": self.scales}

    def extra_repr(self) -> str:
        """`in -> out` of the network, the scales and how they are pooled."""
        scales = ", ".join(f"{scale:.3g}" for scale in self.scales)
        return f"{self.network.extra_repr()}, scales=({scales}), pooling={self.pooling!r}"


@dataclass(frozen=True)
class ScaleChannelSkeleton(Skeleton):
    """A plain network in scale channels."""

    shared: Skeleton
    side: int
    scales: tuple[float, ...]
    pooling: Pooling

    def __call__(
        self, recipe: Recipe = "paper", num_classes: int | None = None, in_channels: int | None = None, **options: Any
    ) -> nn.Module:
        """The network with fresh weights."""
        sizes = {"num_classes": num_classes, "in_channels": in_channels}
        given = {name: size for name, size in sizes.items() if size is not None}
        return ScaleChannelNet(self.shared(recipe, **given, **options), self.scales, self.pooling)

    def first_layer(self, in_channels: int, out_channels: int, recipe: Recipe) -> nn.Module:
        """The first convolution in every channel."""
        return ScaleChannelConv(in_channels, out_channels, self.side, self.scales)

    def next_layer(self, channels: int, recipe: Recipe) -> nn.Module:
        """A convolution from channels to channels."""
        return self.first_layer(channels, channels, recipe)

    def widths(self, recipe: Recipe) -> tuple[int, ...]:
        """Those of the plain network."""
        return self.shared.widths(recipe)


#: Digits of MNIST-scale are at most as large as the image: the channels enlarge it, by up to 2 sqrt(2).
MNIST_SCALES = tuple(2 ** (k / 2) for k in (-3, -2, -1, 0))
#: Objects on photographs may be larger or smaller than usual.
STL10_SCALES = tuple(2 ** (k / 2) for k in (-1, 0, 1))
#: The pyramid of STIR, which shrinks the image by octaves.
STIR_SCALES = (1.0, 2.0, 4.0, 8.0)


def at_step(step: float) -> nn.Module:
    """The image enlarged by the step, as it is, and shrunk."""
    return ScaleChannelConv(COLOURS, CHANNELS, MNIST_SIDE, (1 / step, 1, step))


def between() -> nn.Module:
    """A convolution of three channels."""
    return ScaleChannelConv(CHANNELS, CHANNELS, MNIST_SIDE, [HIDDEN_STEP**k for k in range(HIDDEN_SCALES)])


def _method(key: str, label: str, colour: str, pooling: Pooling) -> Method:
    plain, wide = mnist.MNISTSkeleton(mnist_parts), wrn.WRNSkeleton(wrn_parts)
    return Method(
        key,
        label,
        Source("Jansson & Lindeberg 2020, arXiv:2004.01536", "Input Rescaling"),
        colour,
        {
            "mnist": ScaleChannelSkeleton(plain, MNIST_SIDE, MNIST_SCALES, pooling),
            "stl10": ScaleChannelSkeleton(wide, WIDE_SIDE, STL10_SCALES, pooling),
            "stir": ScaleChannelSkeleton(stir.STIRSkeleton(mnist_parts), MNIST_SIDE, STIR_SCALES, pooling),
        },
        at_step,
        between,
        resamples="input",
        later=True,
        representative=False,
    )


FOV_AVG = _method("fov-avg", "FovAvg", "#688090", "mean")
FOV_MAX = _method("fov-max", "FovMax", "#300838", "max")
