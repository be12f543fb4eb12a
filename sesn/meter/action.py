"""The group acting: scalings and translations, on images and on fields over scale x space.

L_s[f](x) = f(x/s) on an image; L_s[f](k, x) = f(s^-1 k, s^-1 x) on a field, whose scale axis shifts as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sesn._checks import floating, require
from sesn._torch import recording
from sesn.algorithms.axis import PaddingMode
from sesn.algorithms.banded import Block, along_both, bands, whole
from sesn.algorithms.resample import Canvas, Ends, Resampler, resampler_line, resampling_matrix
from sesn.errors import WrongTypeError
from sesn.scales import ScaleGrid


@dataclass(frozen=True)
class ScaleTranslation:
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
        require(math.isfinite(self.scale) and self.scale > 0, "scale", self.scale, "positive and finite")

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


#: A factor s, or a translation with it.
Element = float | ScaleTranslation


def scale_of(element: Element) -> float:
    """The factor s."""
    return element.scale if isinstance(element, ScaleTranslation) else element


def shift_of(element: Element) -> float:
    """The most pixels of the translation, down or right."""
    return max(map(abs, element.translation)) if isinstance(element, ScaleTranslation) else 0.0


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
        resampler, ends, offset, canvas: as in `resampling_matrix`; past the ends "mean", the picture has its mean.

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

    Example:
        >>> sesn.translate(torch.tensor([[1, 2], [3, 4]]), 1, 0)
        tensor([[0, 0],
                [1, 2]])
    """
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
