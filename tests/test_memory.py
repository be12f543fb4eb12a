"""Freed memory stays with the process, where the C library can do that, and nothing else changes."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from harness import stopwatch as memory

#: Fills and frees 40 MB again and again, as a training step does; prints how many pages the system had to give.
STEPS = """
import resource, sys
import numpy
from harness.stopwatch import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for step in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [numpy.full(5_000_000, step, dtype=numpy.float64) for _ in range(2)]
    del kept
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def pages_of_a_step(how: str) -> int:
    ended = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True, check=True)
    return int(ended.stdout)


@on_glibc
def test_a_step_asks_for_no_memory_that_the_step_before_it_had() -> None:
    """How many pages 80 MB are depends on their size: 4 kB, or up to 2 MB."""
    assert pages_of_a_step("as it is") >= 40
    assert pages_of_a_step("keep") < 20


@on_glibc
def test_the_rows_say_what_was_on() -> None:
    assert memory.speedups() == "fused optimizer, freed memory kept"


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert not memory.keep_freed_memory()
    assert memory.speedups() == "fused optimizer"
