"""The tuner: its proposal beats the published kernels at no more cost, and its numbers are those of the one Delta."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from sesn import ScaleGrid, ScaleLift, SteerableBasis, basis_a, basis_b, equivariance_error
from sesn.meter.compare import middle
from sesn.tools import tune as tuning_module
from sesn.tools.app import app
from sesn.tools.drawing import save
from sesn.tools.images import image_set
from sesn.tools.tradeoff import draw_tuning, tuning_table
from sesn.tools.tune import (
    ORDERS,
    Candidate,
    Orders,
    Tuning,
    candidate,
    layer_macs,
    measured,
    propose,
    published_stl10,
    tune,
)


def grey(count: int, seed: int = 0) -> Tensor:
    return image_set("embedded", 1, 96, 96, count, seed)[0]


@pytest.fixture(scope="module")
def tuning() -> Tuning:
    started = time.process_time()
    found = tune(grey(2), 3, 2.0)
    assert time.process_time() - started < 60
    return found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning_module, "SMALLEST_SIGMAS", (1.5,))
    monkeypatch.setattr(tuning_module, "KERNEL_SIZES", (7, None))


def basis_of(each: Candidate) -> SteerableBasis:
    return each.orders.basis(each.grid, each.kernel_size)


# --- the proposal


def test_proposal_is_50_times_below_the_published_kernels_at_no_more_cost(tuning: Tuning) -> None:
    assert tuning.gain >= 50
    assert tuning.proposal.separable_macs <= tuning.published.separable_macs == tuning.macs
    assert tuning.proposal.functions == 9  # not by seeing less


def test_the_gain_holds_with_random_weights_on_other_images(tuning: Tuning) -> None:
    """What was tuned on the basis alone, measured as any layer is."""
    deltas = []
    for each in (tuning.published, tuning.proposal):
        torch.manual_seed(3)
        lift = ScaleLift(1, 8, basis_of(each), dtype=torch.float64, bias=False).eval()
        deltas.append(float(equivariance_error(lift, grey(4, seed=9), 1 / each.grid.ratio).valid.median()))
    assert deltas[0] > 50 * deltas[1]


def test_delta_is_that_of_the_layer_with_one_channel_per_function(tuning: Tuning) -> None:
    for each in (tuning.published, tuning.proposal, tuning.candidates[5], tuning.candidates[-1]):
        basis = basis_of(each)
        lift = ScaleLift(1, len(basis), basis, dtype=torch.float64, bias=False).eval()
        with torch.no_grad():
            lift.weight.copy_(torch.eye(len(basis))[:, None, :])
        error = equivariance_error(lift, grey(2), 1 / each.grid.ratio)
        assert each.delta == pytest.approx(middle(error.valid), rel=1e-6)
        assert each.floor == pytest.approx(middle(error.floor), rel=1e-9)


def test_every_candidate_fits_and_was_measured(tuning: Tuning) -> None:
    assert len(tuning.candidates) > 100
    for each in tuning.candidates:
        assert math.isfinite(each.delta)
        assert max(each.boxes) <= tuning.side
        assert each.grid.largest / each.grid.smallest == pytest.approx(2)
    assert {each.orders.type for each in tuning.candidates} == {"A", "B"}
    assert {each.kernel_size is None for each in tuning.candidates} == {True, False}


def test_front_falls_and_nothing_beats_it(tuning: Tuning) -> None:
    front = tuning.front(lambda c: c.dense_macs)
    assert [c.delta for c in front] == sorted((c.delta for c in front), reverse=True)
    assert [c.dense_macs for c in front] == sorted(c.dense_macs for c in front)
    for each in tuning.candidates:
        assert not any(each.delta < c.delta and each.dense_macs < c.dense_macs for c in front)


def test_among_those_that_cannot_be_told_apart_the_one_that_sees_most() -> None:
    grid, coarse = ScaleGrid.geometric(1.2, 1.4, 3), ScaleGrid.geometric(2.0, 1.4, 3)

    def made(functions: int, where: ScaleGrid, macs: int, delta: float) -> Candidate:
        return Candidate(ORDERS[0], where, None, functions, (11, 15, 21), macs, 10 * macs, delta, 1e-6)

    least = made(3, coarse, 5, 1e-7)
    close, coarser = made(9, grid, 10, 2.9e-6), made(9, coarse, 10, 1e-6)
    costly, clearly_worse = made(10, grid, 11, 1e-7), made(9, ScaleGrid.geometric(0.9, 1.4, 3), 10, 1e-3)
    assert propose([least, close, coarser, costly, clearly_worse], 10) == close


# --- the cost


def test_macs_of_the_published_kernels() -> None:
    """By hand: three scales, nine functions, three column profiles, boxes 3, 5, 7."""
    published = published_stl10(48, 128)
    assert published.boxes == (3, 5, 7)
    assert published.separable_macs == 3 * (128 * 128 * 9 * 48 * 48 + 128 * 48**3 * (3 + 9))
    assert published.dense_macs == 128 * 128 * (9 + 25 + 49) * (48 * 48 + 9)


def test_a_wide_window_is_free_on_the_separable_path() -> None:
    grid = ScaleGrid.geometric(1.5, 1.41, 3)
    narrow, wide = (layer_macs(basis, 48, 16) for basis in (basis_a(grid, 7, 3), basis_a(grid, "wide", 3)))
    assert narrow[0] == wide[0]
    assert narrow[1] < wide[1]


@pytest.mark.parametrize("size", [15, None])
@pytest.mark.parametrize("orders", ORDERS, ids=lambda o: o.label)
def test_the_printed_call_makes_the_basis(orders: Orders, size: int | None) -> None:
    each = candidate(orders, ScaleGrid.geometric(1.75, 1.5, 3), size, 48, 8)
    names = {"ScaleGrid": ScaleGrid, "basis_a": basis_a, "basis_b": basis_b}
    made = eval(each.code, names)
    assert made.pairs == basis_of(each).pairs
    assert made.boxes == each.boxes


def test_a_group_measured_together_or_alone_is_the_same() -> None:
    grid = ScaleGrid.geometric(1.5, 1.5, 2)
    group = [candidate(orders, grid, 11, 48, 8) for orders in ORDERS]
    together = measured(group, grey(1))
    assert [each.delta for each in together] == pytest.approx([measured([each], grey(1))[0].delta for each in group])


# --- bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scales": 1}, "`scales` .=1. must be at least 2"),
        ({"span": 1.0}, "`range` .=1.0. must be above 1"),
        ({"span": math.inf}, "`range` .=inf. must be above 1"),
        ({"macs": 5}, "`macs` .=5. must be at least [0-9]+, the cheapest"),
        ({"side": 3}, "`side` .=3. must be at least 8"),
        ({"channels": 0}, "`channels` .=0. must be at least 1"),
        ({"span": 100.0}, "`range` .=100.0. must be small enough"),
    ],
)
def test_bad_requests_are_refused(options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tune(grey(1), **{"scales": 3, "span": 2.0, **options})


def test_colour_images_are_refused() -> None:
    with pytest.raises(ValueError, match="grey images"):
        tune(torch.zeros(1, 3, 96, 96), 3, 2.0)


# --- where people meet it


def test_picture_is_the_same_twice(tuning: Tuning, tmp_path: Path) -> None:
    pairs = [save(draw_tuning(tuning), tmp_path / name, "tuning") for name in ("a", "b")]
    for one, other in zip(*pairs, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_table_shows_proposal_and_published(tuning: Tuning) -> None:
    table = tuning_table(tuning, "photographs", lines=4)
    assert table.row_count == 6
    assert list(table.columns[0].cells)[:2] == ["proposal", "published"]


@pytest.mark.usefixtures("few")
def test_command_writes_json_and_picture(tmp_path: Path) -> None:
    out, picture = tmp_path / "new" / "tuned.json", tmp_path / "tuned.png"
    words = ["tune", "--count", "1", "--macs", "2e9", "--json", str(out), "--picture", str(picture)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "proposal" in result.output
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["gain"] > 50
    assert found["macs"] == 2_000_000_000
    assert found["proposal"]["code"].startswith("basis_")
    assert found["images"].startswith("photographs")
    assert picture.exists()
    assert picture.with_suffix(".svg").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scales", "1"], "--scales"),
        (["--macs", "nan"], "--macs"),
        (["--macs", "10"], "the cheapest candidate's cost"),
        (["--images", "nowhere"], "--images"),
        (["--picture", "x.pdf"], "--picture"),
        (["--picture", "x.png", "--json", "x.svg"], "--json (='x.svg') must be another file than those of --picture"),
        (["--scales", "many"], "scales"),
    ],
)
def test_command_says_what_is_wrong_with_status_2(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["tune", *words])
    assert result.exit_code == 2
    assert said in result.output


NETWORK = """
from torch import nn
from sesn import ScaleGrid, ScaleLift, basis_a

