"""How long a step takes on a device, and which of several steps is the quickest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

Step = Callable[[], object]
Name = TypeVar("Name")
#: What takes so many times as long as the quickest at its second run is not run again.
HOPELESS = 3
#: Milliseconds that the runs after the first two should take together, and how many there are.
PATIENCE = 150
LEAST, MOST = 3, 15


def milliseconds(step: Step, device: torch.device) -> float:
    """The time of a step: by events of the device on CUDA, elsewhere by the clock, waiting for the device."""
    if device.type == "cuda":
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        step()
        stop.record()
        torch.cuda.synchronize(device)
        return float(start.elapsed_time(stop))
    wait = getattr(getattr(torch, device.type, None), "synchronize", lambda: None)
    wait()
    begin = time.perf_counter()
    step()
    wait()
    return (time.perf_counter() - begin) * 1e3


def least_milliseconds(steps: Mapping[Name, Step], device: torch.device) -> dict[Name, float]:
    """The least time of each step, all of which were run before. They take turns, so that a busy machine is fair."""
    least = {name: milliseconds(step, device) for name, step in steps.items()}
    bound = HOPELESS * min(least.values())
    rest = {name: step for name, step in steps.items() if least[name] <= bound}
    rounds = round(PATIENCE / max(1e-3, sum(least[name] for name in rest)))
    for _ in range(min(MOST, max(LEAST, rounds))):
        for name, step in rest.items():
            least[name] = min(least[name], milliseconds(step, device))
    return least
