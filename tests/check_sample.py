"""The file of networks that the tests of `sesn check` write: good ones, bad ones, and what is no network."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sesn.tools.app import app

Check = Callable[..., Any]

NETWORKS = '''
"""Networks to check; imports a neighbour, as a user's file would."""
import torch
from torch import nn
from sesn import GlobalPool, ScaleConv, ScaleGrid, ScaleLift, ScaleProjection, basis_a
from neighbour import CHANNELS

def basis():
    return basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)

def lift():
    return ScaleLift(1, CHANNELS, basis())

def cnn():
    return nn.Sequential(nn.Conv2d(1, 2, 7, padding=3, bias=False), nn.BatchNorm2d(2))

def invariant():
    return nn.Sequential(lift(), ScaleProjection(), GlobalPool())

def spoilt():
    return nn.Sequential(lift(), ScaleConv(CHANNELS, CHANNELS, basis(), interscale=3))

class Odd(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)

def without_grid(order=(0, 1, 2)):
    """The lift behind a function: nobody sees its grid, nor its windows."""
    hidden = lift().eval()
    return Odd(lambda x: hidden(x.to(torch.float32))[:, :, list(order)])

reversed_scales = lambda: without_grid((2, 1, 0))
identity = nn.Identity
invariant_mean = lambda: Odd(lambda x: x.mean((2, 3)))
nan = lambda: Odd(lambda x: x * float("nan"))
several = lambda: Odd(lambda x: (x, x))
grows = lambda: Odd(lambda x: nn.functional.pad(x, (1, 1, 1, 1)))
lost_key = lambda: Odd(lambda x: {}["weights"])
shifted = lambda: Odd(lambda x: x.roll(1, -1))
instance = nn.Identity()
number = 3
noisy = lambda: Odd(lambda x: x + torch.randn_like(x))

def constant(layer, *rest):
    nn.init.zeros_(layer.weight)
    nn.init.ones_(layer.bias)
    return nn.Sequential(*rest, layer)

constant_map = lambda: constant(nn.Conv2d(1, 2, 3, padding=1))
constant_scores = lambda: constant(nn.Linear(1, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def hardly():
    """Scores that are nearly all bias."""
    network = constant_scores()
    nn.init.constant_(network[-1].weight, 1e-3)
    return network

def mean_scores():
    """Scores of the mean alone, which no change of scale and no other picture of the same mean changes."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3))

class Contrast(nn.Module):
    def forward(self, images):
        return images.std((2, 3))

def zero():
    layer = nn.Conv2d(1, 2, 3, padding=1, bias=False)
    nn.init.zeros_(layer.weight)
    return layer

class Channels(nn.Module):
    """Each place normalised by itself."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1)

    def forward(self, x):
        return self.norm(x.movedim(1, -1)).movedim(-1, 1) + x.abs()

def raises():
    raise KeyError("weights.pt")

def leaves():
    raise SystemExit(3)

def returns_none():
    return None
'''


def runner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """`sesn check networks.py:NAME` on small images in a folder of its own."""
    (folder / "networks.py").write_text(NETWORKS, encoding="utf-8")
    (folder / "neighbour.py").write_text("CHANNELS = 2\n", encoding="utf-8")
    (folder / "broken.py").write_text("import torch\nx = (\n", encoding="utf-8")
    monkeypatch.chdir(folder)

    def run(name: str, *options: str, **wanted: str) -> Any:
        target = name if ":" in name or "." in name else f"networks.py:{name}"
        settings = {"input": "1x64x64", "downscale": "2", "count": "3", **wanted}
        words = [word for key, value in settings.items() for word in (f"--{key}", value)]
        return CliRunner().invoke(app, ["check", target, *words, *options])

    return run


def said(result: Any) -> str:
    """The output on one line: a terminal's width breaks sentences anywhere."""
    return re.sub(r"\s+", " ", result.output)
