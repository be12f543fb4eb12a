"""A directory of pictures of the user's own: PNG, JPEG and whatever else Pillow reads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from sesn.errors import UsageError

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
    try:
        with warnings.catch_warnings():
            # Pillow's warnings (odd metadata, a huge picture) are about files of the user's that it reads all the same.
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:
                fitted = ImageOps.fit(_rgb(ImageOps.exif_transpose(picture)), (width, height), Image.Resampling.LANCZOS)
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} cannot be read as a picture ({error}); repair or remove it") from error
    return torch.from_numpy(np.array(fitted)).to(torch.float64).permute(2, 0, 1) / 255


def _rgb(picture: Image.Image) -> Image.Image:
    """In three channels of eight bits. Deeper pictures are stretched to that range; Pillow alone would clip them."""
    if picture.mode.startswith(("I", "F")):
        values = np.asarray(picture, dtype=np.float64)
        span = max(float(np.ptp(values)), 1e-12)
        picture = Image.fromarray(((values - values.min()) / span * 255).round().astype(np.uint8))
    return picture.convert("RGBA" if picture.mode == "P" else picture.mode).convert("RGB")
