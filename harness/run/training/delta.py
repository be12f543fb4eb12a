"""Delta along training: how far a classifier of digits is from what a change of scale should do to it.

Two parts of the network are measured, both for every method alike, on digits shrunk about their centre:

- "logits": the scores, which should not change: Delta = ||Phi(f) - Phi(L_s f)||^2 / ||Phi(f)||^2. The shrunk digit
  stands on a canvas of the network's size, its own background around it. The mean of the ten scores is taken off
  first: it decides nothing, and a large one would hide the error.
- "trunk": the map that the last pooling sees, which should shrink with the digit. Where a method has scales, they have
  been projected to it, so a plain network and an equivariant one are asked the same thing, and what the scale axis
  loses at its ends counts. The digits stand on a canvas twice their size: a pixel of the map is four of the image, and
  seven of them could not be halved. What the two poolings alias counts too. `delta_centred` leaves out what the biases
  make of the empty background.

Factors are those of one and two steps of sqrt 2. Nothing is drawn, and in eval mode batch norm keeps its statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.data.tensors import LabelledImages
from harness.run.training.job import Batch
from sesn import EquivarianceError, Meter
from sesn.meter.reading import Kind
from sesn.networks import MNISTScaleNet
from sesn.networks.mnist import SIDE

DOWNSCALES = (math.sqrt(2), 2.0)


def measured_epochs(epochs: int) -> frozenset[int]:
    """After how many epochs Delta is measured: none, the powers of two, and all."""
    return frozenset({0, epochs} | {2**k for k in range(epochs.bit_length()) if 2**k <= epochs})


@dataclass(frozen=True)
class DeltaProbe:
    """Measures Delta at some epochs, on digits above their background [n, 1, 28, 28].

    Attributes:
        digits: the network's input less the background's level.
        level: that level.
        epochs: of the run.
        name: of the images.
    """

    digits: Tensor
    level: float
    epochs: int
    name: str

    @classmethod
    def on(cls, images: LabelledImages, batch: Batch, count: int, epochs: int) -> DeltaProbe:
        """On the first digits of a set."""
        chosen = images.images[:count]
        level = float(batch(torch.zeros_like(chosen[:1]), None).flatten()[0])
        name = f"{len(chosen)} of {images.name}"
        return cls(batch(chosen, None) - level, level, epochs, name)

    def __call__(self, network: nn.Module, epoch: int) -> list[dict[str, Any]]:
        """All measurements after so many epochs, as plain JSON; none at epochs that are left out."""
        return self.measure(network, epoch) if epoch in measured_epochs(self.epochs) else []

    def measure(self, network: nn.Module, epoch: int) -> list[dict[str, Any]]:
        """The measurements whatever the epoch."""
        scores = _Scores(network, self.level).eval()
        # A network that is not built on the skeleton has no trunk to compare.
        trunk = _Trunk(network, self.level).eval() if isinstance(network, MNISTScaleNet) else None
        wide = _on_canvas(self.digits, 2 * SIDE)
        found = []
        of_scores = _swept(scores, self.digits, "invariant")
        of_trunk = _swept(trunk, wide, "map") if trunk is not None else [None] * len(DOWNSCALES)
        for downscale, score, map_ in zip(DOWNSCALES, of_scores, of_trunk, strict=True):
            at = {"epoch": epoch, "downscale": downscale, "data_name": self.name}
            found.append(_plain("delta", score.valid, {**at, "of": "logits"}))
            if map_ is not None:
                found.append(_plain("delta", map_.valid, {**at, "of": "trunk"}))
                found.append(_plain("delta_centred", map_.centred, {**at, "of": "trunk"}))
        return found


def _swept(module: nn.Module, images: Tensor, kind: Kind) -> Iterator[EquivarianceError]:
    """At every downscale; no part of a network that trains here has state or chance in eval mode."""
    return Meter(kind=kind).sweep(module, images, [1 / d for d in DOWNSCALES], context=False, repeat=False)


def _plain(metric: str, values: Tensor, at: dict[str, Any]) -> dict[str, Any]:
    return {"metric": metric, "values": values.tolist(), "at": at}


def _on_canvas(digits: Tensor, side: int) -> Tensor:
    """Digits in the middle of an empty canvas; a size that leaves an odd number of pixels would move them."""
    margin, odd = divmod(side - digits.shape[-1], 2)
    assert not odd
    return functional.pad(digits, (margin,) * 4)


class _Scores(nn.Module):
    """Digits of any even size, on the network's canvas, to its scores less their mean."""

    def __init__(self, network: nn.Module, level: float) -> None:
        super().__init__()
        self.network, self.level = network, level

    def forward(self, digits: Tensor) -> Tensor:
        """Scores [b, 10] that sum to zero."""
        scores: Tensor = self.network(_on_canvas(digits, SIDE) + self.level)
        return scores - scores.mean(1, keepdim=True)


class _Trunk(nn.Module):
    """Digits to the map that the last pooling sees, normalised and projected as after it."""

    def __init__(self, network: MNISTScaleNet, level: float) -> None:
        super().__init__()
        self.level = level
        *before, last = network.stages
        assert isinstance(last, nn.Sequential)
        layer, activation, _, norm = last
        self.layers = nn.Sequential(network.upsample, *before, layer, activation, norm, network.projection)

    def forward(self, digits: Tensor) -> Tensor:
        """A map [b, c, h/4, w/4], or h/2 if the network upsamples."""
        features: Tensor = self.layers(digits + self.level)
        return features
