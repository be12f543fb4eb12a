"""What a measurement was made on: recorded beside every number."""

from __future__ import annotations

import platform
from pathlib import Path

import torch


def processor() -> str:
    """The processor's name."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def provenance(device: torch.device | str = "cpu") -> dict[str, str | int]:
    """Processor, threads, torch and device, as columns."""
    return {
        "machine": processor(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "device": str(device),
    }


def machine_line(device: torch.device | str = "cpu") -> str:
    """The same in one line, for captions."""
    facts = provenance(device)
    return f"{facts['machine']}, {facts['threads']} threads, torch {facts['torch']}, {facts['device']}"
