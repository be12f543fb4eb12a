"""Which devices a run uses, and how many cells run at a time on them."""

from __future__ import annotations

import os
import re

import torch

from sesn._checks import complaint
from sesn.errors import UsageError


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_of_each(workers: int) -> int:
    """Its share of the cores."""
    return max(1, cores() // workers)


def devices(name: str) -> list[str]:
    """The devices of "auto" (all GPUs, else the processor), "cpu", "cuda" (all GPUs) or "cuda:N"."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise UsageError(complaint("device", name, "auto, cpu, cuda or cuda:N"))
    count = torch.cuda.device_count() if name != "cpu" else 0
    every = [f"cuda:{index}" for index in range(count)]
    if name == "cpu" or (name == "auto" and not every):
        return ["cpu"]
    chosen = every if name in ("auto", "cuda") else [device for device in every if device == name]
    if not chosen:
        raise UsageError(complaint("device", name, f"one that torch sees ({', '.join(['cpu', *every])})"))
    return chosen


def for_workers(found: list[str], jobs: int | None) -> list[str]:
    """A device for each worker: `jobs` of them, by default one a GPU, or one for the processor with all its threads.

    One, because two networks in training need twice the memory, and the first numbers come sooner.
    """
    count = len(found) if jobs is None else jobs
    return [found[index % len(found)] for index in range(count)]
