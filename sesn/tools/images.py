"""Every image set that Delta is measured on, by name: photographs, synthetic spectra, or the user's directory.

Images move Delta by a factor of 1000 and more, so the name that comes back with them belongs on every row.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from sesn._checks import one_of, require
from sesn.errors import UsageError
from sesn.meter.action import rescale
from sesn.tools.command import harness_part

Enlarging = Literal["lanczos", "fourier"]
#: How many images are taken, if there are as many, when no number is asked for.
USUAL_COUNT = 16
#: The amplitude falls as 1/f^p: these sets go by these names everywhere.
SPECTRA = {"white": 0.0, "1/f": 1.0, "1/f2": 2.0}


@dataclass(frozen=True)
class Wanted:
    """What is asked of an image set."""

    channels: int
    height: int
    width: int
    count: int | None
    seed: int
    data_root: Path | None
    enlarging: Enlarging = "lanczos"
    usual: int = USUAL_COUNT  # how many to take, if there are as many, where no count is asked for
    raw: bool = False  # as stored, in 0..1: whoever asks subtracts a mean that is not the image's own

    def __post_init__(self) -> None:
        one_of("enlarging", self.enlarging, get_args(Enlarging))
        for name in ("channels", "height", "width", "count"):
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "at least 1")

    def order(self, available: int, what: str) -> Tensor:
        """Which of the available images to take, in an order drawn by the seed."""
        count = min(self.usual, available) if self.count is None else self.count
        require(count <= available, "count", count, f"at most {available}, the number of {what}")
        return torch.randperm(available, generator=torch.Generator().manual_seed(self.seed))[:count]


def image_set(
    name: str,
    channels: int,
    height: int,
    width: int,
    count: int | None = None,
    seed: int = 0,
    data_root: Path | None = None,
    enlarging: Enlarging = "lanczos",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    usual: int = USUAL_COUNT,
) -> tuple[Tensor, str]:
    """Images of a set as float64 [n, c, h, w], and the set's name with what was done to it.

    They are zero-mean in each channel, or normalised as asked.

    Args:
        name: a key of `image_sets()`, or a directory of pictures.
        channels: 3 for colour, 1 for the mean of the colours; any other number repeats them (the name says so).
        height: of the images; stored ones are cropped about their centre if larger, enlarged if smaller.
        width: likewise.
        count: how many; by default `usual`, or all if there are fewer.
        seed: draws the order, or the synthetic images themselves.
        data_root: the folder of downloaded data sets; by default $SESN_DATA.
        enlarging: "lanczos", or "fourier" for the trigonometric interpolant, whose spectrum ends where the stored
            image's does and which takes the image for periodic (the name says so).
        mean, std: for networks that were trained on normalised images: pictures in 0..1 less this mean, over this
            deviation, a number for each channel or one for all; by default each image's own mean, and 1. Synthetic
            images are then pictures of mean 1/2 and deviation 1/6, about that of photographs.
        usual: how many images to take, if there are as many, where no count is given.
    """
    normalised = mean is not None or std is not None
    wanted = Wanted(channels, height, width, count, seed, data_root, enlarging, usual, normalised)
    makers = image_sets()
    images, label = makers[name](wanted) if name in makers else _directory(name, wanted)
    said = f"{label}; {len(images)} used, {height}x{width}"
    if not normalised:
        return images - images.mean(dim=(-2, -1), keepdim=True), said
    less, over = _per_channel("mean", mean or [0.0], channels), _per_channel("std", std or [1.0], channels)
    require(bool((over > 0).all()), "std", std, "above 0")
    shown = [
        f"{key} {', '.join(f'{one:g}' for one in value)}" for key, value in (("mean", mean), ("std", std)) if value
    ]
    return (images - less) / over, f"{said}; normalised by {' and '.join(shown)}"


def _per_channel(name: str, values: Sequence[float], channels: int) -> Tensor:
    found = torch.tensor(values, dtype=torch.float64)
    require(bool(found.isfinite().all()), name, values, "finite numbers")
    require(len(values) in (1, channels), name, values, f"one number, or {channels}, one for each channel")
    return found[:, None, None]


def _embedded(wanted: Wanted) -> tuple[Tensor, str]:
    # scikit-image and scikit-learn come with the extra `tools`, and load slowly.
    from sesn.tools.photographs import NAME, photographs

    crops = photographs(raw=wanted.raw)
    return fitted(crops[wanted.order(len(crops), "embedded crops")], NAME, wanted)


def _synthetic(name: str, wanted: Wanted) -> tuple[Tensor, str]:
    count = wanted.usual if wanted.count is None else wanted.count
    images = random_images(wanted.seed, (count, wanted.channels, wanted.height, wanted.width), SPECTRA[name])
    return images / 6 + 1 / 2 if wanted.raw else images, f"synthetic {name} amplitude"


def random_images(seed: int, shape: Sequence[int], exponent: float = 1.0, cutoff: float | None = None) -> Tensor:
    """Images [..., h, w] of mean 0 and variance 1 with random phases and amplitude 1/f^exponent at frequency f.

    f is the radial frequency in cycles per pixel. `exponent` 0 is white, 1 is like photographs. With `cutoff` nothing
    is left at f >= cutoff; the lowest frequency always stays, or nothing would be left.
    """
    noise = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    spectrum = torch.fft.fft2(noise).sgn() * _amplitude(shape[-2], shape[-1], exponent, cutoff)
    image: Tensor = torch.fft.ifft2(spectrum).real
    return image / image.square().mean(dim=(-2, -1), keepdim=True).sqrt()


def _amplitude(height: int, width: int, exponent: float, cutoff: float | None) -> Tensor:
    down, right = (torch.fft.fftfreq(side, dtype=torch.float64) for side in (height, width))
    frequency = torch.hypot(down[:, None], right)
    lowest = 1 / max(height, width)
    # A hair below the cut-off and above the lowest: which side of them a frequency is on is no matter of rounding.
    limit = math.inf if cutoff is None else max(cutoff * (1 - 1e-9), lowest * (1 + 1e-9))
    kept = (frequency > 0) & (frequency < limit)
    return torch.where(kept, frequency.clamp_min(lowest) ** -exponent, torch.zeros_like(frequency))


def _directory(name: str, wanted: Wanted) -> tuple[Tensor, str]:
    directory = Path(name)
    rule = f"one of {', '.join(image_sets())}, or a directory of pictures"
    # No name would be the working directory: a script's variable may be empty.
    require(bool(name) and directory.is_dir(), "images", name, rule)
    rule = "'lanczos' for a directory of pictures, which are read at the wanted size"
    require(wanted.enlarging == "lanczos", "enlarging", wanted.enlarging, rule)
    files = picture_files(directory)
    chosen = [files[i] for i in wanted.order(len(files), f"pictures in {directory}").tolist()]
    images, suffix = _in_channels(read_pictures(chosen, wanted.height, wanted.width), wanted.channels)
    return images, f"directory {directory.resolve().name}{suffix}"


def image_sets() -> dict[str, Callable[[Wanted], tuple[Tensor, str]]]:
    """One maker for each name; STL-10 is among them where the harness is installed."""
    stl10 = harness_part("data.stl10")
    stored = {} if stl10 is None else {"stl10": stl10.image_set}
    return {"embedded": _embedded, **stored, **{name: partial(_synthetic, name) for name in SPECTRA}}


def fitted(images: Tensor, label: str, wanted: Wanted) -> tuple[Tensor, str]:
    """Stored colour images in the wanted channels and size."""
    images, suffix = _in_channels(images, wanted.channels)
    side, largest = images.shape[-1], max(wanted.height, wanted.width)
    if largest > side:
        by_lanczos = wanted.enlarging == "lanczos"
        images = enlarge(images, largest) if by_lanczos else rescale(images, largest / side, "fourier")
        suffix += f", enlarged from {side}x{side}" + ("" if by_lanczos else " by Fourier")
    return centre_crop(images, wanted.height, wanted.width), label + suffix


def _in_channels(images: Tensor, channels: int) -> tuple[Tensor, str]:
    """Colour as it is, its mean, or its channels repeated in turn; and how to say so."""
    if channels == images.shape[1]:
        return images, ""
    if channels == 1:
        return images.mean(dim=1, keepdim=True), ", grey"
    return images[:, torch.arange(channels) % images.shape[1]], f", colours repeated over {channels} channels"


def centre_crop(images: Tensor, height: int, width: int) -> Tensor:
    """The middle of [..., h, w]."""
    top, left = (images.shape[-2] - height) // 2, (images.shape[-1] - width) // 2
    return images[..., top : top + height, left : left + width]


def enlarge(images: Tensor, side: int) -> Tensor:
    """Square images [n, c, h, h] at a larger side, by Pillow's Lanczos: no dark frame appears."""
    from PIL import Image

    planes = images.to(torch.float32).flatten(0, 1).numpy()
    sized = [Image.fromarray(plane).resize((side, side), Image.Resampling.LANCZOS) for plane in planes]
    stacked = torch.from_numpy(np.stack([np.asarray(plane) for plane in sized])).to(torch.float64)
    return stacked.reshape(*images.shape[:2], side, side)


