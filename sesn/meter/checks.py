"""What is refused: what is no batch of images, no module in eval mode, or a module that remembers or draws lots."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sesn._checks import complaint, positive, require
from sesn._torch import BATCH_NORM, DROPOUT
from sesn.errors import UsageError, WrongTypeError
from sesn.meter.reading import call, like_module
from sesn.meter.resample import resampled_size

#: Two answers to the same images whose Delta exceeds this, and the rounding of the module's dtype, are different.
_SAME = torch.finfo(torch.float32).eps
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
    rule = f"small enough for at most {MOST_PIXELS} pixels a side"
    remedy = f"it makes {largest} of {max(images.shape[-2:])}; use a smaller factor"
    require(largest <= MOST_PIXELS, "factor", factor, rule, remedy)
    left = min(resampled_size(side, factor) for side in images.shape[-2:])
    rule = f"large enough to leave {FEWEST_PIXELS} pixels of {min(images.shape[-2:])}"
    remedy = f"it leaves {left}; use larger images or a larger factor"
    require(left >= FEWEST_PIXELS, "factor", factor, rule, remedy)


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


def check_repeatable(module: nn.Module, images: Tensor, output: Tensor) -> None:
    """Refuse a module that answers otherwise when it is asked once more, or remembers what it was asked before.

    Asked with the images in another order, which tells memory from an answer. Where the order alone matters, to
    rounding or to the module, there is neither: the diagnosis speaks of it.
    """
    same = max(_SAME, torch.finfo(like_module(module, images).dtype).eps)
    turned = call(module, images.roll(1, 0))
    if _differ(turned.roll(-1, 0), output) <= same:
        return
    asks = "so two of its outputs cannot be compared; call module.eval()"
    change = _differ(call(module, images), output)
    if change > same:
        raise UsageError(
            f"the module gives another output for the same images when it is called again (Delta {change:.2g} between "
            f"the two): it depends on state or chance, {asks}, and remove dropout or noise that is called as a function"
        )
    if _differ(turned, output) <= same:
        raise UsageError(
            "the module gives the same output for the images in another order: it keeps an output from an earlier "
            f"call, {asks}, or remove what it remembers"
        )


def _differ(one: Tensor, other: Tensor) -> float:
    """Delta between two outputs of a module."""
    if one.shape != other.shape:
        return math.inf
    size = float(other.square().sum())
    return float((one - other).square().sum()) / size if size else float(one.square().sum())
