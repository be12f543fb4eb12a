"""`python -m harness.bench`: time the layers and print the tables."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def bench(
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds; each round runs every contestant once.")] = 9,
    threads: Annotated[int, typer.Option(min=1, help="Threads inside an operation.")] = 2,
    device: Annotated[str, typer.Option(help="Where to run: cpu, cuda.")] = "cpu",
    only: Annotated[str, typer.Option(help="Run the cases whose name contains this.")] = "",
) -> None:
    """Compare the layers with the textbook form, an ordinary filter bank and direct wide convolution."""
    for quiet in ({"KINETO_LOG_LEVEL": "99"}, {"TORCH_CPP_LOG_LEVEL": "ERROR"}):  # the memory profiler's chatter
        os.environ.update(quiet)
    from harness.bench.layers import run_tables

    run_tables(rounds=rounds, threads=threads, device=device, only=only)


if __name__ == "__main__":
    typer.run(bench)
