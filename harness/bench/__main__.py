"""`python -m harness.bench [layers | choices | rectifiers | methods]`: time these, and print tables."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from sesn.tools.command import ending
from sesn.tools.consoles import consoles

Rounds = Annotated[int, typer.Option(min=1, help="Timed rounds; each round runs every contestant once.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads inside an operation.")]
Device = Annotated[str, typer.Option(help="Where to run: cpu, cuda.")]

app = typer.Typer(help="Benchmarks; without a name those of the layers.", no_args_is_help=False)


@app.command()
def layers(
    rounds: Rounds = 9,
    threads: Threads = 2,
    device: Device = "cpu",
    only: Annotated[str, typer.Option(help="Run the cases whose name contains this.")] = "",
) -> None:
    """Compare the layers with the textbook form, an ordinary filter bank and direct wide convolution."""
    from harness.bench.layers import run_tables
    from harness.run.engines.work import devices

    with consoles(quiet=False):
        run_tables(rounds=rounds, threads=threads, device=devices(device)[0], only=only)


@app.command()
def choices(
    rounds: Rounds = 15,
    threads: Threads = 1,
    device: Device = "cpu",
    shapes: Annotated[int, typer.Option(min=1, help="How many shapes are drawn.")] = 64,
) -> None:
    """Compare the algorithms that are chosen, by timing and by the cost model, with the best one on drawn shapes."""
    from harness.bench.choices import run_choices
    from harness.run.engines.work import devices

    with consoles(quiet=False):
        run_choices(shapes, rounds, threads, devices(device)[0])


@app.command()
def rectifiers(rounds: Rounds = 9, threads: Threads = 2, device: Device = "cpu") -> None:
    """Compare a plain, a band-limited and a nested ReLU on maps of several sides."""
    import torch

    from harness.bench.printing import table_console
    from harness.bench.rectifiers import rectifier_table
    from harness.run.engines.work import devices
    from sesn.tools.machine import machine_line

    with consoles(quiet=False):
        torch.set_num_threads(threads)
        where, console = torch.device(devices(device)[0]), table_console()
        console.print(f"forward + backward, float32, medians of {rounds} interleaved rounds; {machine_line(where)}")
        console.print(rectifier_table(rounds, where))


@app.command()
def methods(
    rounds: Rounds = 5,
    threads: Threads = 2,
    device: Device = "cpu",
    only: Annotated[str, typer.Option(help="Run the methods whose key contains this, beside the plain network.")] = "",
    batch: Annotated[int, typer.Option(min=2, help="Images per step.")] = 128,
    methods: Annotated[
        str, typer.Option(metavar="KEY,FILE.py:NAME", help="Run these methods, beside the plain one.")
    ] = "",
) -> None:
    """Compare the training steps of all methods on MNIST-scale with their nominal work and the paper's times."""
    from harness.bench.methods import run_methods
    from harness.run.engines.work import devices

    with consoles(quiet=False):
        run_methods(rounds, threads, devices(device)[0], only, batch, tuple(filter(None, methods.split(","))))


def arguments(given: list[str]) -> list[str]:
    """The layers' benchmark is meant when none is named."""
    named = bool(given) and (given[0] in ("layers", "choices", "rectifiers", "methods") or given[0] == "--help")
    return given if named else ["layers", *given]


if __name__ == "__main__":
    # Before torch is loaded: the memory profiler's chatter.
    os.environ.update({"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"})
    with ending():
        app(args=arguments(sys.argv[1:]))
