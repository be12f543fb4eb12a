"""What is known of a device before anything is timed on it: its algorithms, the pieces it works in, and its speeds."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

Way = Literal["dense", "separable", "spectral", "fused"]
#: Those that run on every device.
PORTABLE: tuple[Way, ...] = ("dense", "separable", "spectral")
#: The share of a GPU's memory that the intermediate maps of one algorithm may fill at once, and the least.
MEMORY_SHARE, LEAST_PIECE = 32, 64 << 20
#: Of GPUs that do not tell: cycles in a microsecond, and bytes in a microsecond for each multiprocessor.
USUAL_CLOCK, USUAL_BANDWIDTH = 1400, 12_000
#: Multiply-adds in a cycle of a multiprocessor in float32, by the major compute capability, and of most others.
LANES, USUAL_LANES = {6: 64, 7: 64}, 128
#: How many times as fast products are whose factors have ten bits (TF32) or sixteen, from compute capability 8 on.
TENSOR_SPEED = 4
#: How many times as slow float64 is: on the cards for computing (capability 6.0, 7.0, 8.0, 9.0), and on all others.
DOUBLE_SLOWNESS, DOUBLE_SLOWNESS_OTHERS = 2, 32
#: Nanoseconds that an operation of torch takes at least.
LAUNCH = 6000


@dataclass(frozen=True)
class Roofline:
    """A GPU by three speeds: an operation takes its launch, and the longer of its arithmetic and its traffic.

    Attributes:
        rate: multiply-adds in a microsecond, in float32.
        tensor_rate: those of matrix products whose factors are rounded to ten bits or fewer.
        double_rate: those in float64.
        bandwidth: bytes in a microsecond.
        launch: nanoseconds of the launch of an operation.
    """

    rate: int
    tensor_rate: int
    double_rate: int
    bandwidth: int
    launch: int = LAUNCH

    def nanoseconds(self, multiply_adds: float, moved: float, launches: int, rate: int) -> float:
        """The time of so many multiply-adds at this rate, bytes and operations."""
        return 1e3 * max(multiply_adds / rate, moved / self.bandwidth) + launches * self.launch


@dataclass(frozen=True)
class DevicePolicy:
    """What is known of a kind of device.

    Attributes:
        kind: its type, as torch names it.
        candidates: the algorithms that may be chosen there. `fused` is one only where it passed its check.
        piece_bytes: bytes of intermediate maps that are held at once; None for the algorithms' own numbers, which are
            made for the caches of a CPU.
        roofline: the speeds of a GPU; None for weighted multiply-adds, whose weights were fitted on a CPU.
        estimated: whether nobody has timed this.
    """

    kind: str
    candidates: tuple[Way, ...] = PORTABLE
    piece_bytes: int | None = None
    roofline: Roofline | None = None
    estimated: bool = False

    def piece(self, cached: int) -> int:
        """The bytes of a piece, where `cached` is right for the caches of a CPU."""
        return cached if self.piece_bytes is None else self.piece_bytes


CPU = DevicePolicy("cpu")


def policy_of(device: torch.device) -> DevicePolicy:
    """The policy of a device; one that nothing is known of gets the CPU's weights and pieces that fill no small GPU."""
    if device.type == "cpu":
        return CPU
    if device.type == "cuda":
        return _of_gpu(torch.cuda.current_device() if device.index is None else device.index)
    return DevicePolicy(device.type, piece_bytes=LEAST_PIECE, estimated=True)


@lru_cache(maxsize=64)
def _of_gpu(index: int) -> DevicePolicy:
    return gpu_policy(torch.cuda.get_device_properties(index))


def gpu_policy(properties: Any) -> DevicePolicy:
    """The policy of a GPU by what `torch.cuda.get_device_properties` tells of it. Older versions of torch tell less."""
    processors = properties.multi_processor_count
    clock = getattr(properties, "clock_rate", 0) // 1000 or USUAL_CLOCK  # in kHz
    rate = processors * clock * LANES.get(properties.major, USUAL_LANES)
    # Memory sends two words in a cycle.
    lines = getattr(properties, "memory_bus_width", 0) // 8 * 2
    bandwidth = lines * getattr(properties, "memory_clock_rate", 0) // 1000 or processors * USUAL_BANDWIDTH
    computing = (properties.major, properties.minor) in ((6, 0), (7, 0), (8, 0), (9, 0))
    roofline = Roofline(
        rate=rate,
        tensor_rate=rate * (TENSOR_SPEED if properties.major >= 8 else 1),
        double_rate=rate // (DOUBLE_SLOWNESS if computing else DOUBLE_SLOWNESS_OTHERS),
        bandwidth=bandwidth,
    )
    piece = max(LEAST_PIECE, properties.total_memory // MEMORY_SHARE)
    return DevicePolicy("cuda", (*PORTABLE, "fused"), piece, roofline, estimated=True)


def processor() -> str:
    """The processor's name."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def hardware(device: torch.device | str = "cpu") -> str:
    """What computes there: the name of the GPU, or of the processor."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()
