"""A layer's choice of algorithms laid open: what would run for an input, why, and what every candidate costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sesn.algorithms.choose import Mode
from sesn.algorithms.decide import Decision, Job, Reason, Ways, candidates_on
from sesn.algorithms.memory import named
from sesn.algorithms.policy import Way, hardware, policy_of

#: The reasons in words.
_WHY = {
    "forced": "the layer was told to",
    "model": "the cost model expects it to be quickest",
    "measured": "it was the quickest when it was timed",
    "fallback": "the cost model of the CPU expects it to be quickest, and nothing is known of this kind of device",
}
_MODES = {
    "forward": "the output alone",
    "weights": "the output and the gradient of the weights",
    "gradients": "the output and the gradients of the input and the weights",
}


@dataclass(frozen=True)
class Candidate:
    """What one choice of algorithms for a layer costs, forward.

    Attributes:
        algorithms: that of each output scale.
        multiply_adds: of the forward pass of the whole batch.
        bytes: that the forward pass reads and writes, each tensor counted once for every operation that uses it.
        expected: milliseconds by the cost model, for what the plan's mode computes. On a CPU they are those of the
            machine that the model was fitted on, and on a GPU an estimate that nobody has timed.
        milliseconds: as timed here by `sesn.tuning`; None if it was not.
    """

    algorithms: Ways
    multiply_adds: int
    bytes: int
    expected: float
    milliseconds: float | None = None

    @property
    def name(self) -> str:
        """One algorithm by its name, and several as a list of those of all scales."""
        return named(self.algorithms)


@dataclass(frozen=True)
class ConvolutionPlan:
    """Which algorithms a layer runs for an input, and why.

    Attributes:
        algorithms: that of each output scale, the smallest first.
        reason: "forced" by the layer's argument, chosen by the "model", "measured", or a "fallback" to the CPU's model
            on a device that nothing is known of.
        shape: of the input.
        dtype: of the arithmetic.
        mode: what is computed: "forward", "weights" (and their gradient) or "gradients" (those of the input as well).
        device: the name of what computes.
        boxes: the side of the kernels of each output scale, in pixels.
        candidates: every algorithm that could run at all scales, and all mixtures that were timed or chosen.
        estimated: whether the cost model of this device is an estimate that nobody has timed.

    Example:
        >>> plan = sesn.ScaleLift(3, 8, algorithm="dense").plan((2, 3, 32, 32))
        >>> plan.reason, set(plan.algorithms)
        ('forced', {'dense'})
        >>> [each.name for each in plan.candidates]
        ['dense', 'separable', 'spectral']
    """

    algorithms: Ways
    reason: Reason
    shape: tuple[int, ...]
    dtype: str
    mode: Mode
    device: str
    boxes: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    estimated: bool

    @property
    def chosen(self) -> Candidate:
        """The candidate that runs."""
        return next(each for each in self.candidates if each.algorithms == self.algorithms)

    def __str__(self) -> str:
        """Say what runs and why, and compare the candidates in a table."""
        shape = " x ".join(map(str, self.shape))
        head = f"{named(self.algorithms)}, because {_WHY[self.reason]}"
        lines = [head, f"input {shape}, {self.dtype}, computing {_MODES[self.mode]}, on {self.device}"]
        pairs = zip(self.boxes, self.algorithms, strict=True)
        lines.append("scales: " + ", ".join(f"{way} ({box} x {box} pixels)" for box, way in pairs))
        width = max(len(each.name) for each in self.candidates)
        expected = "estimated ms" if self.estimated else "expected ms"
        lines.append(f"  {'':{width}}  {'M multiply-adds':>15}  {'MB moved':>9}  {expected:>12}  {'timed ms':>9}")
        for each in self.candidates:
            mark = "*" if each.algorithms == self.algorithms else " "
            time = "" if each.milliseconds is None else f"{each.milliseconds:.3g}"
            work = f"{each.multiply_adds / 1e6:>15,.1f}  {each.bytes / 1e6:>9,.1f}  {each.expected:>12.3g}"
            lines.append(f"{mark} {each.name:{width}}  {work}  {time:>9}".rstrip())
        return "\n".join(lines)


def make_plan(job: Job, decision: Decision, shape: tuple[int, ...]) -> ConvolutionPlan:
    """The plan of a decision."""
    times = {} if decision.times is None else decision.times.milliseconds
    costs = job.costs(candidates_on(job.device))
    alike = [way for way in costs[0] if all(math.isfinite(each[way]) for each in costs)]
    tried = dict.fromkeys((way,) * len(costs) for way in alike)
    tried |= dict.fromkeys([*(_parsed(name, len(costs)) for name in times), decision.ways])
    candidates = tuple(_candidate(job, each, times) for each in tried)
    return ConvolutionPlan(
        algorithms=decision.ways,
        reason=decision.reason,
        shape=shape,
        dtype=job.dtype,
        mode=job.mode,
        device=hardware(job.device) if job.device.type in ("cpu", "cuda") else job.device.type,
        boxes=job.boxes,
        candidates=candidates,
        estimated=policy_of(job.device).estimated,
    )


def _parsed(name: str, scales: int) -> Ways:
    """The algorithms that `named` was given."""
    ways: list[Way] = name.split(", ")  # type: ignore[assignment]
    return tuple(ways) if len(ways) > 1 else (ways[0],) * scales


def _candidate(job: Job, ways: Ways, times: dict[str, float]) -> Candidate:
    chosen = [(job.work(scale), way, job.loads(scale)[way]) for scale, way in enumerate(ways)]
    return Candidate(
        algorithms=ways,
        multiply_adds=sum(load.multiply_adds for _, _, load in chosen),
        bytes=sum(load.moved for _, _, load in chosen),
        expected=sum(work.picoseconds(way, load) for work, way, load in chosen) / 1e9,
        milliseconds=times.get(named(ways)),
    )
