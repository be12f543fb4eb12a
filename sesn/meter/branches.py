"""The two branches of a measurement, and how the output of the original one is moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesn.errors import WrongTypeError
from sesn.meter.reading import Reading, call
from sesn.scales import ScaleGrid

Action = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Branches:
    """Both branches of a module on the same images, in float64.

    Attributes:
        module: what was run.
        images: f.
        small: L_s f.
        original: Phi(f), and how it came about.
        direct: Phi(L_s f).
        moved: L_s Phi(f) before the scale axis shifts; scale channels without a partner are zero.
        kind: how the outputs were read.
        grid: their scales; None without a scale axis.
        factor: s.
    """

    module: nn.Module
    images: Tensor
    small: Tensor
    original: Reading
    direct: Tensor
    moved: Tensor
    kind: str
    grid: ScaleGrid | None
    factor: float

    def others(self) -> Tensor:
        """Phi(L_s f) of another image in place of each: the next one or, where that is the same image, noise."""
        alone = (self.images == self.images.roll(-1, 0)).flatten(1).all(1).to(self.direct.device)
        others = self.direct.roll(-1, 0)
        if not bool(alone.any()):
            return others
        noise = call(self.module, _unrelated_to(self.small))
        return torch.where(alone.reshape(-1, *[1] * (self.direct.dim() - 1)), noise, others)


def acted(action: Action, output: Tensor, factor: float) -> Tensor:
    """An output moved by a user's own action."""
    moved = action(output, factor)
    if not isinstance(moved, Tensor):
        raise WrongTypeError(f"`action` must return a tensor, got {type(moved).__name__}")
    return moved.to(torch.float64)


def moved_channels(move: Callable[[Tensor], Tensor], output: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """An output moved in space; of its scale channels, those without a partner are not computed."""
    first, last = min((j for _, j in pairs), default=0), max((j for _, j in pairs), default=0)
    if not pairs or (first == 0 and last == output.shape[2] - 1):
        return move(output)
    part = move(output[:, :, first : last + 1])
    moved = part.new_zeros(*output.shape[:3], *part.shape[-2:])
    moved[:, :, first : last + 1] = part
    return moved


def _unrelated_to(images: Tensor) -> Tensor:
    """Noise of the same mean and spread as each image: what has nothing to do with it."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    pixels = images.flatten(1)
    mean, spread = pixels.mean(1), pixels.std(1)
    spread = torch.where(spread > 0, spread, mean.abs().clamp_min(1.0))  # of an image of one colour
    return noise.to(images) * spread[:, None, None, None] + mean[:, None, None, None]
