"""What `sesn check` says of outputs that show nothing, of lenient images, and of what it cannot do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from check_sample import Check, runner, said
from PIL import Image
from typer.testing import CliRunner

from sesn.tools.app import app


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    return runner(tmp_path, monkeypatch)


def test_a_mean_of_images_without_one_is_said_to_show_nothing(check: Check) -> None:
    """It is rounding: two roundings are as different as unrelated images, which is not to say no better than chance."""
    for name in ("invariant_mean", "torch.nn:AdaptiveAvgPool2d"):
        result = check(name, *(["--with", "output_size=1"] if ":" in name else []))
        assert result.exit_code == 1
        assert "the output is zero but for rounding: it shows nothing" in said(result)
        assert "chance" not in said(result)


@pytest.mark.parametrize(("images", "lenient"), [("embedded", True), ("1/f2", True), ("1/f", False), ("white", False)])
def test_smooth_images_are_said_to_be_a_lenient_test(check: Check, images: str, lenient: bool) -> None:
    assert ("These images are a lenient test" in said(check("invariant", images=images))) == lenient


@pytest.mark.parametrize("command", ["profile", "causes", "metrics"])
@pytest.mark.parametrize(("images", "lenient"), [("embedded", True), ("1/f", False)])
def test_every_command_says_so(check: Check, command: str, images: str, lenient: bool) -> None:
    check("cnn")
    words = ["--input", "1x32x32", "--downscale", "2", "--count", "2", "--images", images]
    result = CliRunner().invoke(app, [command, "networks.py:cnn", *words])
    assert result.exit_code == 0, result.output
    assert ("These images are a lenient test" in said(result)) == lenient


def test_folders_that_are_missing_are_made(check: Check, tmp_path: Path) -> None:
    result = check("cnn", "--json", "a/b/out.json", "--picture", "c/d/out.png")
    assert result.exit_code == 0, result.output
    assert all((tmp_path / name).is_file() for name in ("a/b/out.json", "c/d/out.png", "c/d/out.svg"))


def test_the_downscale_that_is_proposed_is_taken(check: Check) -> None:
    result = check("cnn", downscale="1000")
    assert result.exit_code == 2
    assert "--downscale (='1000') must be at most 21.3333, so that 3 pixels are left" in said(result)
    [way_out] = re.findall(r"--downscale (\S+)", said(result).partition("run sesn")[2])
    assert check("cnn", downscale=way_out).exit_code == 0


def test_a_file_that_cannot_be_written_is_refused_before_measuring(check: Check) -> None:
    def measure(*_: object, **__: object) -> None:
        raise AssertionError("measured all the same")

    for name in ("/proc/out.json", f"{'n' * 250}.json"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sesn.tools.check.check", measure)
            assert f"error: cannot write {name}: " in said(check("cnn", "--json", name))


@pytest.mark.parametrize(("most", "taken"), [(1e12, 16), (2e6, 8), (1.0, 4)])
def test_a_costly_network_is_measured_on_fewer_images(
    check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: float, taken: int
) -> None:
    """Operations are counted: the convolution has 2 x 2 x 49 x 32 x 32 for an image, 3.2 million for sixteen."""
    check("cnn")
    monkeypatch.setattr("sesn.tools.sizes.MOST_OPERATIONS", most)
    words = ["--input", "1x32x32", "--downscale", "2", "--json", "out.json"]
    result = CliRunner().invoke(app, ["check", "networks.py:cnn", *words])
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "out.json").read_text())["results"][0]["delta"][0]) == taken
    assert (f"--count {taken} chosen for the network's" in said(result)) == (taken < 16)
    assert "ordinary convolution" in said(result)


def test_a_folder_with_fewer_pictures_than_a_costly_network_would_take_is_taken_whole(
    check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check("cnn")
    (tmp_path / "pictures").mkdir()
    for place in range(3):
        Image.effect_noise((40, 40), 50 + place).save(tmp_path / "pictures" / f"{place}.png")
    monkeypatch.setattr("sesn.tools.sizes.MOST_OPERATIONS", 1.0)
    words = ["--input", "1x32x32", "--downscale", "2", "--images", "pictures"]
    result = CliRunner().invoke(app, ["check", "networks.py:cnn", *words])
    assert result.exit_code == 0, result.output
    assert "directory pictures, grey; 3 used" in said(result)
