"""Which algorithms a layer runs: those it was told to, those that were timed, or those that the cost model expects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sesn._torch import casting
from sesn.algorithms.axis import Axis
from sesn.algorithms.choose import USUAL_BATCH, Load, Mode, Work, convolution_loads
from sesn.algorithms.fused.trust import verdict
from sesn.algorithms.memory import MEMORY, Times
from sesn.algorithms.policy import PORTABLE, Way, hardware, policy_of

#: By whom a choice was made: the layer's argument, the cost model, timings, or weights of another kind of device.
Reason = Literal["forced", "model", "measured", "fallback"]
#: The algorithm of each output scale.
Ways = tuple[Way, ...]


@dataclass(frozen=True)
class Job:
    """What a layer is asked to do: everything that its time depends on.

    Attributes:
        in_channels, out_channels: of one of the `groups`.
        functions: of the basis.
        runs: of functions that share a column profile; None if the functions are not products.
        boxes, seen: of each output scale, the side of its kernels and the number of input scales that they see.
        rows, columns: where the windows lie.
        batch: images; None while a graph is recorded, which serves any number.
        dtype: of the arithmetic, as `arithmetic` names it.
        mode: what is computed.
        device: where.
    """

    in_channels: int
    out_channels: int
    groups: int
    functions: int
    runs: int | None
    boxes: tuple[int, ...]
    seen: tuple[int, ...]
    rows: Axis
    columns: Axis
    batch: int | None
    dtype: str
    mode: Mode
    device: torch.device

    @cached_property
    def key(self) -> str:
        """All but the batch and the device, in words that a file can hold."""
        axes = " ".join(
            f"{name}={axis.size}>{axis.outputs} first={axis.first} stride={axis.stride}"
            for name, axis in (("rows", self.rows), ("columns", self.columns))
        )
        border = "circular" if self.rows.circular else "zeros"
        threads = f" threads={torch.get_num_threads()}" if self.device.type == "cpu" else ""
        lists = (",".join(map(str, numbers)) for numbers in (self.boxes, self.seen))
        boxes, seen = lists
        return (
            f"{self.in_channels}>{self.out_channels} groups={self.groups} functions={self.functions} runs={self.runs} "
            f"boxes={boxes} seen={seen} {axes} {border} {self.dtype} {self.mode}{threads}"
        )

    def work(self, scale: int) -> Work:
        """What there is to do at one output scale."""
        kind = self.dtype.partition(" ")[0]
        return Work(
            USUAL_BATCH if self.batch is None else self.batch,
            self.in_channels * self.seen[scale],
            self.out_channels,
            self.rows,
            self.columns,
            precise=kind in ("float32", "float64"),
            mode=self.mode,
            groups=self.groups,
            policy=policy_of(self.device),
            size=getattr(torch, kind).itemsize,
            rounded="tf32" in self.dtype,
        )

    def loads(self, scale: int) -> dict[Way, Load]:
        """What each algorithm has to do there."""
        return convolution_loads(self.work(scale), self.functions, self.runs, self.boxes[scale])

    def costs(self, candidates: Ways) -> list[dict[Way, float]]:
        """At every scale the expected picoseconds of the candidates; infinite where one is not to be chosen."""
        found = []
        for scale in range(len(self.boxes)):
            work, loads = self.work(scale), self.loads(scale)
            found.append({way: work.picoseconds(way, loads[way]) for way in candidates if way in loads})
        return found


class Decision(NamedTuple):
    """The algorithm of every output scale, who chose it, and the times of what was tried, if any was."""

    ways: Ways
    reason: Reason
    times: Times | None = None


def arithmetic(x: Tensor) -> str:
    """The type that a convolution of this tensor is computed in, and whether its factors may be rounded to ten bits."""
    dtype = torch.get_autocast_dtype(x.device.type) if casting(x) else x.dtype
    name = str(dtype).removeprefix("torch.")
    tf32 = x.device.type == "cuda" and dtype == torch.float32 and torch.backends.cudnn.allow_tf32
    return f"{name} tf32" if tf32 else name


def candidates_on(device: torch.device) -> Ways:
    """The algorithms that `auto` may choose on a device: `fused` only if it has passed its check there."""
    ways = policy_of(device).candidates
    return ways if "fused" not in ways or verdict(device) else PORTABLE


def decide(job: Job) -> Decision:
    """What `auto` does: the quickest that was timed, and where nothing was, what the model expects to be."""
    return _decide(job, candidates_on(job.device), MEMORY.current.version, torch.get_num_threads())


@lru_cache(maxsize=4096)
def _decide(job: Job, candidates: Ways, _memory: object, _threads: int) -> Decision:
    """The same for what it depends on."""
    known = MEMORY.current.get(hardware(job.device), job.key, job.batch, USUAL_BATCH)
    if known is not None and len(known.ways) == len(job.boxes) and set(known.ways) <= set(candidates):
        return Decision(known.ways, "measured", known)
    ways = tuple(min(costs, key=lambda way, costs=costs: costs[way]) for costs in job.costs(candidates))  # type: ignore[misc]
    return Decision(ways, "model" if job.device.type in ("cpu", "cuda") else "fallback")
