"""`sesn check`: known answers, files, and what it says to odd input."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from check_sample import Check, runner, said
from torch import Tensor, nn

from sesn import Meter, ScaleGrid, assert_equivariant, diagnose, equivariance_error
from sesn.tools.arguments import parse_crop, parse_downscales, parse_grid, parse_input
from sesn.tools.check import Checked, measure_batches
from sesn.tools.images import image_set
from sesn.tools.picture import view
from sesn.tools.target import load_target

TRIPLE = ScaleGrid.geometric(1.5, 2.0, 3)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    return runner(tmp_path, monkeypatch)


# --- known answers


def test_layers_that_do_not_say_how_far_they_look_are_named(check: Check, tmp_path: Path) -> None:
    result = check("shifted", "--json", "out.json")
    assert "how far these layers look is not known and was measured: roll in Odd" in said(result)
    assert "crop, pixels 4, measured" in said(result)  # a pixel, half of it when the image is halved, and three
    [found] = json.loads((tmp_path / "out.json").read_text())["results"]
    assert found["measured"] == ["roll in Odd"]
    assert "measured:" not in said(check("shifted", "--crop", "4")) + said(check("cnn"))


def test_the_identity_is_at_the_floor(check: Check, tmp_path: Path) -> None:
    result = check("identity", "--json", "out.json", "--tolerance", "1e-20", downscale="1.41,2,0.7")
    assert result.exit_code == 0, result.output
    assert result.output.count("at the floor") >= 6
    for found in json.loads((tmp_path / "out.json").read_text())["results"]:
        assert max(found["delta"][0]) < 1e-24


def test_an_ordinary_convolution_fails_on_photographs_and_the_cause_is_named(check: Check) -> None:
    result = check("cnn", "--tolerance", "1e-2")
    assert result.exit_code == 1
    assert "ABOVE the tolerance 0.01" in said(result)
    assert "ordinary convolution" in said(result)
    assert "Replace them by ScaleLift" in said(result)


def test_a_wide_lift_passes_on_photographs(check: Check) -> None:
    result = check("lift", "--tolerance", "1e-4", downscale="2,4", images="embedded")
    assert result.exit_code == 0, result.output
    assert "photographs, grey; 3 used, 64x64" in said(result)
    assert "in eval mode" in said(result)


def test_without_a_tolerance_there_is_nothing_to_fail(check: Check) -> None:
    assert check("cnn").exit_code == 0


def test_no_channel_left_to_compare_is_no_pass(check: Check) -> None:
    result = check("spoilt", "--tolerance", "10")
    assert result.exit_code == 1
    assert "no scale channel is left to compare" in said(result)
    assert "too few scales" in said(result)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("constant_map", "the output is constant over space"),
        ("constant_scores", "the output does not depend on the image (unrelated images differ by 0)"),
        ("hardly", "the output does not depend on the image"),
        ("mean_scores", "the output is the same for unrelated images of one size, mean and spectrum"),
        ("Contrast", "the output is the same for unrelated images of one size, mean and spectrum"),
    ],
)
def test_an_output_that_says_nothing_of_the_image_is_no_pass(check: Check, name: str, why: str) -> None:
    result = check(name, "--tolerance", "1e-2")
    assert result.exit_code == 1
    assert f"but {why}" in said(result)
    assert "it shows nothing" in said(result)
    images, _ = image_set("embedded", 1, 64, 64, 3)
    with pytest.raises(AssertionError, match="it shows nothing"):
        assert_equivariant(load_target(f"networks.py:{name}").build(0), images, 1 / 2, tolerance=1e-2)


def test_copies_of_one_image_are_held_against_another(check: Check) -> None:
    check("identity")
    images, _ = image_set("embedded", 1, 64, 64, 1)
    error = assert_equivariant(load_target("networks.py:lift").build(0), images.expand(3, -1, -1, -1), 1 / 2)
    assert error.ceiling is not None
    assert error.ceiling.min() > 0.5


def test_a_zero_output_is_called_so(check: Check) -> None:
    result = check("zero")
    assert result.exit_code == 1
    assert "the output is zero: there is nothing to compare" in said(result)


def test_chance_in_the_forward_pass_is_refused(check: Check) -> None:
    refused(check("noisy"), "depends on state or chance")
    assert "chance" not in said(check("cnn"))


def test_a_norm_over_channels_alone_is_not_blamed(check: Check) -> None:
    assert "statistics of the input" not in said(check("Channels"))


def test_a_factor_between_two_scales_is_said_to_be(check: Check) -> None:
    assert "between two scales of the grid" in said(check("lift", downscale="1.7"))


def test_weight_draws_stop_and_say_why(check: Check, tmp_path: Path) -> None:
    result = check("lift", "--draws", "5", "--json", "out.json", count="2", images="1/f")
    assert result.exit_code == 0, result.output
    assert re.search(r"narrower than 0.1, after \d weight draws|the cap of 5 weight draws was reached", said(result))
    found = json.loads((tmp_path / "out.json").read_text())["results"][0]
    assert 4 <= len(found["delta"]) <= 5
    assert found["delta"][0] != found["delta"][1]


# --- how to measure

TOLD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a crop": {"crop": 3},
    "no crop": {"crop": 0, "kind": "field"},
    "the inside": {"crop": 0, "ends": "inside"},
    "circular": {"ends": "circular", "resampler": "bicubic", "crop": 9},
}


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
def test_options_reach_the_measurement_and_the_diagnosis(check: Check, tmp_path: Path, told: dict[str, Any]) -> None:
    words = {key: str(value) for key, value in told.items()}
    result = check("reversed_scales", "--json", "out.json", grid="1.5,3,6", **words)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out.json").read_text())
    module, (images, _), grid = (
        load_target("networks.py:reversed_scales").build(0),
        image_set("1/f", 1, 64, 64, 3),
        TRIPLE,
    )
    error = equivariance_error(module, images, 1 / 2, grid=grid, **told)
    assert document["results"][0]["delta"] == [error.valid.tolist()]
    assert document["results"][0]["floor"] == [error.floor.tolist()]
    assert document["results"][0]["crop"] == error.crop
    moving = {key: told[key] for key in ("ends", "resampler") if key in told}
    findings = diagnose(module, images, error, grid=grid, **moving)
    assert findings[0].cause == "wrong output representation"
    spoken = [str(finding).replace("`grid=`", "--grid") for finding in findings]
    assert document["diagnosis"] == [f"{finding} (downscale 2)" for finding in spoken]
    assert {key: document["settings"][key] for key in words} == words
    assert document["settings"]["grid"] == "1.5,3,6"


def test_a_given_grid_is_as_good_as_the_modules_own(check: Check, tmp_path: Path) -> None:
    refused(check("without_grid"), "has a scale axis but the module has no `.grid`; give --grid")
    assert check("without_grid", "--json", "given.json", grid="1.5,3,6", crop="8").exit_code == 0
    assert check("lift", "--json", "own.json", crop="8").exit_code == 0
    given, own = (json.loads((tmp_path / f"{name}.json").read_text())["results"] for name in ("given", "own"))
    assert given == own


def test_what_differs_from_the_default_is_said(check: Check) -> None:
    assert "64x64; resampler lanczos3; in eval mode" in said(check("lift"))
    result = check("lift", kind="field", crop="8", ends="inside", grid="1.5,3,6")
    assert "64x64; resampler lanczos3; kind field; crop 8; ends inside; grid 1.5, 3, 6; in eval mode" in said(result)


@pytest.mark.parametrize("ends", ["auto", "zeros", "inside", "circular"])
@pytest.mark.parametrize("crop", [0, 5])
def test_the_picture_shows_what_was_measured(ends: Any, crop: int) -> None:
    module, (images, _) = nn.Conv2d(1, 1, 7, padding=3, bias=False).eval(), image_set("1/f", 1, 32, 32, 3)
    nn.init.ones_(module.weight)
    meter = Meter(ends=ends, crop=crop)
    shown = view(module, images, Checked((*measure_batches(module, images, [1 / 2], meter),)))
    inside = slice(crop, 16 - crop), slice(crop, 16 - crop)
    difference = (shown.moved - shown.direct)[inside].square().sum()
    assert float(difference / shown.moved[inside].square().sum()) == pytest.approx(shown.delta, rel=1e-6)


def test_batches_are_joined_whole() -> None:
    images, _ = image_set("1/f", 1, 32, 32, 10)
    [error] = measure_batches(nn.Conv2d(1, 1, 7, padding=3).eval(), images, [1 / 2])
    tensors = {field.name: found for field in fields(error) if isinstance(found := getattr(error, field.name), Tensor)}
    assert {"valid", "uncropped", "by_scale"} <= tensors.keys()
    assert {name: found.shape[-1] for name, found in tensors.items()} == dict.fromkeys(tensors, 10)


# --- files


def test_the_json_holds_raw_values_and_provenance(check: Check, tmp_path: Path) -> None:
    result = check("invariant", "--json", "new/out.json", "--picture", "new/out.png", downscale="2,4", count="10")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["out.json", "out.png", "out.svg"]
    document = json.loads((tmp_path / "new" / "out.json").read_text())
    assert {"format", "settings", "images", "machine", "torch", "threads", "sesn", "started"} <= document.keys()
    assert document["settings"]["target"] == "networks.py:invariant"
    two, four = document["results"]
    assert (two["downscale"], four["downscale"]) == (2.0, 4.0)
    for name in ("delta", "floor", "ceiling", "delta_all", "energy"):
        assert len(two[name][0]) == 10
    assert two["delta_centred"] == [[None] * 10]
    assert two["kind"] == "invariant"


@pytest.mark.parametrize("name", ["lift", "cnn", "invariant"])
def test_the_picture_drawn_twice_is_the_same_to_the_byte(check: Check, tmp_path: Path, name: str) -> None:
    for picture in ("one.png", "other.svg"):
        assert check(name, "--picture", picture, downscale="2,1.5").exit_code == 0
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"other.{kind}").read_bytes()


def test_nothing_is_written_when_the_module_fails(check: Check, tmp_path: Path) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    assert check("nan", "--json", "out.json", "--picture", "out.png").exit_code == 2
    assert {path.name for path in tmp_path.iterdir()} - before <= {"__pycache__"}


@pytest.mark.parametrize(
    ("out", "picture"),
    [("out.png", "out.png"), ("out.svg", "out.png"), ("out.png", "out.svg"), ("new/../out.svg", "./out.svg")],
)
def test_json_and_picture_must_be_different_files(check: Check, tmp_path: Path, out: str, picture: str) -> None:
    before = {path.name for path in tmp_path.iterdir()}
    result = check("identity", "--json", out, "--picture", picture)
    refused(result, f"--json (='{out}') must be another file than those of --picture (='{Path(picture)}'), which are")
    assert f"for example {Path(out).with_suffix('.json')}" in said(result)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_json_and_picture_in_different_folders_may_share_a_name(check: Check, tmp_path: Path) -> None:
    assert check("identity", "--json", "new/out.png", "--picture", "out.png").exit_code == 0
    assert json.loads((tmp_path / "new" / "out.png").read_text())["passes"]
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_through_a_link_is_the_same_folder(check: Check, tmp_path: Path) -> None:
    (tmp_path / "here").symlink_to(tmp_path, target_is_directory=True)
    refused(check("identity", "--json", "here/out.png", "--picture", "out.png"), "--json (='here/out.png') must be")


def test_quiet_prints_nothing(check: Check) -> None:
    result = check("cnn", "--tolerance", "1e-2", "--quiet")
    assert (result.exit_code, result.output) == (1, "")


# --- odd input

MODULES = {
    "nan": "the module returned NaN or infinity",
    "several": "the module must return one tensor, got tuple",
    "grows": "its spatial size does not follow the image's",
    "lost_key": "the module rejected images of shape (3, 1, 64, 64): KeyError: 'weights'",
    "raises": "`networks.py:raises`: the factory failed: KeyError: 'weights.pt' (networks.py, line ",
    "leaves": "the factory failed: SystemExit: 3",
    "returns_none": "the factory returned an object of type NoneType; it must return a torch.nn.Module",
    "number": "`number` is of type int; name a torch.nn.Module or a function that returns one",
    "nothing": "networks.py has no name `nothing`",
    "networks.py": "must be FILE.py:NAME, package.module:NAME or timm:NAME and the like",
    "networks.py:": "must be FILE.py:NAME, package.module:NAME or timm:NAME and the like",
    "nowhere.py:f": "there is no file nowhere.py",
    "broken.py:f": "broken.py failed: SyntaxError: '(' was never closed (broken.py, line 2)",
}


@pytest.mark.parametrize(("name", "words"), MODULES.items(), ids=MODULES)
def test_a_bad_target_is_bad_usage(check: Check, name: str, words: str) -> None:
    refused(check(name), words)


OPTIONS = {
    "input": ("3x96", "--input (='3x96') must be CHANNELSxHEIGHTxWIDTH"),
    "input of nothing": ("0x64x64", "three whole numbers above 0"),
    "input of other channels": ("3x64x64", "the module rejected images of shape (3, 3, 64, 64)"),
    "input too small": (
        "1x4x4",
        "--downscale (=2) must be small enough to leave 3 pixels of 4; it leaves 2; use larger images or a smaller",
    ),
    "downscale": ("0", "--downscale (='0') must be numbers above 0"),
    "downscale below 0": ("2,-1", "--downscale (='2,-1') must be numbers above 0"),
    "downscale of 1": ("1", "--downscale (='1') must be numbers above 0 and not 1, which changes nothing"),
    "downscale in words": ("two", "--downscale (='two') must be numbers above 0"),
    "downscale of infinity": ("inf", "--downscale (='inf')"),
    "downscale that fills the memory": (
        "2,0.007",
        "--downscale (=0.007) must be at least 0.008 for images of 1x64x64, so that each becomes at most 67,108,864",
    ),
    "input that fills the memory": ("1x8192x8193", "must be at most 67,108,864 numbers an image; more would not fit"),
    "count that fills the memory": ("65537", "--count (=65537) must be at most 65,536 for images of 1x64x64; more"),
    "images": ("cats", "--images (='cats') must be one of embedded"),
    "images of no name": ("", "--images (='') must be one of embedded"),
    "images in an empty directory": ("empty", "holds no pictures"),
    "count": ("100000", "--count (=100000) must be at most"),
    "count of none": ("0", "--count"),
    "resampler": ("nearest", "--resampler (='nearest') must be one of 'lanczos3'"),
    "kind": ("vector", "--kind (='vector') must be one of 'auto', 'field', 'map', 'scale', 'invariant'"),
    "kind of another rank": (
        "map",
        "--kind (='map') must be the kind of a 5-dimensional output (1, 2, 3, 64, 64); use",
    ),
    "crop": ("some", "--crop (='some') must be auto or a whole number of pixels, at least 0; for example 8"),
    "crop below 0": ("-1", "--crop (='-1') must be auto or a whole number of pixels, at least 0"),
    "crop of half a pixel": ("0.5", "--crop (='0.5') must be auto or a whole number of pixels, at least 0"),
    "crop of everything": ("16", "--crop (=16) must be less than half of the output's side (32); use at most 15"),
    "ends": ("mirror", "--ends (='mirror') must be one of 'auto', 'zeros', 'inside', 'circular'"),
    "grid": ("small,large", "--grid (='small,large') must be increasing widths sigma in pixels, above 0"),
    "grid of nothing": ("", "--grid (='') must be increasing widths sigma in pixels, above 0"),
    "grid that falls": ("6,3,1.5", "--grid (='6,3,1.5') must be increasing widths sigma in pixels, above 0"),
    "grid of zero": ("0,1,2", "--grid (='0,1,2') must be increasing widths sigma in pixels, above 0"),
    "grid of infinity": ("1,2,inf", "--grid (='1,2,inf') must be increasing widths sigma in pixels, above 0"),
    "grid too short": ("1,2", "--grid (=ScaleGrid([1, 2])) must be as long as the output's scale axis (3); give one"),
    "tolerance": ("-1", "--tolerance (=-1.0) must be at least 0"),
    "tolerance that is no number": ("nan", "--tolerance (=nan) must be at least 0"),
    "picture": ("out.bmp", "--picture (='out.bmp') must be a name ending in .png or .svg"),
    "json": (".", "it is a directory"),
    "data": ("nowhere", "the folder of data sets nowhere does not exist"),
}


@pytest.mark.parametrize(("option", "case"), [(key.split()[0], case) for key, case in OPTIONS.items()], ids=OPTIONS)
def test_a_bad_option_is_bad_usage(check: Check, tmp_path: Path, option: str, case: tuple[str, str]) -> None:
    (tmp_path / "empty").mkdir()
    value, words = case
    wanted = {"json": "out.json", **({"images": "stl10"} if option == "data" else {})}
    refused(check("lift", **{**wanted, option: value}), words)
    assert not (tmp_path / "out.json").exists()


UNUSED = {
    "cnn": ({"grid": "1,2"}, "--grid (=ScaleGrid([1, 2])) must be left out for this output, which is read as 'map'"),
    "invariant": ({"crop": "8"}, "--crop (=8) must be 'auto' for this output, which is read as 'invariant' and has no"),
}


@pytest.mark.parametrize("name", UNUSED)
def test_what_the_output_has_no_use_for_is_bad_usage(check: Check, name: str) -> None:
    wanted, words = UNUSED[name]
    refused(check(name, **wanted), words)


def refused(result: Any, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert words in said(result)
    assert "Traceback" not in result.output


def test_shapes_and_downscales_are_read_in_several_spellings() -> None:
    assert parse_input("3x96X96") == (3, 96, 96)
    assert parse_input((1, 28, 28)) == (1, 28, 28)
    assert parse_downscales(" 1.41, 2,2") == [1.41, 2.0]
    assert parse_downscales(2) == [2.0]
    assert (parse_crop("auto"), parse_crop(" 8 "), parse_crop("0")) == ("auto", 8, 0)
    assert (parse_grid(None), parse_grid("1.5, 3,6")) == (None, TRIPLE)
