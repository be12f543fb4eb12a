"""Other things to do to images than to rescale and shift them: rotations, and any pair of functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from sesn._checks import complaint, floating, require
from sesn.algorithms.resample import Canvas, Ends, Resampler, resampler_ends, taps
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.action import GroupElement, ScaleTranslation

#: A factor s, or what else is done to the images.
Element = float | GroupElement
#: A rotation that is nearer than this to a quarter turn is one.
_SAME_DEGREES = 1e-9


def element_of(factor: Element) -> GroupElement:
    """What is done to the images: a factor stands for the scaling by it."""
    return factor if isinstance(factor, GroupElement) else ScaleTranslation(factor)


@dataclass(frozen=True)
class Rotation(GroupElement):
    """A rotation about the image's centre, for `Meter.measure` and `equivariance_error` in place of a factor.

    Images have to be square, and the corners are left out of Delta together with the border.

    Args:
        degrees: the angle, anticlockwise. Multiples of 90 are exact; for others the resampler interpolates.

    Raises:
        UsageError: the angle is not finite.

    Example:
        >>> error = sesn.equivariance_error(nn.Identity(), torch.randn(2, 1, 32, 32), sesn.Rotation(30.0))
        >>> error.valid.tolist(), str(error.element)
        ([0.0, 0.0], 'rotation by 30 degrees')
    """

    degrees: float

    scale = 1.0

    def __post_init__(self) -> None:
        fine = isinstance(self.degrees, Real) and math.isfinite(self.degrees)
        require(fine, "degrees", self.degrees, "a finite number", "for example 90 or 30")

    __str__ = GroupElement.__str__

    @property
    def named(self) -> tuple[str, str]:
        """Told in degrees."""
        return "rotation by", f"{self.degrees:.4g} degrees"

    def act(self, maps: Tensor, resampler: Resampler, ends: Ends, canvas: Canvas, stride: float = 1) -> Tensor:
        """Rotate maps about the centre.

        Args:
            maps, resampler, ends, canvas, stride: as in `GroupElement.act`.

        Returns:
            The maps moved.
        """
        return rotate(maps, self.degrees, resampler, ends)

    def check(self, images: Tensor) -> None:
        """Refuse images that are not square.

        Args:
            images: [..., h, w].

        Raises:
            UsageError: they are not.
        """
        shape = tuple(images.shape)
        require(shape[-2] == shape[-1], "images.shape", shape, "square to be rotated", "crop them first")

    def hidden(self, canvas: Canvas) -> float:
        """Tell the part up to the largest square, with sides like the image's, that shows nothing from outside.

        Args:
            canvas: "follow" or "keep".

        Returns:
            A number from 0 to 1/2.
        """
        angle = math.radians(_split(self.degrees)[1])
        return (1 - 1 / (math.cos(angle) + abs(math.sin(angle)))) / 2


@dataclass(frozen=True)
class Transform(GroupElement):
    """Anything else that is done to images, as a pair of functions, for `Meter.measure` in place of a factor.

    The module is equivariant if doing the one to its input does the other to its output. The floor of the probe is not
    known (NaN) for such a pair.

    Args:
        images: what is done to images [b, c, h, w], in float64.
        outputs: what is expected of the module's outputs, in float64; by default nothing: the module is invariant.
        name: how it is called in messages.

    Raises:
        WrongTypeError: one of the two cannot be called, or returns something else than a real tensor.
        UsageError: one of the two returns NaN or infinity, or a batch of another length.

    Example:
        >>> flip = sesn.Transform(lambda x: x.flip(-1), lambda y: y.flip(-1), "flip")
        >>> images = torch.randn(2, 1, 32, 32)
        >>> bool(sesn.equivariance_error(nn.AvgPool2d(3, 1, 1), images, flip).passes(1e-12))
        True
        >>> brighter = sesn.Transform(lambda x: 2 * x + 1, name="brighter by a factor and an offset")
        >>> bool(sesn.equivariance_error(nn.InstanceNorm2d(1), images, brighter).passes(1e-6))
        True
    """

    images: Callable[[Tensor], Tensor]
    outputs: Callable[[Tensor], Tensor] | None = None
    name: str = "of your own"

    scale = 1.0

    def __post_init__(self) -> None:
        for argument, function in (("images", self.images), ("outputs", self.outputs)):
            if not callable(function) and not (function is None and argument == "outputs"):
                raise WrongTypeError(complaint(argument, function, "a function from a tensor to a tensor"))

    __str__ = GroupElement.__str__

    @property
    def named(self) -> tuple[str, str]:
        """By its name."""
        return "transform", self.name

    def act(self, maps: Tensor, resampler: Resampler, ends: Ends, canvas: Canvas, stride: float = 1) -> Tensor:
        """Move maps as the function for images says.

        Args:
            maps, resampler, ends, canvas, stride: as in `GroupElement.act`.

        Returns:
            The maps moved.
        """
        return _tensor("images", self.images(maps.clone()), maps)

    def act_on_outputs(self, output: Tensor) -> Tensor:
        """Move an output as the function for outputs says.

        Args:
            output: of a module.

        Returns:
            The output moved.
        """
        if self.outputs is None:
            return output
        return _tensor("outputs", self.outputs(output.clone()), output).to(torch.float64)


def _tensor(argument: str, made: object, given: Tensor) -> Tensor:
    """What a function made of a batch, if it is a batch of as many numbers that can be compared."""
    if not isinstance(made, Tensor):
        raise WrongTypeError(f"`{argument}` must return a tensor, got {type(made).__name__}")
    if made.is_complex():
        raise WrongTypeError(f"`{argument}` must return real numbers, got {made.dtype}")
    if made.shape[:1] != given.shape[:1]:
        shapes = f"{tuple(made.shape)} for {tuple(given.shape)}"
        raise UsageError(f"`{argument}` must return as many images or outputs as it is given, got {shapes}")
    if not bool(torch.isfinite(made).all()):
        raise UsageError(f"`{argument}` must return finite numbers, got NaN or infinity")
    return made


def _split(degrees: float) -> tuple[int, float]:
    """Quarter turns, and the rest between -45 and 45 degrees."""
    quarters = round(degrees / 90)
    rest = degrees - 90 * quarters
    return quarters % 4, 0.0 if abs(rest) < _SAME_DEGREES else rest


def rotate(image: Tensor, degrees: float, resampler: Resampler = "lanczos3", ends: Ends = "zeros") -> Tensor:
    """Rotate the last two axes about the image's centre, in float64.

    Quarter turns only rearrange the pixels. The rest, at most 45 degrees, is interpolated at once in both directions.

    Args:
        image: [..., n, n].
        degrees: the angle, anticlockwise.
        resampler: "lanczos3", "bicubic" or "legacy"; any for multiples of 90 degrees.
        ends: what lies past the border, as in `resampling_matrix`; with "mean", the image's mean.

    Returns:
        The image rotated, of the same shape, dtype and device.

    Raises:
        UsageError: the image is not square, or the resampler cannot rotate it.

    Example:
        >>> sesn.rotate(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 90)
        tensor([[2., 4.],
                [1., 3.]])
    """
    if not isinstance(image, Tensor):
        raise WrongTypeError(f"`image` must be a torch tensor [..., n, n], got {type(image).__name__}")
    require(image.dim() >= 2, "image.shape", tuple(image.shape), "[..., n, n]")
    Rotation(degrees).check(image)
    quarters, rest = _split(degrees)
    turned = torch.rot90(image, quarters, (-2, -1))
    if rest == 0:
        return turned
    floating("image", image)
    rule = "lanczos3, bicubic or legacy for a rotation that is no multiple of 90 degrees"
    reason = "the Fourier interpolant is periodic, and a rotated square is not"
    resampler_ends(resampler, ends)
    require(resampler != "fourier", "resampler", resampler, rule, reason)
    place = turned.device if turned.device.type != "mps" else torch.device("cpu")  # MPS has no float64
    precise = turned.to(place, torch.float64)
    if ends == "mean":
        mean = precise.mean((-2, -1), keepdim=True)
        return (_interpolated(precise - mean, rest, resampler, "zeros") + mean).to(image)
    past: Ends = "zeros" if ends == "inside" else ends  # what comes in was never inside
    return _interpolated(precise, rest, resampler, past).to(image)


def _interpolated(image: Tensor, degrees: float, resampler: Resampler, ends: Ends) -> Tensor:
    size, angle = image.shape[-1], math.radians(degrees)
    along = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    down, right = along[:, None], along[None, :]
    sources = right * math.sin(angle) + down * math.cos(angle), right * math.cos(angle) - down * math.sin(angle)
    (rows, row_weights), (columns, column_weights) = (
        taps((source + (size - 1) / 2).flatten(), size, resampler, ends) for source in sources
    )
    pixels, rotated = image.flatten(-2), torch.zeros_like(image).flatten(-2)
    for row, row_weight in zip(rows.T, row_weights.T, strict=True):
        for column, column_weight in zip(columns.T, column_weights.T, strict=True):
            index, weight = (row * size + column).to(image.device), (row_weight * column_weight).to(image.device)
            rotated += pixels[..., index] * weight
    return rotated.reshape(image.shape)
