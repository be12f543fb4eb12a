"""The group acting: scalings and translations, on images and on fields over scale x space.

L_s[f](x) = f(x/s) on an image; L_s[f](k, x) = f(s^-1 k, s^-1 x) on a field, whose scale axis shifts as well.
Rotations, and whatever else can be done to images, are in `sesn.meter.elements`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from sesn._checks import floating, one_of, positive, require
from sesn._checks import whole as whole_number
from sesn._torch import recording
from sesn.algorithms.axis import PaddingMode
from sesn.algorithms.banded import Block, along_both, bands, whole
from sesn.algorithms.resample import Canvas, Ends, Resampler, resampler_line, resampling_matrix
from sesn.errors import WrongTypeError
from sesn.scales import ScaleGrid


class GroupElement:
    """What is done to images, and to outputs with spatial axes likewise."""

    scale: float  # the factor s by which it changes sizes
    shift: float = 0.0  # the most pixels by which it moves the image's centre, down or right

    @property
    def named(self) -> tuple[str, str]:
        """What it is and how much of it, for a heading and a column: ("downscale", "2")."""
        raise NotImplementedError

    def __str__(self) -> str:
        return " ".join(self.named)

    def act(self, maps: Tensor, resampler: Resampler, ends: Ends, canvas: Canvas, stride: float = 1) -> Tensor:
        """Move maps.

        Args:
            maps: [..., h, w].
            resampler, ends, canvas: as in `sesn.Meter`.
            stride: pixels of the image between neighbours.

        Returns:
            The maps moved.
        """
        raise NotImplementedError

    def act_on_outputs(self, output: Tensor) -> Tensor | None:
        """Move an output, whatever its kind.

        Args:
            output: of a module.

        Returns:
            The output moved; None if it is moved like an image or, without spatial axes, not at all.
        """
        return None

    def check(self, images: Tensor) -> None:
        """Refuse images that it cannot act on.

        Args:
            images: [b, c, h, w].
        """

    def hidden(self, canvas: Canvas) -> float:
        """Tell the part of the side, at each border, where the moved image shows no picture.

        Args:
            canvas: "follow" or "keep".

        Returns:
            A number from 0 to 1/2.
        """
        return 0.0


@dataclass(frozen=True)
class ScaleTranslation(GroupElement):
    """An element (s, t) of the scale-translation group H: x -> s x + t, with t = (down, right).

    `g2 @ g1` is (s2 s1, s2 t1 + t2): first g1, then g2.

    Args:
        scale: s > 0.
        translation: t.

    Raises:
        UsageError: the scale is not positive and finite.

    Example:
        >>> sesn.ScaleTranslation(0.5) @ sesn.ScaleTranslation(1.0, (4.0, 2.0))
        ScaleTranslation(scale=0.5, translation=(2.0, 1.0))
    """

    scale: float
    translation: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        require(positive(self.scale), "scale", self.scale, "positive and finite")
        pixels = isinstance(self.translation, tuple) and len(self.translation) == 2
        pixels = pixels and all(isinstance(one, Real) and math.isfinite(one) for one in self.translation)
        rule = "a tuple of two finite numbers, pixels down and right"
        require(pixels, "translation", self.translation, rule, "for example (1.0, 0.0)")

    def __matmul__(self, other: ScaleTranslation) -> ScaleTranslation:
        down, right = (self.scale * t1 + t2 for t1, t2 in zip(other.translation, self.translation, strict=True))
        return ScaleTranslation(self.scale * other.scale, (down, right))

    def inverse(self) -> ScaleTranslation:
        """Invert it: (s, t)^-1 = (1/s, -t/s).

        Returns:
            The element that undoes this one.
        """
        down, right = (-t / self.scale for t in self.translation)
        return ScaleTranslation(1 / self.scale, (down, right))

    def move(self, points: Tensor) -> Tensor:
        """Move points.

        Args:
            points: [..., 2] as (down, right).

        Returns:
            s x + t for each, [..., 2].
        """
        return self.scale * points + points.new_tensor(self.translation)

    __str__ = GroupElement.__str__

    @property
    def shift(self) -> float:  # type: ignore[override]
        """The most pixels of the translation, down or right."""
        return max(map(abs, self.translation))

    @property
    def named(self) -> tuple[str, str]:
        """Told as a downscale, a shift or both."""
        down, right = self.translation
        pixels = f"{down:.4g}" if down == right else f"{down:.4g}, {right:.4g}"
        pixels += " pixel" if pixels in ("1", "-1") else " pixels"
        if self.scale == 1 and self.shift:
            return "shift by", pixels
        return "downscale", f"{1 / self.scale:.4g}" + (f", shift by {pixels}" if self.shift else "")

    def act(self, maps: Tensor, resampler: Resampler, ends: Ends, canvas: Canvas, stride: float = 1) -> Tensor:
        """Rescale maps about the centre, and then shift them.

        Args:
            maps, resampler, ends, canvas, stride: as in `GroupElement.act`.

        Returns:
            The maps moved.
        """
        small = rescale(maps, self.scale, resampler, ends, canvas=canvas)
        down, right = (pixels / stride for pixels in self.translation)
        return shifted(small, down, right, resampler, ends) if self.shift else small

    def hidden(self, canvas: Canvas) -> float:
        """Tell the part of the background on a canvas that is kept.

        Args:
            canvas: "follow" or "keep".

        Returns:
            A number from 0 to 1/2.
        """
        return (1 - min(1.0, self.scale)) / 2 if canvas == "keep" else 0.0


def rescale(
    image: Tensor,
    factor: float,
    resampler: Resampler = "lanczos3",
    ends: Ends = "zeros",
    offset: float = 0.0,
    *,
    canvas: Canvas = "follow",
) -> Tensor:
    """L_s on the last two axes, about the centre, computed in float64.

    Args:
        image: [..., h, w].
        factor: s > 0; below 1 shrinks. Factor 1 returns the image itself.
        resampler, ends, offset, canvas: as in `resampling_matrix`; with `ends="mean"` the pixels past the border have
            the picture's mean.

    Returns:
        [..., round(h s), round(w s)], or [..., h, w] if the canvas is kept, with the input's dtype and device.

    Raises:
        UsageError: the image has no two axes, or an argument breaks its rule.

    Example:
        >>> sesn.rescale(torch.randn(2, 3, 96, 96), 0.5).shape
        torch.Size([2, 3, 48, 48])
    """
    if not isinstance(image, Tensor):
        raise WrongTypeError(f"`image` must be a torch tensor [..., h, w], got {type(image).__name__}")
    floating("image", image)
    require(image.dim() >= 2, "image.shape", tuple(image.shape), "[..., h, w]")
    if factor == 1 and offset == 0:
        return image
    place = image.device if image.device.type != "mps" else torch.device("cpu")  # MPS has no float64
    precise = image.to(place, torch.float64)
    if ends == "mean":
        mean = precise.mean((-2, -1), keepdim=True)
        return (rescale(precise - mean, factor, resampler, "zeros", offset, canvas=canvas) + mean).to(image)
    rows, columns = (_blocks(n, factor, resampler, ends, offset, canvas, precise) for n in image.shape[-2:])
    return along_both(rows, columns, precise).to(image)


def _blocks(
    size: int, factor: float, resampler: Resampler, ends: Ends, offset: float, canvas: Canvas, like: Tensor
) -> tuple[Block, ...]:
    matrix = resampling_matrix(size, factor, resampler, ends, offset, canvas=canvas)
    line = resampler_line(size, factor, resampler, ends, offset) if canvas == "follow" else None
    return whole(matrix, like) if line is None or recording() else bands(matrix, line, like)


def rescale_field(
    field: Tensor, factor: float, grid: ScaleGrid, resampler: Resampler = "lanczos3", ends: Ends = "zeros"
) -> tuple[Tensor, tuple[int, ...]]:
    """L_s on a field: space is rescaled and the scale axis shifts.

    Args:
        field: [b, c, s, h, w].
        factor: s > 0; below 1 shrinks.
        grid: the field's scales.
        resampler, ends: as in `resampling_matrix`.

    Returns:
        The field on the same grid and the scale channels that have a partner; the others, which would come from beyond
        the grid, are zero.

    Raises:
        UsageError: the field has another number of scales than the grid.

    Example:
        >>> moved, partnered = sesn.rescale_field(torch.randn(1, 1, 3, 8, 8), 0.5, sesn.ScaleGrid([1.0, 2.0, 4.0]))
        >>> moved.shape, partnered
        (torch.Size([1, 1, 3, 4, 4]), (0, 1))
    """
    require(field.shape[2] == len(grid), "field.shape[2]", field.shape[2], f"the grid's length ({len(grid)})")
    small = rescale(field, factor, resampler, ends)
    moved = torch.zeros_like(small)
    pairs = grid.match(factor).pairs
    for k, j in pairs:
        moved[:, :, k] = small[:, :, j]
    return moved, tuple(k for k, _ in pairs)


def translate(image: Tensor, down: int, right: int, ends: PaddingMode = "zeros") -> Tensor:
    """L_t on the last two axes by whole pixels.

    Args:
        image: [..., h, w].
        down, right: pixels, negative for up and left.
        ends: what leaves is lost ("zeros") or comes back at the other side ("circular").

    Returns:
        The image moved, of the same shape.

    Raises:
        UsageError: the image has no two axes, or `ends` is unknown.
        WrongTypeError: the image is no tensor, or the pixels are no whole numbers.

    Example:
        >>> sesn.translate(torch.tensor([[1, 2], [3, 4]]), 1, 0)
        tensor([[0, 0],
                [1, 2]])
    """
    if not isinstance(image, Tensor):
        raise WrongTypeError(f"`image` must be a torch tensor [..., h, w], got {type(image).__name__}")
    require(image.dim() >= 2, "image.shape", tuple(image.shape), "[..., h, w]")
    remedy = "for fractions of a pixel use sesn.Meter().move(image, sesn.ScaleTranslation(1.0, (down, right)))"
    down, right = (whole_number(name, one, -math.inf, remedy) for name, one in (("down", down), ("right", right)))
    one_of("ends", ends, ("zeros", "circular"))
    rolled = torch.roll(image, (down, right), dims=(-2, -1))
    if ends == "circular":
        return rolled
    h, w = image.shape[-2:]
    rows, columns = torch.arange(h, device=image.device), torch.arange(w, device=image.device)
    inside_rows = (rows >= down) & (rows < h + down)
    inside_columns = (columns >= right) & (columns < w + right)
    return torch.where(inside_rows[:, None] & inside_columns, rolled, torch.zeros_like(rolled))


def shifted(image: Tensor, down: float, right: float, resampler: Resampler, ends: Ends) -> Tensor:
    """L_t on the last two axes: by whole pixels exactly, and by fractions as the resampler interpolates."""
    if ends == "mean":
        mean = image.mean((-2, -1), keepdim=True)
        return shifted(image - mean, down, right, resampler, "zeros") + mean
    whole_pixels = float(down).is_integer() and float(right).is_integer()
    if whole_pixels and ends != "reflection":
        return translate(image, int(down), int(right), "circular" if ends == "circular" else "zeros")
    past = "zeros" if ends == "inside" else ends  # what comes in was never inside
    sizes = zip(image.shape[-2:], (down, right), strict=True)
    rows, columns = (resampling_matrix(size, 1.0, resampler, past, -pixels).to(image) for size, pixels in sizes)
    return rows @ image @ columns.mT