def build():
    return nn.Sequential(ScaleLift(3, 2, basis_a(ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)), nn.ReLU())
"""


@pytest.mark.parametrize("command", ["profile", "causes"])
def test_profile_and_causes_commands(command: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    out, picture = tmp_path / "out.json", tmp_path / "out.svg"
    drawn = ["--picture", str(picture)] if command == "causes" else []
    target = f"{tmp_path / 'net.py'}:build"
    result = CliRunner().invoke(app, [command, target, "--count", "1", "--json", str(out), *drawn])
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text(encoding="utf-8"))
    if command == "causes":
        assert found["largest"] == "kernel window"
        assert picture.exists()
        assert picture.with_suffix(".png").exists()
    else:
        assert [row["name"] for row in found["rows"]] == ["0", "1", "(output)"]


@pytest.mark.parametrize("command", ["profile", "causes"])
def test_profile_and_causes_say_what_is_wrong(command: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    target = f"{tmp_path / 'net.py'}:build"
    for words, said in (
        ([f"{target}s"], "has no name"),
        ([target, "--downscale", "1.4,2"], "one number"),
        ([target, "--resampler", "nearest"], "--resampler"),
        ([target, "--input", "1x96x96"], "rejected images"),
    ):
        result = CliRunner().invoke(app, [command, *words])
        assert result.exit_code == 2, result.output
        assert said in result.output


def test_causes_refuses_one_file_for_json_and_picture(tmp_path: Path) -> None:
    both = str(tmp_path / "out.png")
    result = CliRunner().invoke(app, ["causes", "net.py:build", "--json", both, "--picture", both])
    assert result.exit_code == 2
    assert f"--json (={both!r}) must be another file than those of --picture (={both!r})" in result.output
    assert not list(tmp_path.iterdir())
