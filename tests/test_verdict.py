"""What `sesn check` says of a result: the ratio first, one plain sentence, and the same in its files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from torch import nn
from typer.testing import CliRunner

from sesn import Meter, equivariance_error
from sesn.tools.app import app
from sesn.tools.check import Checked, check
from sesn.tools.images import image_set
from sesn.tools.verdict import sentence, verdict

ZOO = Path(__file__).with_name("zoo.py")
IMAGES, _ = image_set("1/f", 1, zoo.SIDE, zoo.SIDE, 4)


def run(name: str, *options: str) -> Any:
    settings = ["--input", "1x64x64", "--downscale", "2", "--images", "1/f", "--count", "4"]
    return CliRunner().invoke(app, ["check", f"{ZOO}:{name}", *settings, *options])


def words(result: Any) -> str:
    return re.sub(r"\s+", " ", result.output)


@pytest.mark.parametrize("name", ["cnn", "UNet", "resnet", "vit", "mixer"])
def test_the_command_fails_an_ordinary_network(name: str) -> None:
    result = run(name, "--tolerance", "0.1")
    assert result.exit_code == 1, result.output
    assert "ABOVE the tolerance 0.1" in words(result)


def test_the_ratio_is_the_first_line_and_in_the_json(tmp_path: Path) -> None:
    result = run("wide_field", "--tolerance", "1e-3", "--json", str(tmp_path / "out.json"))
    assert result.exit_code == 0, result.output
    headings = [line.strip() for line in result.output.splitlines()]
    first = next(place for place, line in enumerate(headings) if line.startswith("relative Δ"))
    assert headings[first - 1].startswith("──")
    [row] = json.loads((tmp_path / "out.json").read_text())["results"]
    error = equivariance_error(zoo.wide_field(), IMAGES, 1 / 2)
    assert row["relative"] == [pytest.approx(error.relative.tolist())]
    assert row["relative_median"] == pytest.approx(float(error.relative.quantile(0.5)))
    assert len(row["ceiling_centred"][0]) == 4
    assert f"relative Δ {row['relative_median']:.1e}, " in words(result)
    assert "within the tolerance 0.001" in words(result)


def test_a_bias_is_no_matter_unless_delta_itself_is_judged() -> None:
    assert run("biased_field", "--tolerance", "1e-3").exit_code == 0
    result = run("biased_field", "--tolerance", "1e-3", "--absolute")
    assert result.exit_code == 1
    assert "hardly depends on the image" in words(result)


def test_delta_itself_is_judged_when_asked_for() -> None:
    result = run("wide_field", "--tolerance", "1e-3", "--absolute")
    assert result.exit_code == 0, result.output
    assert "judged by Δ itself" in words(result)


def said(network: nn.Module, tolerance: float | None = None, **how: Any) -> tuple[str, str]:
    [found] = check(network.eval(), IMAGES, [1 / 2], Meter(**how))
    return sentence(found, tolerance), verdict(found, tolerance)[0]


def test_chance_is_called_chance() -> None:
    assert "no better than chance" in said(nn.Sequential(nn.Conv2d(1, 2, 5, padding=2), Signs()))[0]
    assert "% of what unrelated images give" in said(zoo.ordinary("unet", "random"))[0]


@pytest.mark.parametrize(
    ("relative", "words"),
    [
        (0.3, "30 % of what unrelated images give"),
        (0.89, "89 % of what unrelated images give"),
        (0.901, "hardly better than chance"),
        (0.99, "hardly better than chance"),
        (1.001, "no better than chance"),
        (1.7, "no better than chance"),
    ],
)
def test_the_words_are_right_at_their_limits(relative: float, words: str) -> None:
    [found] = check(zoo.ordinary("cnn", "random"), IMAGES, [1 / 2])
    factor = relative / found.relative.median
    error = replace(found.first, valid=found.first.valid * factor, centred=found.first.centred * factor)
    assert sentence(Checked((error,)), None).startswith(f"downscale 2: relative Δ {relative:.1e}, {words}")


def test_a_large_delta_is_not_said_to_be_hidden() -> None:
    torch.manual_seed(0)
    text, _ = said(nn.Sequential(nn.Conv2d(1, 4, 1), nn.ConvTranspose2d(4, 4, 4, 2, 1)))
    assert "without them" not in text
    torch.manual_seed(0)
    assert "because the means of the channels" in said(zoo.ordinary("unet", "shifted"))[0]


class Signs(nn.Module):
    """Every other pixel negative: rescaling turns them over."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down, right = (torch.arange(side) % 2 for side in x.shape[-2:])
        return x * (1 - 2 * ((down[:, None] + right) % 2))


def test_a_tolerance_below_the_floor_is_said_to_be() -> None:
    text, short = said(zoo.wide_field(1), 1e-12)
    assert "keeps any network from meeting" in text
    assert short == "above 1e-12"
    text, short = said(zoo.wide_field(1), 1e-3)
    assert "at the floor of the probe" in text
    assert short == "at the floor"


def test_what_does_not_depend_on_the_image_fails_without_a_tolerance_too() -> None:
    text, short = said(zoo.ordinary("vit", "shifted"))
    assert "but the output does not depend on the image" in text
    assert "relative" not in text
    assert short == "shows nothing"