# --- a directory of pictures of the user's own: PNG, JPEG and whatever else Pillow reads

#: Endings that are tried; other files in the directory are left alone.
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})


def picture_files(directory: Path) -> list[Path]:
    """The pictures in a directory (not below it), sorted by name."""
    if not directory.is_dir():
        raise NotADirectoryError(f"{directory} is no directory")
    found = sorted(path for path in directory.iterdir() if path.suffix.lower() in SUFFIXES)
    if not found:
        raise FileNotFoundError(f"{directory} holds no pictures; their names end in {', '.join(sorted(SUFFIXES))}")
    return found


def read_pictures(paths: Sequence[Path], height: int, width: int) -> Tensor:
    """Pictures as float64 [n, 3, height, width] in 0..1: the centre at the wanted aspect ratio, by Lanczos."""
    return torch.stack([_read(path, height, width) for path in paths])


def _read(path: Path, height: int, width: int) -> Tensor:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow's warnings (odd metadata, a huge picture) are about files of the user's that it reads all the same.
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:
                sized = ImageOps.fit(_rgb(ImageOps.exif_transpose(picture)), (width, height), Image.Resampling.LANCZOS)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} cannot be read as a picture ({error}); repair or remove it") from error
    return torch.from_numpy(np.array(sized)).to(torch.float64).permute(2, 0, 1) / 255


def _rgb(picture: Any) -> Any:
    """In three channels of eight bits. Deeper pictures are stretched to that range; Pillow alone would clip them."""
    from PIL import Image

    if picture.mode.startswith(("I", "F")):
        values = np.asarray(picture, dtype=np.float64)
        span = max(float(np.ptp(values)), 1e-12)
        picture = Image.fromarray(((values - values.min()) / span * 255).round().astype(np.uint8))
    return picture.convert("RGBA" if picture.mode == "P" else picture.mode).convert("RGB")
