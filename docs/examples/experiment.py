"""An experiment of one's own: Delta against depth, of networks on another basis, for several sizes of window."""

from dataclasses import dataclass

import torch

import sesn
from harness.experiments import Cell, CellSettings, Context, Draft, Experiment, Measurement, Request
from sesn.tools.images import image_set

STEP, DEPTHS = 96 / 68, {"smoke": 3, "lite": 10, "paper": 50}


@dataclass(frozen=True, kw_only=True)
class Settings(CellSettings):
    """The images ("embedded", "stl10", or a folder of pictures), and the kernels."""

    images: str
    window: int


def cells(request: Request) -> list[Draft]:
    """Two draws of weights for each window: method, settings, seed, and why the cell is left out, if it is."""
    return [("", Settings(images=request.images, window=window), draw, "") for draw in (0, 1) for window in (7, 13)]


def run(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of every image after every layer."""
    settings = Settings.of(cell)
    torch.manual_seed(cell.seed)
    images, _ = image_set(settings.images, 3, 96, 96, 2, data_root=context.data_root)
    basis = sesn.basis_b(sesn.ScaleGrid.geometric(0.9, STEP, 3), settings.window, 3)
    layers = [sesn.ScaleConv(4, 4, basis, bias=False) for _ in range(DEPTHS[cell.budget] - 1)]
    errors = sesn.Meter(crop=0).along([sesn.ScaleLift(3, 4, basis, bias=False), *layers], images, 1 / STEP)
    return [Measurement("delta", tuple(one.valid.tolist()), {"depth": depth}) for depth, one in enumerate(errors, 1)]


plan = {"version": 1, "settings": Settings, "cells": cells, "run": run, "axes": ("window",), "seed": "weight draw"}
MINE = Experiment(key="my-depth", title="Delta against depth on another basis.", alone=False, **plan)
