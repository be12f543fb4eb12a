"""What training does to a batch: random changes, and the pixels 0..255 normalised for the network.

Every draw comes from the torch generator that is given, a fixed number for each image, so a run can be repeated and
resumed. No loop goes over images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.data.mnist_scale import FIXED_POINT
from sesn.errors import UsageError

#: Mean and standard deviation of the pixels in 0..1, for every realisation and split alike.
MNIST_MEAN, MNIST_STD = (0.0607,), (0.2161,)
STL10_MEAN, STL10_STD = (0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713)
#: The factors of the paper's "+" regime: uniform, not log-uniform.
PLUS_SCALES = (0.5, 2.0)
STL10_SIDE = 96
STL10_PADDING = 12
STL10_HOLE = 32


def mnist_batch(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Digits uint8 [n, h, w] as the network's input, float32 [n, 1, h, w]; with a generator in the "+" regime."""
    chosen = images if generator is None else random_rescale(images, generator)
    return normalised(chosen[:, None], MNIST_MEAN, MNIST_STD)


def stl10_batch(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Photographs uint8 [n, 3, h, w] as the network's input, float32; with a generator as in training.

    Then a crop after zero padding by 12 and a mirror image come before the normalisation (the frame is black), and
    a hole 32 pixels wide after it (the hole has the mean colour): 12 and 32 of 96, the same parts of a smaller side.
    """
    if generator is None:
        return normalised(images, STL10_MEAN, STL10_STD)
    padding, hole = (round(length * images.shape[-1] / STL10_SIDE) for length in (STL10_PADDING, STL10_HOLE))
    moved = random_flip(random_crop(images, padding, generator), generator)
    return cutout(normalised(moved, STL10_MEAN, STL10_STD), hole, generator)


def normalised(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Pixels uint8 [n, c, h, w] divided by 255, less the mean, over the standard deviation of each channel: float32."""
    shift, spread = (torch.tensor(values, device=images.device).view(-1, 1, 1) for values in (mean, std))
    return (images.to(torch.float32) / 255 - shift) / spread


def random_rescale(
    images: Tensor,
    generator: torch.Generator,
    scales: tuple[float, float] = PLUS_SCALES,
    fixed_point: float = FIXED_POINT,
) -> Tensor:
    """Each image uint8 [n, h, w] rescaled by its own factor, uniform between the two, as MNIST-scale was made."""
    lowest, highest = scales
    double = torch.float64 if generator.device.type != "mps" else torch.float32
    drawn = torch.rand(len(images), generator=generator, device=generator.device, dtype=double)
    return rescale_digits(images, lowest + (highest - lowest) * drawn, fixed_point)


def rescale_digits(images: Tensor, factors: Tensor, fixed_point: float = FIXED_POINT) -> Tensor:
    """Each image uint8 [n, h, w] scaled by its factor about a point, the size kept: Pillow's affine map in batches.

    That is Keys' cubic with a = -1 at the source position, no low-pass filter; outside the image 0, and neighbours past
    the border repeat it; the result is clipped to 0..255 and its fraction cut off. The operations and their order are
    Pillow's, in float64, and so are the results, bit for bit.
    """
    if factors.shape != images.shape[:1]:
        raise UsageError(f"`factors.shape` (={tuple(factors.shape)}) must be ({len(images)},), one for each image")
    place = images.device if images.device.type != "mps" else torch.device("cpu")  # MPS has no float64
    steps = 1 / factors.to(place, torch.float64)
    values = images.to(place, torch.float64)
    for _ in range(2):
        values = _sampled(values, steps, fixed_point).transpose(-1, -2)
    return values.clamp(0, 255).to(torch.uint8).to(images.device)


def _sampled(values: Tensor, steps: Tensor, fixed_point: float) -> Tensor:
    """The last axis of [n, h, w] sampled `steps` apart about a point, in pixels from the first corner."""
    size = values.shape[-1]
    outputs = torch.arange(size, device=values.device, dtype=torch.float64) + 0.5
    start = fixed_point - steps * fixed_point
    positions = steps[:, None] * outputs + start[:, None]
    inside = (positions >= 0) & (positions < size)
    first = (positions - 0.5).floor()
    fraction = ((positions - 0.5) - first)[:, None]
    before, left, right, after = (
        values.gather(2, (first.to(torch.int64) + tap).clamp(0, size - 1)[:, None].expand_as(values))
        for tap in (-1, 0, 1, 2)
    )
    # Keys' polynomial by powers of the fraction.
    linear = right - before
    square = 2 * (before - left) + right - after
    cube = left - before - right + after
    sampled = left + fraction * (linear + fraction * (square + fraction * cube))
    return torch.where(inside[:, None], sampled, torch.zeros_like(sampled))


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Images [n, c, h, w] moved by up to `padding` pixels each way, black where nothing was; all moves alike likely."""
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    top, left = (_whole_numbers(2 * padding + 1, count, generator).to(images.device) for _ in range(2))
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    picture = torch.arange(count, device=images.device)[:, None, None]
    # The indices stand on either side of the channels, so those come last.
    return padded[picture, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image [n, c, h, w] or, as likely, its mirror image."""
    flipped = _whole_numbers(2, len(images), generator).to(images.device) == 1
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)


def cutout(images: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """A square hole of zeros in each image [n, c, h, w], centred on any pixel; at the border a part of it.

    With an even length the hole reaches from length/2 pixels before its centre to length/2 - 1 after it.
    """
    count, _, height, width = images.shape

    def inside(side: int) -> Tensor:
        """Which of `side` pixels lie in the hole: bool [count, side]."""
        centre = _whole_numbers(side, count, generator)[:, None]
        pixels = torch.arange(side, device=generator.device)
        return ((pixels >= centre - length // 2) & (pixels < centre + length // 2)).to(images.device)

    rows, columns = inside(height), inside(width)
    return images.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], 0)


def _whole_numbers(below: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(below, (count,), generator=generator, device=generator.device)
