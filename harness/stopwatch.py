"""Interleaved timing and peak memory of one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch.profiler import ProfilerActivity, profile

Step = Callable[[], None]


def interleave(
    steps: Mapping[str, Step],
    rounds: int,
    device: torch.device,
    warmup: int = 2,
    on_round: Callable[[float], None] = lambda _done: None,
) -> dict[str, list[float]]:
    """Milliseconds of each step, round by round: every round runs all steps once, so drift hits them alike.

    `on_round` is told before each round, outside the timed part, how much is done (0..1).
    """
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(warmup + rounds):
        on_round(index / (warmup + rounds))
        for name, step in steps.items():
            elapsed = _milliseconds(step, device)
            if index >= warmup:
                samples[name].append(elapsed)
    return samples


def _milliseconds(step: Step, device: torch.device) -> float:
    """Device events where the device has them, the clock otherwise."""
    if device.type == "cuda":
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        step()
        stop.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(stop))
    begin = time.perf_counter()
    step()
    return (time.perf_counter() - begin) * 1e3


def peak_bytes(step: Step, device: torch.device) -> int:
    """The most memory that a step holds at once beyond what it found, as torch's allocator saw it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        return int(torch.cuda.max_memory_allocated(device)) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    results = recorded.profiler.kineto_results if recorded.profiler is not None else None
    events = [event for event in (results.events() if results is not None else []) if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
