"""RUNNERS: the function that carries out the cells of each experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from harness.records import Cell, Measurement
from harness.run.context import Context

Runner = Callable[[Cell, Context], Sequence[Measurement]]

#: By the experiment's key, as "module:function": a worker imports what its cells need and no more.
RUNNERS: dict[str, str] = {
    "parameters": "harness.run.parameters:parameters",
    "properties": "harness.run.properties:properties",
    "delta-depth": "harness.run.equivariance:delta_depth",
    "delta-downscale": "harness.run.equivariance:delta_downscale",
    "delta-interscale": "harness.run.equivariance:delta_interscale",
    "epoch-time": "harness.run.timing:epoch_time",
    "mnist-scale": "harness.run.training.cells:mnist_scale",
    "stl10": "harness.run.training.cells:stl10",
    "stl10-reduced": "harness.run.training.cells:stl10",
}


def load_runner(target: str) -> Runner:
    """The function that "module:function" names."""
    module, _, name = target.partition(":")
    return cast(Runner, getattr(import_module(module), name))
