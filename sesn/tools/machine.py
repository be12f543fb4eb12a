"""What a measurement was made on: recorded beside every number."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sesn.algorithms.policy import hardware


def device_kind(device: torch.device | str) -> str:
    """The device without its number: which of several equal GPUs it was decides nothing."""
    return str(device).partition(":")[0]


@cache
def code_version() -> str:
    """The version of sesn, and in a checkout its commit ("+dirty" if sesn or harness differ from it)."""
    package = Path(__file__).resolve().parent
    try:
        released = version("sesn")
    except PackageNotFoundError:
        released = "not installed"
    # A copy inside somebody else's checkout is not tracked there.
    if _git(package, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return released
    commit = _git(package, "rev-parse", "--short=12", "HEAD")
    # Only the code: the rows of this very run lie in the checkout, too.
    changes = _git(package, "status", "--porcelain", "--", "..", "../../harness")
    return f"{released} {commit}" + ("+dirty" if changes else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where it refuses or is missing."""
    try:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def provenance(device: torch.device | str = "cpu") -> dict[str, str | int]:
    """What computes, threads, torch and device, as columns."""
    return {
        "machine": hardware(device),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "device": str(device),
    }


def provenance_with_code(device: torch.device | str = "cpu") -> dict[str, str | int]:
    """The same and the version of the code, as the rows of experiments carry it."""
    return {"code": code_version(), **provenance(device)}


def machine_line(device: torch.device | str = "cpu") -> str:
    """What computes, threads, torch and device in one line, for captions."""
    return machine_words(provenance(device))


def machine_words(facts: Mapping[str, Any]) -> str:
    """The same of provenance that was kept with a row."""
    threads = f"{facts['threads']} thread{'' if str(facts['threads']) == '1' else 's'}"
    return f"{facts['machine']}, {threads}, torch {facts['torch']}, {facts['device']}"
