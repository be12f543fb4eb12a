"""What is refused before anything is measured: what is no batch of images, and what is no module in eval mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sesn._checks import complaint, positive, require
from sesn._torch import BATCH_NORM, DROPOUT
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.resample import resampled_size

#: The fewest pixels a rescaled side may have.
FEWEST_PIXELS = 3
#: The most pixels that a rescaled side may have: more is a slip of the pen, and would fill the memory.
MOST_PIXELS = 1 << 15


def check_images(images: Any, factor: float) -> None:
    """Refuse what is no batch of images, or would shrink to nothing."""
    if not isinstance(images, Tensor) or images.dim() != 4 or not images.is_floating_point():
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise UsageError(complaint("images", shape, "a floating-point tensor [b, c, h, w]"))
    require(images.shape[0] > 0, "images.shape[0]", 0, "at least 1")
    require(bool(torch.isfinite(images).all()), "images", "with NaN or infinity", "finite")
    require(positive(factor), "factor", factor, "a positive number", "below 1 shrinks, above 1 enlarges")
    largest = max(resampled_size(side, factor) for side in images.shape[-2:])
    require(
        largest <= MOST_PIXELS,
        "factor",
        factor,
        f"small enough for at most {MOST_PIXELS} pixels a side",
        f"it makes {largest} of {max(images.shape[-2:])}; use a smaller factor",
    )
    left = min(resampled_size(side, factor) for side in images.shape[-2:])
    require(
        left >= FEWEST_PIXELS,
        "factor",
        factor,
        f"large enough to leave {FEWEST_PIXELS} pixels of {min(images.shape[-2:])}",
        f"it leaves {left}; use larger images or a larger factor",
    )


def check_eval(module: nn.Module) -> None:
    """Refuse what is no module, and batch norm and dropout in train mode."""
    if not isinstance(module, nn.Module):
        raise WrongTypeError(complaint("module", module, "a torch.nn.Module", "wrap a function in one"))
    for name, layer in module.named_modules():
        normalises = isinstance(layer, BATCH_NORM) or isinstance(getattr(layer, "running_var", None), Tensor)
        if layer.training and (normalises or isinstance(layer, DROPOUT | nn.RReLU)):
            raise UsageError(
                f"`{name or 'module'}` ({type(layer).__name__}) is in train mode: its output depends on the batch or "
                "on chance, so the two branches cannot be compared; call module.eval() first"
            )
