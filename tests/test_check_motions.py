"""`sesn check --action`: networks that are shifted and rotated, and what is said of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from test_check import Check, check, said
from typer.testing import CliRunner

from sesn.tools.app import app

__all__ = ["check"]


def test_the_command_shifts_and_rotates(check: Check, tmp_path: Path) -> None:
    """An ordinary convolution commutes with shifts; rotations show that its kernels have a direction."""
    fresh = {"input": "1x64x64", "count": "3", "images": "embedded", "json": "out.json", "tolerance": "1e-3"}
    words = [word for key, value in fresh.items() for word in (f"--{key}", value)]
    check("cnn")

    def run(*options: str) -> Any:
        return CliRunner().invoke(app, ["check", "networks.py:cnn", *words, *options])

    shifted = run("--action", "translate")
    assert shifted.exit_code == 0, shifted.output
    assert "shift by 1 pixel 0.5 pixels" in said(shifted)
    assert "shift by 0.5 pixels: relative Δ" in said(shifted)
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [one["moved"] for one in results] == ["shift by 1 pixel", "shift by 0.5 pixels"]
    rotated = run("--rotate", "90,20", "--picture", "out.png")
    assert rotated.exit_code == 1, rotated.output
    assert "rotation by 20 degrees: relative Δ" in said(rotated)
    assert "kernels with a direction" in said(rotated)
    assert "Replace them by ScaleLift" not in said(rotated)
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [one["moved"] for one in results] == ["rotation by 90 degrees", "rotation by 20 degrees"]
    assert all(one["decibels_median"] > 0 and one["psnr_median"] > one["decibels_median"] for one in results)


def test_decibels_have_the_sign_of_a_ratio_of_signal_to_error(check: Check, tmp_path: Path) -> None:
    result = check("lift", "--json", "out.json")
    [found] = json.loads((tmp_path / "out.json").read_text())["results"]
    assert found["decibels_median"] == pytest.approx(-10 * math.log10(sorted(found["delta"][0])[1]))
    assert f"in decibels {found['decibels_median']:.1f} dB" in said(result)
    assert found["psnr_median"] is None


def test_the_way_out_of_a_size_that_does_not_fit_is_a_command_that_runs(check: Check) -> None:
    """Shifts and rotations are no scalings, so the command names no downscale."""
    check("cnn")
    Path("fixed.py").write_text(FIXED, "utf-8")
    for action in (["--action", "translate"], ["--rotate", "90"]):
        refused = CliRunner().invoke(app, ["check", "fixed.py:Fixed", "--input", "1x48x48", *action])
        assert refused.exit_code == 2
        way_out = said(refused).partition("run sesn ")[2].split()
        assert "--downscale" not in way_out
        result = CliRunner().invoke(app, [*way_out, "--count", "2"])
        assert result.exit_code == 0, result.output


FIXED = """
from torch import nn

class Fixed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(32 * 32, 4))
"""


def test_shifts_up_and_left_are_measured_and_no_shift_is_refused(check: Check) -> None:
    check("cnn")
    words = "check networks.py:cnn --input 1x48x48 --count 2 --translate -1,-0.5"
    shifted = CliRunner().invoke(app, words.split())
    assert shifted.exit_code == 0, shifted.output
    assert "shift by -1 pixel -0.5 pixels" in said(shifted)
    for amount in ("0", "1,inf", "far"):  # without --input, the side is not known yet
        refused = CliRunner().invoke(app, ["check", "networks.py:cnn", "--translate", amount])
        words = f"--translate (='{amount}') must be stride or numbers of pixels other than 0; for example 1,0.5"
        assert (refused.exit_code, words in said(refused)) == (2, True), refused.output


@pytest.mark.parametrize("shape", ["1x3x3", "1x1x96"])
def test_images_that_are_too_small_to_be_shifted_are_named(check: Check, shape: str) -> None:
    check("cnn")
    for option in (["--action", "translate"], ["--translate", "0.5"]):
        result = CliRunner().invoke(app, ["check", "networks.py:cnn", "--input", shape, *option])
        assert result.exit_code == 2
        words = f"--input (='{shape}') must be at least 4 pixels a side, since shifts are at most a quarter of it"
        assert words in said(result)
