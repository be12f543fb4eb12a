"""With which arithmetic, memory layout and random numbers a network is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.records import Scalar
from sesn._checks import complaint
from sesn.errors import UsageError

PRECISIONS = ("fp32", "amp")
#: Processes that can share the published batch. The last, smaller batch of a run may allow fewer: the trainer says so.
MOST_RANKS = 64


@dataclass(frozen=True)
class Numerics:
    """The settings of a training cell that are about arithmetic.

    Attributes:
        precision: "fp32", or "amp": float16 where torch deems it safe, on CUDA.
        channels_last: whether maps are stored with the channels innermost.
        ranks: processes that share each batch.
        sync_batch_norm: whether they share the statistics of batch norm too, on CUDA.
    """

    precision: str = "fp32"
    channels_last: bool = False
    ranks: int = 1
    sync_batch_norm: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Scalar], device: str) -> Numerics:
        """Those of a cell's settings, or their defaults; what the device cannot do is refused."""
        numerics = cls(
            str(settings.get("precision", "fp32")),
            bool(settings.get("channels_last", False)),
            int(settings.get("ranks", 1)),
            bool(settings.get("sync_batch_norm", False)),
        )
        numerics.check(torch.device(device))
        return numerics

    def check(self, device: torch.device) -> None:
        """Refuse what makes no sense, or not on this device."""
        if self.precision not in PRECISIONS:
            raise UsageError(f"`precision` (={self.precision!r}) must be one of {', '.join(PRECISIONS)}")
        if self.ranks < 1:
            raise UsageError(f"`ranks` (={self.ranks}) must be at least 1")
        if self.ranks > MOST_RANKS:
            remedy = "each needs two images of every batch of 128, or batch norm has nothing to go by"
            raise UsageError(complaint("ranks", self.ranks, f"at most {MOST_RANKS}", remedy))
        if self.precision == "amp" and device.type != "cuda":
            raise UsageError(
                f"`precision` (='amp') must be 'fp32' on {device.type}: float16 is for CUDA; use --device cuda or fp32"
            )
        if self.sync_batch_norm and device.type != "cuda":
            raise UsageError(
                f"`sync_batch_norm` (=True) must be False on {device.type}: torch has SyncBatchNorm for CUDA only"
            )
        if self.sync_batch_norm and self.ranks == 1:
            raise UsageError(
                "`sync_batch_norm` (=True) must be False where `ranks` is 1: there is nobody to share with"
            )

    def prepared(self, network: nn.Module, device: torch.device) -> nn.Module:
        """The network on the device, with the layout and the kind of batch norm that were asked for."""
        network = synchronised(network) if self.sync_batch_norm else network
        network = network.to(device)
        return network.to(memory_format=torch.channels_last) if self.channels_last else network  # type: ignore[call-overload]

    def laid_out(self, images: Tensor) -> Tensor:
        """Input in the network's layout."""
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images

    def autocast(self) -> AbstractContextManager[object]:
        """Where the forward pass is computed."""
        return torch.autocast("cuda", torch.float16) if self.precision == "amp" else nullcontext()


def synchronised(network: nn.Module) -> nn.Module:
    """The network with batch norm over all processes; norms of a method's own cannot be shared."""
    own = [name for name, layer in network.named_modules() if not getattr(layer, "can_synchronise", True)]
    if own:
        raise UsageError(
            f"`sync_batch_norm` (=True) must be False for this network: torch cannot synchronise {own[0]}, "
            "a normalisation of the method's own"
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-any-return, no-untyped-call]


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
