"""Images with their classes: what training and testing read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.data.tensors import sha256
from sesn.errors import UsageError, WrongTypeError


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images and classes in memory.

    Args:
        images: uint8, [n, h, w] or [n, c, h, w], values 0..255.
        labels: int64 [n], classes from 0.
        name: what they are and how many of how many; rows carry it.
    """

    images: Tensor
    labels: Tensor
    name: str

    def __post_init__(self) -> None:
        for name, value, dtype in (("images", self.images, torch.uint8), ("labels", self.labels, torch.int64)):
            if value.dtype != dtype:
                raise WrongTypeError(f"`{name}.dtype` (={value.dtype}) must be {dtype}")
        if len(self.images) != len(self.labels):
            raise UsageError(f"`labels` (={len(self.labels)} of them) must be as many as the {len(self.images)} images")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """SHA-256 of shape, images and labels, in hexadecimal."""
        return sha256(self.images, self.labels)

    def __getitem__(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The images and labels numbered by `chosen`: a batch."""
        return self.images[chosen], self.labels[chosen]
