"""Sizes: chosen for a network's total stride, and a command line that fits where those asked for do not."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from sesn import Meter, ScaleGrid, ScaleLift, basis_a
from sesn.tools.app import app
from sesn.tools.sizes import fitting_sizes

NETWORKS = """
import torch
from torch import nn

def conv(channels, out, stride=1):
    return nn.Conv2d(channels, out, 3, stride, padding=1)

def plain():
    return conv(3, 2)

def grey():
    return conv(1, 2)

def encoder(depth=5):
    return nn.Sequential(conv(3, 2, 2), *(conv(2, 2, 2) for _ in range(depth - 1)))

class UNet(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.down = nn.ModuleList(conv(3 if i == 0 else 2, 2, 2) for i in range(depth))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2, 2, 2, 2) for _ in range(depth))

    def forward(self, x):
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        for layer, skip in zip(self.up, reversed(kept)):
            x = layer(x + skip)
        return x

def shrinking():  # no pixel is left of a small image
    return nn.Sequential(*(nn.Conv2d(3, 3, 3, 2) for _ in range(4)), nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1))

def scores():
    return nn.Sequential(encoder(3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def scripted(depth=2):
    return torch.jit.script(encoder(depth))

def scripted_scores():
    return torch.jit.script(scores())

def one_size():
    return nn.Sequential(conv(1, 2), nn.Flatten(), nn.Linear(2 * 28 * 28, 4))

def patches():
    return nn.Sequential(nn.Conv2d(3, 2, 8, 8), nn.Flatten(), nn.Linear(2 * 8 * 8, 4))
"""
Sesn = Callable[..., Any]


@pytest.fixture
def sesn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sesn:
    (tmp_path / "networks.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(command: str, name: str, *words: str) -> Any:
        return CliRunner().invoke(app, [command, f"networks.py:{name}", "--count", "2", "--images", "1/f", *words])

    return run


def said(result: Any) -> str:
    return " ".join(result.output.split())


#: What is chosen where nothing is asked for.
CHOSEN = {
    "plain": ("3x96x96", "1.41,2", 1),
    "grey": ("1x96x96", "1.41,2", 1),
    "encoder": ("3x128x128", "1.33333,2", 32),
    "UNet": ("3x96x96", "1.33333,2", 8),
    "scores": ("3x96x96", "1.33333,2", 8),
    "shrinking": ("3x192x192", "1.33333,2", 16),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_sizes_are_chosen_for_the_stride_and_said(sesn: Sesn, tmp_path: Path, name: str) -> None:
    shape, downscale, stride = CHOSEN[name]
    result = sesn("check", name, "--json", "out.json")
    assert result.exit_code == 0, result.output
    assert f"--input {shape} --downscale {downscale} chosen for the network's stride of {stride}" in said(result)
    settings = json.loads((tmp_path / "out.json").read_text())["settings"]
    assert (settings["input"], settings["downscale"]) == (shape, downscale)


def test_the_one_size_that_a_network_takes_is_found(sesn: Sesn) -> None:
    result = sesn("check", "patches")
    assert result.exit_code == 0, result.output
    assert "--input 3x64x64 --downscale 1.41,2 --canvas keep chosen" in said(result)


@pytest.mark.parametrize("command", ["profile", "causes"])
def test_every_command_chooses(sesn: Sesn, command: str) -> None:
    result = sesn(command, "UNet")
    assert result.exit_code == 0, result.output
    assert "--downscale 1.33333 chosen" in said(result)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("UNet", "--input 3x96x96 --downscale 1.41,2"),
        ("UNet", "--input 3x100x100 --downscale 2 --with depth=4"),
        ("UNet", "--input 3x64x96 --downscale 1.5"),
        ("encoder", "--input 3x96x96 --downscale 2,1.2 --crop 0 --quiet"),
    ],
)
def test_where_sizes_do_not_fit_the_error_prints_a_command_that_does(sesn: Sesn, name: str, words: str) -> None:
    result = sesn("check", name, *words.split())
    assert result.exit_code == 2, result.output
    assert re.search(r"must be such that the network's stride of \d+ divides the sides", said(result))
    assert "Traceback" not in result.output
    command = re.search(r"; run (sesn check .*)$", said(result))
    assert command is not None, result.output
    again = CliRunner().invoke(app, shlex.split(command[1])[1:])
    assert again.exit_code == 0, again.output
    assert "--images 1/f --count 2" in command[1]
    assert {*words.split()} - {*shlex.split(command[1])} <= {*words.split()[1:4:2]}  # the rest is as it was


def test_what_fits_is_kept_as_it_was_asked_for(sesn: Sesn) -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 3, 2, padding=1)).eval()
    found = fitting_sizes(network, (3, 64, 64), [1.4, 2.0], (), Meter())
    assert (found.shape, found.downscales, found.stride) == ((3, 64, 64), [1.4, 2.0], 2)
    assert "chosen" not in said(sesn("check", "plain", "--input", "3x40x40", "--downscale", "1.7"))


def test_a_network_of_one_size_is_quoted(sesn: Sesn) -> None:
    """What it says itself of images that it does not take, and nothing of a stride that it does not have."""
    for words in ("--input 1x64x64", "--input 1x28x28 --canvas follow"):
        refused = sesn("check", "one_size", *words.split())
        assert refused.exit_code == 2, refused.output
        assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in said(refused)
        assert "stride" not in said(refused)
        command = re.search(r"run (sesn check .*)$", said(refused))
        assert command is not None
        again = CliRunner().invoke(app, shlex.split(command[1])[1:])
        assert again.exit_code == 0, again.output
    chosen = said(sesn("check", "one_size"))
    assert "--input 1x28x28 --downscale 1.41,2 --canvas keep chosen for the network's one size of images;" in chosen


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["scripted", "scripted_scores"])
def test_the_stride_of_torchscript_is_said_to_be_unknown(sesn: Sesn, name: str) -> None:
    told = said(sesn("check", name))
    assert "--input 3x128x128 --downscale 1.33333,2 chosen for the network's stride (taken to be 32, as it" in told
    refused = sesn("check", name, "--translate", "1,stride")
    assert refused.exit_code == 2
    assert "must be pixels for this network, whose stride cannot be read; for example 8" in said(refused)
    asked = sesn("check", name, "--input", "3x96x96", "--downscale", "1.5")
    assert asked.exit_code == 0
    assert "stride" not in said(asked)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_stride_that_torchscript_shows_by_its_sizes_is_kept_to() -> None:
    network = torch.jit.script(nn.Conv2d(3, 2, 6, 6)).eval()  # type: ignore[no-untyped-call]
    found = fitting_sizes(network, None, None, (1.41, 2.0), Meter())
    assert (found.stride, found.known) == (96, False)
    assert all(round(found.shape[1] / one) % 96 == 0 for one in found.downscales)


class Patches(nn.Module):
    """A network of one size of images, whose layers do not say how far they look, and the images it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.given = nn.Conv2d(3, 16, 8, 8), list[tuple[int, bool]]()

    def forward(self, images: Tensor) -> Tensor:
        self.given.append((len(images), torch.is_grad_enabled()))
        assert images.shape[-2:] == (96, 96)
        tokens = self.layer(images).flatten(2)
        return (tokens @ (tokens.mT @ tokens).softmax(-1)).unflatten(2, (12, 12))


def test_a_size_is_tried_with_the_original_once() -> None:
    network = Patches().eval()
    assert fitting_sizes(network, None, None, (1.41, 2.0), Meter()).fixed
    # The original once for both branches at a factor of 1, then rescaled images: four near each downscale, and
    # the first as it is.
    assert len(network.given) == 1 + 9


def test_gradients_are_asked_once_for_all_factors_and_of_two_images() -> None:
    network = Patches().eval()
    errors = [*Meter(canvas="keep").sweep(network, torch.randn(4, 3, 96, 96), [0.7, 0.5], context=False)]
    assert all(error.measured for error in errors)
    assert [few for few, asked in network.given if asked] == [2]


@pytest.mark.parametrize(
    ("ratio", "chosen"), [(2.0, [2.0]), (2**0.5, [1.41, 2.0]), (1.7, [1.7]), (2 ** (1 / 3), [2 ** (1 / 3), 2.0])]
)
def test_a_field_is_measured_at_steps_of_its_grid(ratio: float, chosen: list[float]) -> None:
    """Between two steps no scale has a partner, and even an exact field would fail."""
    lift = ScaleLift(1, 1, basis_a(ScaleGrid.geometric(1.5, ratio, 4), "wide", 2))
    found = fitting_sizes(lift, None, None, (1.41, 2.0), Meter())
    assert found.downscales == pytest.approx(chosen)
    assert found.stepped == (chosen != [1.41, 2.0])
    assert fitting_sizes(lift, None, [1.41], (), Meter()).downscales == [1.41]
