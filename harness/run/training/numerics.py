"""With which arithmetic and random numbers a network is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from sesn._checks import one_of, require

PRECISIONS = ("fp32", "amp")
#: Processes that can share the published batch. The last, smaller batch of a run may allow fewer: the trainer says so.
MOST_RANKS = 64


@dataclass(frozen=True)
class Numerics:
    """With which arithmetic a network is trained.

    Attributes:
        precision: "fp32", or "amp": float16 where torch deems it safe, on CUDA.
        ranks: processes that share each batch.
    """

    precision: str = "fp32"
    ranks: int = 1

    def check(self, device: str) -> None:
        """Refuse what makes no sense, or not on this device."""
        one_of("precision", self.precision, PRECISIONS)
        require(self.ranks >= 1, "ranks", self.ranks, "at least 1")
        remedy = "each needs two images of every batch of 128, or batch norm has nothing to go by"
        require(self.ranks <= MOST_RANKS, "ranks", self.ranks, f"at most {MOST_RANKS}", remedy)
        rule = f"'fp32' on {device}: float16 is for CUDA"
        possible = self.precision == "fp32" or device.startswith("cuda")
        require(possible, "precision", self.precision, rule, "use --device cuda or fp32")

    def autocast(self) -> AbstractContextManager[object]:
        """Where the forward pass is computed."""
        return torch.autocast("cuda", torch.float16) if self.precision == "amp" else nullcontext()


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Leave torch's global random numbers as they were; on CUDA, choose algorithms that repeat and full float32."""
    on_cuda = device.type == "cuda"
    exact: AbstractContextManager[object] = (
        torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        if on_cuda
        else nullcontext()
    )
    with torch.random.fork_rng(devices=[device] if on_cuda else []), exact:
        yield


def seed_of(*what: str | int) -> int:
    """A seed for each purpose and moment of a run: no generator has a state that a checkpoint would have to keep."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest())


def generator(*what: str | int) -> torch.Generator:
    """Random numbers of their own for a purpose and moment, on the CPU: the same whatever the device."""
    return torch.Generator().manual_seed(seed_of(*what))
