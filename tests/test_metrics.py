"""`metrics`: every definition on one network, each as it is defined, and fooled by what it says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from check_sample import NETWORKS
from meter_sample import Does
from torch import nn
from typer.testing import CliRunner

from sesn import Meter, ScaleProjection, equivariance_error, lie_error
from sesn.strategies import random_images
from sesn.tools.app import app
from sesn.tools.metrics import DEFINITIONS, metrics, rows, written

IMAGES = random_images(0, (4, 1, 48, 48))


def cnn(bias: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 4, 7, padding=3).double()
    layer.bias.data += bias  # type: ignore[union-attr]
    return layer.eval()


def measured(module: nn.Module, images: torch.Tensor = IMAGES) -> dict[str, float]:
    return {one.definition.name: one.value for one in metrics(module, images, 0.5)}


def test_each_value_is_that_of_its_definition():
    found, error = measured(cnn()), equivariance_error(cnn(), IMAGES, 0.5)
    assert found["Δ"] == error.valid.quantile(0.5)
    assert found["relative Δ"] == error.relative.quantile(0.5)
    assert found["signal to error"] == pytest.approx(-10 * math.log10(found["Δ"]), abs=0.5)
    assert found["PSNR"] == error.psnr().quantile(0.5)
    assert found["largest difference"] == error.largest.quantile(0.5)
    assert found["Lie error"] == lie_error(cnn(), IMAGES).value.quantile(0.5)
    assert found["relative Δ, shift by 1 pixel"] < 1e-25
    assert found["relative Δ, rotation by 90 degrees"] > 0.1
    assert 0 < found["consistency"] < 100
    assert 0 <= found["loss due to asymmetry"] < 100
    assert all(math.isfinite(value) for value in found.values())


def test_what_fools_them_fools_them():
    """As each says: a bias, smaller weights, a nearly dead channel, and one answer for everything."""
    plain, raised = measured(cnn()), measured(cnn(bias=10.0))
    for fooled in ("Δ", "Lie error"):
        assert raised[fooled] < plain[fooled] / 10
    assert raised["signal to error"] > plain["signal to error"] + 10
    assert raised["relative Δ"] == pytest.approx(plain["relative Δ"], rel=0.2)
    assert raised["Δ without means"] == pytest.approx(plain["Δ without means"], rel=1e-6)
    small = cnn()
    small.weight.data /= 1000  # type: ignore[operator,union-attr]
    small.bias.data /= 1000  # type: ignore[operator,union-attr]
    assert measured(small)["largest difference"] < plain["largest difference"] / 100
    alike = Does(lambda x, layer: torch.cat([layer(x), layer(x)[:, :1] * 0 + 100], 1), cnn())
    assert measured(alike)["consistency"] == 100


def test_what_has_no_value_says_why():
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3)).double().eval()
    found = {one.definition.name: one for one in metrics(network, IMAGES + 1, 0.5)}
    assert math.isnan(found["PSNR"].value)
    assert "PSNR is defined for images" in found["PSNR"].reason
    assert "no spatial mean" in found["Δ without means"].reason
    assert written(found["PSNR"]) == "–"
    assert found["Lie error"].reason == ""


@pytest.mark.parametrize(("bias", "words"), [(0.0, "the output is zero"), (1.0, "the output is constant over space")])
def test_an_output_that_shows_nothing_has_dashes_with_the_reason(bias: float, words: str) -> None:
    network = cnn()
    nn.init.zeros_(network.weight)  # type: ignore[arg-type]
    nn.init.constant_(network.bias, bias)  # type: ignore[arg-type]
    found = {one.definition.name: one for one in metrics(network, IMAGES, 0.5)}
    assert words in found["relative Δ"].reason
    for one in found.values():
        assert (written(one) == "–") == math.isnan(one.value) == bool(one.reason)


def test_without_an_error_the_decibels_are_infinite() -> None:
    found = {one.definition.name: written(one) for one in metrics(nn.Identity(), IMAGES, 0.5)}
    assert found["signal to error"] == found["PSNR"] == "∞ dB"


def test_every_definition_is_told_in_whole_sentences():
    for definition, _ in DEFINITIONS:
        assert definition.better in ("less", "more")
        for sentence in (definition.sees, definition.fooled):
            assert sentence[0].isupper()
            assert sentence.endswith(".")
            assert sentence.count(". ") == 0
    names = [definition.name for definition, _ in DEFINITIONS]
    assert len({*names}) == len(names) == len(metrics(cnn(), IMAGES, 0.5, Meter()))


def test_the_command_prints_and_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "networks.py").write_text(NETWORKS, encoding="utf-8")
    (tmp_path / "neighbour.py").write_text("CHANNELS = 2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = "metrics networks.py:{} --input 1x48x48 --downscale 2 --count 2 --json out.json"
    ended = CliRunner().invoke(app, words.format("cnn").split())
    assert ended.exit_code == 0, ended.output
    written_down = json.loads((tmp_path / "out.json").read_text())
    assert [one["name"] for one in written_down["metrics"]] == [definition.name for definition, _ in DEFINITIONS]
    for one in written_down["metrics"]:
        assert one["name"] in ended.output
        assert one["value"] is not None, one
    ended = CliRunner().invoke(app, words.format("lift").split())
    assert ended.exit_code == 0, ended.output
    values = {one["name"]: one for one in json.loads((tmp_path / "out.json").read_text())["metrics"]}
    assert values["Lie error"]["value"] is None
    assert "ScaleProjection()" in values["Lie error"]["reason"]


def test_rows_are_plain_data():
    found = [*rows(metrics(nn.Sequential(cnn(), Does(lambda x: x[:, :, None]), ScaleProjection()).eval(), IMAGES, 0.5))]
    assert json.loads(json.dumps(found))[0].keys() >= {"name", "value", "sees", "fooled", "reason"}
