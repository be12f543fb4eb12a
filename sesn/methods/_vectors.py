"""Vector fields [b, c, 2, h, w], whose directions stand for scales: their length, pooling and norm."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn.layers.pool import SpatialWindow
from sesn.networks.skeleton import RECIPES, Recipe


class VectorMagnitude(nn.Module):
    """sqrt(u^2 + v^2), [b, c, 2, h, w] -> [b, c, h, w]; at the zero vector, where it has a kink, the gradient is 0."""

    def forward(self, vectors: Tensor) -> Tensor:
        """The length of each vector."""
        check_vectors(vectors)
        return _magnitude(vectors)


class VectorMaxPool(SpatialWindow):
    """Max-pooling of a vector field: of each window the longest vector, as it is."""

    def forward(self, vectors: Tensor) -> Tensor:
        """[b, c, 2, h, w] -> [b, c, 2, h', w']."""
        check_vectors(vectors)
        lengths = _square_length(vectors.detach())
        _, index = F.max_pool2d(lengths, self.kernel_size, self.stride, self.padding, return_indices=True)
        wanted = index.flatten(2).unsqueeze(2).expand(-1, -1, 2, -1)
        return vectors.flatten(3).gather(3, wanted).reshape(*vectors.shape[:3], *index.shape[-2:])


class VectorBatchNorm(nn.Module):
    """Divide each channel's vectors by sqrt(var(|.|) + eps); directions stay, and no mean is subtracted.

    var is the variance of the magnitude about its mean over batch and space. The running variance, of eval mode, takes
    half of each batch's, corrected by n / (n - 1).

    Args:
        channels: channels of the vector field.
        recipe: "released" also has a parameter `weight`, which is counted and never used.
        eps: added to the variance.
        momentum: the share of the newest batch in the running variance.
    """

    running_var: Tensor

    def __init__(
        self,
        channels: int,
        *,
        recipe: Recipe = "paper",
        eps: float = 1e-5,
        momentum: float = 0.5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.channels = _checks.whole("channels", channels, 1)
        self.recipe = _checks.one_of("recipe", recipe, RECIPES)
        self.eps, self.momentum = eps, momentum
        self.unused_parameters: tuple[str, ...] = ("weight",) if recipe == "released" else ()
        ones = torch.ones(self.channels, device=device, dtype=dtype)
        self.register_parameter("weight", nn.Parameter(ones.clone()) if self.unused_parameters else None)
        self.register_buffer("running_var", ones)

    def forward(self, vectors: Tensor) -> Tensor:
        """Normalise a vector field [b, c, 2, h, w]."""
        check_vectors(vectors)
        _checks.extent("vectors", vectors, 1, self.channels, "layer's channels", "give that many channels")
        variance = self.running_var
        if self.training:
            count, shape = vectors[:, 0, 0].numel(), tuple(vectors.shape)
            rule = "more than one vector per channel"
            _checks.require(count > 1, "vectors.shape", shape, rule, "or call eval() first")
            variance = _magnitude(vectors).var(dim=(0, 2, 3), correction=0)
            with torch.no_grad():
                self.running_var.lerp_(variance.to(self.running_var.dtype) * (count / (count - 1)), self.momentum)
        return vectors * (variance + self.eps).rsqrt()[:, None, None, None]

    def extra_repr(self) -> str:
        """The channels."""
        return f"{self.channels} -> {self.channels}" + (f", recipe={self.recipe!r}" if self.unused_parameters else "")


def _magnitude(vectors: Tensor) -> Tensor:
    square = _square_length(vectors)
    known = square > 0
    return torch.where(known, torch.where(known, square, 1.0).sqrt(), 0.0).to(vectors.dtype)


def _square_length(vectors: Tensor) -> Tensor:
    """[b, c, 2, h, w] -> [b, c, h, w], in single precision at least: half has no room for squares."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32)).square().sum(dim=2)


def check_vectors(vectors: Any) -> None:
    if isinstance(vectors, Tensor):
        good = vectors.dim() == 5 and vectors.shape[2] == 2
        remedy = "lift a map [b, c, h, w] with SEVFLift first"
        _checks.require(good, "vectors.shape", tuple(vectors.shape), "[b, c, 2, h, w]", remedy)
    _checks.real_tensor("vectors", vectors, "b c 2 h w")


class ScalesToVectors(nn.Module):
    """A field of lengths [b, c, s, h, w] to the sum of its scales' vectors [b, c, 2, h, w]."""

    angles: Tensor

    def __init__(self, angles: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("angles", torch.tensor(angles, dtype=torch.float64), persistent=False)

    def forward(self, field: Tensor) -> Tensor:
        """Scale k points in the direction of angle k."""
        directions = torch.stack([self.angles.cos(), self.angles.sin()]).to(field.dtype)
        return torch.einsum("bcshw,vs->bcvhw", field, directions)


class VectorsToScales(ScalesToVectors):
    """Vectors [b, c, 2, h, w] to a field [b, c, s, h, w]: the length at the scale of the nearest angle, 0 elsewhere."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Which scale a vector belongs to is no matter of gradients."""
        length = VectorMagnitude()(vectors)
        winner = nearest_scale(vectors.detach(), self.angles)
        return torch.stack([torch.where(winner == k, length, 0.0) for k in range(len(self.angles))], dim=2)


def nearest_scale(vectors: Tensor, angles: Tensor) -> Tensor:
    """The index [b, c, h, w] of the angle that each vector [b, c, 2, h, w] points nearest to."""
    turned = torch.atan2(vectors[:, :, 1], vectors[:, :, 0])
    return (turned[..., None] - angles.to(turned)).abs().argmin(dim=-1)
