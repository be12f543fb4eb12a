"""Embedded photographs: 96 x 96 crops of pictures that come with scikit-image and scikit-learn. No download."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import skimage.data
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_sample_image
from torch import Tensor

from sesn._checks import require

NAME = "photographs"
SIDE = 96


def _pair() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    left, right, _ = skimage.data.stereo_motorcycle()  # type: ignore[no-untyped-call]
    return left, right


#: One reader for each picture; grey ones are repeated over the three channels.
PICTURES: dict[str, Callable[[], NDArray[np.uint8]]] = {
    "astronaut": skimage.data.astronaut,
    "chelsea": skimage.data.chelsea,
    "coffee": skimage.data.coffee,
    "rocket": skimage.data.rocket,
    "motorcycle left": lambda: _pair()[0],
    "motorcycle right": lambda: _pair()[1],
    "camera": skimage.data.camera,
    "coins": skimage.data.coins,
    "brick": skimage.data.brick,
    "grass": skimage.data.grass,
    "gravel": skimage.data.gravel,
    "china": lambda: load_sample_image("china.jpg"),
    "flower": lambda: load_sample_image("flower.jpg"),
}


@lru_cache(maxsize=1)
def _all_crops() -> Tensor:
    return torch.cat([_crops(read()) for read in PICTURES.values()])


def _crops(picture: NDArray[np.uint8]) -> Tensor:
    """Crops that do not overlap, as float64 [n, 3, 96, 96] in 0..1."""
    rgb = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
    pixels = torch.tensor(rgb, dtype=torch.float64).permute(2, 0, 1) / 255
    rows, columns = pixels.shape[1] // SIDE, pixels.shape[2] // SIDE
    tiles = pixels[:, : rows * SIDE, : columns * SIDE].reshape(3, rows, SIDE, columns, SIDE)
    return tiles.permute(1, 3, 0, 2, 4).reshape(-1, 3, SIDE, SIDE)


def photographs(count: int | None = None, seed: int = 0, *, raw: bool = False) -> Tensor:
    """`count` distinct crops in an order drawn by `seed`: float64 [count, 3, 96, 96].

    They are zero-mean per channel, or as they are, in 0..1, if `raw`.
    """
    crops = _all_crops()
    wanted = len(crops) if count is None else count
    rule = f"between 1 and {len(crops)}, the number of embedded crops"
    require(1 <= wanted <= len(crops), "count", count, rule)
    chosen = crops[torch.randperm(len(crops), generator=torch.Generator().manual_seed(seed))[:wanted]]
    return chosen if raw else chosen - chosen.mean(dim=(-2, -1), keepdim=True)
