"""What the scale-generalisation data sets have in common: a picture is resized, placed, blurred, and its contrast bent.

These are the steps of MNIST Large Scale (Jansson & Lindeberg 2020, arXiv:2004.01536), which STIR (Altstidl et al. 2022)
took over: a cubic of scikit-image, a Gaussian blur of 7/8 pixel for every pixel of the original, which hides the
pixels of the original, and a soft threshold.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from skimage.filters import gaussian
from skimage.transform import resize

from harness.data.mnist import SIDE

Picture = NDArray[np.float64]
#: The blur in pixels of the original picture.
BLUR = 7 / 8
#: The values of the soft threshold: 0 becomes BACKGROUND, 255 becomes BRIGHTEST.
SLOPE, MIDDLE = 0.02, 128.0
BACKGROUND, BRIGHTEST = (2 / math.pi * math.atan(SLOPE * (level - MIDDLE)) for level in (0.0, 255.0))


def resized(picture: NDArray[np.uint8], side: int) -> Picture:
    """The picture with `side` pixels along each side, by cubic splines; smoothed before it shrinks, values kept."""
    if picture.shape[0] == side:
        return picture.astype(np.float64)
    shape = (side, side, *picture.shape[2:])
    found: Picture = resize(picture.astype(np.float64), shape, order=3, preserve_range=True)  # type: ignore[no-untyped-call]
    return found


def placed(picture: Picture, side: int, top: int, left: int) -> Picture:
    """The picture on an empty frame, its first pixel at (top, left); what lies outside the frame is cut off."""
    frame = np.zeros((side, side))
    height, width = picture.shape
    rows, columns = (
        slice(max(0, -start), max(0, min(size, side - start))) for start, size in ((top, height), (left, width))
    )
    inside = picture[rows, columns]
    down, right = max(0, top), max(0, left)
    frame[down : down + inside.shape[0], right : right + inside.shape[1]] = inside
    return frame


def softened(frame: Picture, scale: float) -> Picture:
    """Blurred in proportion to the scale of the picture, then thresholded softly: values BACKGROUND..BRIGHTEST."""
    blurred: Picture = gaussian(frame, BLUR * scale)  # type: ignore[no-untyped-call]
    return 2 / math.pi * np.arctan(SLOPE * (blurred - MIDDLE))


def stretched(values: Picture) -> NDArray[np.uint8]:
    """As bytes, the least value of the image being 0 and the largest 255."""
    low, high = values.min(), values.max()
    return _bytes((values - low) / (high - low) if high > low else np.zeros_like(values))


def coded(values: Picture) -> NDArray[np.uint8]:
    """As bytes, BACKGROUND being 0 and BRIGHTEST 255 in every image."""
    return _bytes((values - BACKGROUND) / (BRIGHTEST - BACKGROUND))


def decoded(codes: NDArray[np.uint8]) -> Picture:
    """The values that `coded` coded, to 1/170."""
    found: Picture = BACKGROUND + codes.astype(np.float64) / 255 * (BRIGHTEST - BACKGROUND)
    return found


def _bytes(parts: Picture) -> NDArray[np.uint8]:
    codes: NDArray[np.uint8] = np.rint(parts.clip(0, 1) * 255).astype(np.uint8)
    return codes


def side_at(scale: float) -> int:
    """Of a picture of 28 x 28 pixels at a scale."""
    return round(SIDE * scale)
