"""Networks that take images of one size: the picture is rescaled on a canvas that is kept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from typer.testing import CliRunner

from sesn import (
    GlobalPool,
    Meter,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    UsageError,
    basis_a,
    equivariance_error,
    resampling_matrix,
    rescale,
)
from sesn.tools.app import app
from sesn.tools.causes import causes
from sesn.tools.images import random_images

NETWORKS = """
import torch
from torch import nn

def lenet():
    return nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 12 * 12, 10))

class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 8, 8, 8), nn.Parameter(torch.randn(1, 144, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.layer(self.patch(x).flatten(2).transpose(1, 2) + self.place)
"""


@given(st.integers(4, 24), st.floats(0.3, 2.0), st.sampled_from(["zeros", "reflection", "circular"]))
def test_the_picture_stays_about_its_centre(size: int, factor: float, ends: Any) -> None:
    """Weights of a row are centred where L_s says, and those of a background that repeats the picture sum to 1."""
    matrix = resampling_matrix(size, factor, "bicubic", ends, canvas="keep")
    assert matrix.shape == (size, size)
    assert torch.allclose(matrix.flip(0, 1), matrix)
    if ends != "zeros":
        assert torch.allclose(matrix.sum(1), torch.ones(size, dtype=torch.float64))


@pytest.mark.parametrize("resampler", ["lanczos3", "bicubic", "legacy", "fourier"])
@pytest.mark.parametrize("factor", [0.5, 0.75])
def test_the_picture_is_the_rescaled_one_and_the_background_is_as_asked(resampler: Any, factor: float) -> None:
    image = random_images(0, (2, 3, 32, 32)) + 5
    left = round(32 * factor)
    edge = (32 - left) // 2
    inside = (..., slice(edge + 4, 28 - edge), slice(edge + 4, 28 - edge))
    small = nn.functional.pad(rescale(image, factor, resampler), (edge,) * 4)
    backgrounds = ["circular"] if resampler == "fourier" else ["zeros", "reflection", "mean", "circular"]
    kept = {ends: rescale(image, factor, resampler, ends, canvas="keep") for ends in backgrounds}  # type: ignore[arg-type]
    for canvas in kept.values():
        assert canvas.shape == image.shape
        if resampler != "fourier":
            assert torch.allclose(canvas[inside], small[inside])
    if resampler != "fourier":
        corner = (..., 0, 0)
        assert torch.allclose(kept["zeros"][corner], torch.zeros(2, 3, dtype=torch.float64))
        assert torch.allclose(kept["mean"][corner], image.mean((-2, -1)))
        row = kept["reflection"][..., 16, :]  # mirrored at the left edge of the picture
        assert torch.allclose(row[..., edge - 4 : edge].flip(-1), row[..., edge : edge + 4])


class OneSize(nn.Module):
    """A network that takes images of one size."""

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.network, self.side = network, side

    def forward(self, x: Tensor) -> Any:
        assert x.shape[-1] == self.side
        return self.network(x)


def lift() -> ScaleLift:
    torch.manual_seed(0)
    return ScaleLift(1, 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2), bias=False)


@pytest.mark.parametrize("ends", ["auto", "mean", "zeros", "circular"])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wide_lift_passes_and_an_ordinary_convolution_does_not(ends: Any, factor: float) -> None:
    images, meter = random_images(0, (2, 1, 96, 96), cutoff=0.2), Meter(canvas="keep", ends=ends)
    wide, ordinary = (OneSize(one, 96).eval() for one in (lift(), nn.Conv2d(1, 2, 7, padding=3, bias=False)))
    assert meter.measure(wide, images, factor).valid.max() < 1e-4
    assert meter.measure(ordinary, images, factor).valid.min() > 1e-2


def test_the_background_of_a_map_is_left_out() -> None:
    images = random_images(0, (2, 1, 64, 64))
    error = equivariance_error(nn.Identity(), images, 0.5, canvas="keep", ends="zeros")
    assert error.crop == 16 + 3
    assert error.valid.max() < 1e-20
    assert equivariance_error(nn.Identity(), images, 0.5, canvas="keep", crop=2).crop == 16 + 2


def test_invariants_are_compared_whole() -> None:
    images = random_images(0, (2, 1, 64, 64))
    scores = OneSize(nn.Sequential(lift(), ScaleProjection(), GlobalPool()), 64).eval()
    error = equivariance_error(scores, images, 0.75, canvas="keep")
    assert (error.kind, error.crop) == ("invariant", 0)
    with pytest.raises(UsageError, match="rejected images"):
        equivariance_error(scores, images, 0.75)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"canvas": "stretch"}, "`canvas` .='stretch'. must be one of 'follow', 'keep'"),
        ({"canvas": "keep", "ends": "inside"}, "`ends` .='inside'. must be another background"),
        ({"canvas": "keep", "resampler": "fourier", "ends": "mean"}, "circular with the fourier resampler"),
    ],
)
def test_a_canvas_that_cannot_be_is_refused(how: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Meter(**how)


def test_images_far_from_square_are_refused() -> None:
    with pytest.raises(UsageError, match="nearly square, or less rescaled"):
        equivariance_error(nn.Identity(), random_images(0, (2, 1, 32, 64)), 0.5, canvas="keep")


# --- on the command line


@pytest.fixture
def sesn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    (tmp_path / "networks.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, [*words, "--count", "2", "--images", "1/f"])


ONE_SIZE = ["networks.py:lenet", "networks.py:ViT --tokens 12x12"]


@pytest.mark.parametrize("command", ["check", "profile", "causes"])
@pytest.mark.parametrize("words", ONE_SIZE)
def test_a_network_of_one_size_keeps_its_canvas_which_is_said(
    sesn: Callable[..., Any], command: str, words: str
) -> None:
    result = sesn(command, *words.split())
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "on a kept canvas, background reflection" in said
    assert re.search(r"--canvas keep chosen for the network's stride of \d+ and one size of images", said)


@pytest.mark.parametrize("words", ONE_SIZE)
def test_a_canvas_that_cannot_follow_is_answered_with_the_command_that_measures(
    sesn: Callable[..., Any], words: str
) -> None:
    result = sesn("check", *words.split(), "--canvas", "follow")
    assert result.exit_code == 2, result.output
    found = re.search(
        r"but not when they are rescaled.* run (sesn check .* --canvas keep)$", " ".join(result.output.split())
    )
    assert found is not None, result.output
    again = CliRunner().invoke(app, shlex.split(found[1])[1:])
    assert again.exit_code == 0, again.output


def test_causes_on_a_kept_canvas_tell_the_branches_apart() -> None:
    basis = basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)
    torch.manual_seed(0)
    network = nn.Sequential(ScaleLift(1, 2, basis, bias=False), ScaleProjection()).eval()
    images = random_images(0, (2, 1, 96, 96), cutoff=0.1)
    found = causes(network, images, 0.5, Meter(crop=0, canvas="keep"))
    steps = {step.cause: step for step in found.steps}
    assert steps["scale truncation"].change == "projection over partnered scales"
    assert steps["scale truncation"].after < steps["scale truncation"].before / 10


def test_a_profile_on_a_kept_canvas(sesn: Callable[..., Any]) -> None:
    result = sesn("profile", "networks.py:ViT", "--tokens", "12x12", "--canvas", "keep", "--ends", "mean")
    assert result.exit_code == 0, result.output
    assert "background mean" in " ".join(result.output.split())
