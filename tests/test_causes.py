"""`causes`: the planted cause is named, the steps telescope, and the surgery changes no more than it says."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor, nn
from typer.testing import CliRunner
from zoo import SIDE, ordinary

from sesn import (
    GlobalPool,
    Meter,
    ScaleConv,
    ScaleConv1x1,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    SpatialMaxPool,
    SteerableBasis,
    basis_a,
    rescale,
)
from sesn.tools.app import app
from sesn.tools.causes import CAUSES, causes
from sesn.tools.consoles import progress_bar
from sesn.tools.drawing import save
from sesn.tools.images import random_images
from sesn.tools.photographs import photographs
from sesn.tools.split import MOST_RISE, NOT_PRESENT, REMAINDER, CauseSplit, CauseStep, causes_table, in_words
from sesn.tools.surgery import bandlimited, linearised, refined, unstrided, widened
from sesn.tools.waterfall import draw_causes

STEP = 96 / 68
WIDE = basis_a(ScaleGrid.geometric(1.5, STEP, 3), "wide", 2)
PUBLISHED = basis_a(ScaleGrid.geometric(0.9, STEP, 3), 7, 3)


def build(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).double().eval() if len(layers) > 1 else layers[0].double().eval()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def split(module: nn.Module, **options: object) -> CauseSplit:
    meter = Meter(**{"crop": 0, **options})  # type: ignore[arg-type]
    found = causes(module, photographs(2), 1 / STEP, meter)
    assert_telescopes(found)
    return found


def assert_telescopes(found: CauseSplit) -> None:
    assert list(dict.fromkeys(step.cause for step in found.steps)) == list(CAUSES)
    levels = [found.observed, *(step.after for step in found.steps)]
    assert [step.before for step in found.steps] == levels[:-1]
    assert levels[-1] == found.remainder
    assert all(step.before == step.after for step in found.steps if step.note)
    assert_shares(found)


def assert_shares(found: CauseSplit) -> None:
    """They are not negative and sum to 1, or there are none and a sentence says why."""
    assert (found.shares is None) == (found.step_shares is None) == bool(found.unshared)
    if found.shares is None:
        assert found.unshared in in_words(found)
        assert found.largest == ""
    else:
        assert min(found.shares.values()) >= 0
        assert sum(found.shares.values()) == pytest.approx(1)
        assert found.shares[found.largest] == max(found.shares.values())


def causes_present(found: CauseSplit) -> list[str]:
    return [step.cause for step in found.steps if not step.note]


# --- each planted cause is named


def test_published_windows_are_the_largest_cause() -> None:
    found = split(build(ScaleLift(3, 4, PUBLISHED, bias=False)))
    assert found.largest == "kernel window"
    assert found.observed > 5e-3
    assert found.remainder < 1e-5
    assert causes_present(found) == ["border", "kernel window", "kernel sampling"]


def test_resampler_is_the_largest_cause_of_a_legacy_measurement() -> None:
    found = split(build(ScaleLift(3, 4, WIDE, bias=False)), resampler="legacy")
    assert found.largest == "resampler"
    assert found.remainder < found.observed / 100


def test_periodic_network_goes_on_to_fourier_and_has_no_border() -> None:
    found = split(build(ScaleLift(3, 2, WIDE, bias=False, padding_mode="circular")), resampler="bicubic")
    assert [step.change for step in found.steps if step.cause == "resampler"] == [
        "bicubic → Lanczos",
        "→ Fourier, periodic",
    ]
    assert "border" not in causes_present(found)
    assert found.remainder < 1e-12


def test_truncation_is_the_largest_cause_of_an_interscale_network() -> None:
    found = split(build(ScaleLift(3, 2, WIDE, bias=False), ScaleConv(2, 2, WIDE, interscale=2, bias=False)))
    assert found.largest == "scale truncation"
    assert found.remainder < 1e-5


def test_truncation_is_the_largest_cause_of_a_projection() -> None:
    found = split(build(ScaleLift(3, 2, WIDE, bias=False), ScaleProjection()))
    assert found.largest == "scale truncation"
    assert found.remainder < 1e-3


def test_nonlinearity_is_the_largest_cause_with_wide_windows() -> None:
    found = split(build(ScaleLift(3, 4, WIDE, bias=False), nn.ReLU()), crop="auto")
    assert found.largest == "nonlinearity"
    assert [step.change for step in found.steps if step.cause == "nonlinearity"] == [
        "ReLU → band-limited",
        "→ identity",
    ]


def test_stride_is_the_largest_cause_of_a_pooled_network() -> None:
    layers = ScaleLift(3, 2, WIDE, bias=False), SpatialMaxPool(2), ScaleConv(2, 2, WIDE, bias=False)
    assert split(build(*layers), crop="auto").largest == "stride phase"


# --- the shares


@st.composite
def splits(draw: st.DrawFn, most: float = 1e300) -> CauseSplit:
    """Any levels at all, and names of any length."""
    numbers = st.one_of(st.just(0.0), st.floats(1e-300 if most > 1e9 else 1e-20, most))
    levels = draw(st.lists(numbers, min_size=1, max_size=9))
    names = st.one_of(st.sampled_from([*CAUSES]), st.text("abc WΔ$", min_size=1, max_size=80))
    notes = st.sampled_from(["", "", NOT_PRESENT, "could not be switched off: " + "no reason " * 20])
    parts = [CauseStep(draw(names), draw(names), *pair, draw(notes)) for pair in pairwise(levels)]
    return CauseSplit(levels[0], None, levels[-1], draw(numbers), draw(st.floats(1e-3, 1e3)), 4, tuple(parts))


@given(splits())
def test_shares_are_parts_of_a_whole_or_there_are_none(found: CauseSplit) -> None:
    assert_shares(found)


def of_levels(*levels: float) -> CauseSplit:
    steps = tuple(CauseStep(f"cause {i}", "", *pair) for i, pair in enumerate(pairwise(levels)))
    return CauseSplit(levels[0], None, levels[-1], 1e-9, 0.5, 1, steps)


def test_a_step_that_raises_delta_has_no_share_nor_one_that_takes_it_back() -> None:
    found = of_levels(1.0, 1.25, 1.0, 0.25, 0.5)
    assert found.shares == {"cause 0": 0, "cause 1": 0, "cause 2": 0.75, "cause 3": 0, REMAINDER: 0.25}
    assert found.largest == "cause 2"


def test_causes_that_hide_one_another_have_no_shares() -> None:
    assert of_levels(1.0, 1 + MOST_RISE, 0.0).shares is not None
    found = of_levels(1.0, 1.01 + MOST_RISE, 0.0)
    assert found.shares is None
    assert "no shares are given: steps raise Δ by 51% of the observed Δ in all" in in_words(found)
    assert "share" not in [column.header for column in causes_table(found).columns]


# --- what cannot be done is said


SENTENCE = "one scale, and no layer works at several, so there is no cause to switch off"
UNSPLIT = {
    "cnn": "3 ordinary convolutions see",
    "unet": "ordinary convolutions see",
    "resnet": "5 ordinary convolutions see",
    "vit": "1 ordinary convolution and 2 attention layers see",
}


@pytest.mark.parametrize("name", UNSPLIT)
def test_a_network_that_sees_one_scale_is_not_split(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[float] = []
    measure: Callable[..., Any] = Meter.measure
    monkeypatch.setattr(Meter, "measure", lambda *given: measured.append(0) or measure(*given))
    progress: list[float] = []
    found = causes(ordinary(name, "random"), random_images(0, (2, 1, SIDE, SIDE)), 0.5, on_step=progress.append)
    assert f"{UNSPLIT[name]} {SENTENCE}" in found.unsplit
    assert (len(measured), sum(progress), found.steps, found.shares) == (1, 1, (), None)
    assert found.observed == found.remainder
    assert found.relative is not None
    assert found.relative > 0.03
    assert found.unsplit in in_words(found)


def test_one_steerable_layer_is_enough_to_split() -> None:
    found = split(build(ScaleLift(3, 2, WIDE), ScaleProjection(), nn.Conv2d(2, 2, 3, padding=1)))
    assert found.steps
    assert found.uncovered == "1 ordinary convolution"


def test_an_exact_network_has_nothing_to_split() -> None:
    found = causes(nn.Identity(), photographs(2), 1 / STEP)
    assert found.observed == found.remainder == 0
    assert {step.cause: step.note for step in found.steps}["kernel window"] == NOT_PRESENT
    assert causes_table(found).row_count == len(CAUSES) + 1


def test_a_nonlinearity_called_as_a_function_is_reported() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lift = ScaleLift(3, 2, WIDE, bias=False)

        def forward(self, image: Tensor) -> Tensor:
            return F.relu(self.lift(image))

    notes = [step.note for step in split(build(Functional())).steps if step.cause == "nonlinearity"]
    assert len(notes) == 1
    assert "called as a function" in notes[0]


def test_a_basis_without_profiles_and_a_pooled_border_are_reported() -> None:
    gauss = SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2 + y**2) / 2), WIDE.grid, 7)
    module = build(ScaleLift(3, 2, gauss), ScaleProjection(), GlobalPool("mean"))
    notes = {step.cause: step.note for step in split(module).steps}
    assert "from_function" in notes["kernel window"]
    assert "from_function" in notes["kernel sampling"]
    assert "no space to crop" in notes["border"]


def test_no_channel_left_whole_is_reported() -> None:
    module = build(ScaleLift(3, 2, WIDE, bias=False), ScaleConv(2, 2, WIDE, interscale=3, bias=False))
    notes = {step.cause: step.note for step in split(module).steps}
    assert "no scale channel is left whole" in notes["scale truncation"]


def test_a_factor_beyond_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="range"):
        causes(build(ScaleLift(3, 2, WIDE)), photographs(2), 1 / 8)


def test_the_module_itself_is_left_alone() -> None:
    module = build(ScaleLift(3, 2, PUBLISHED), nn.ReLU(), ScaleConv(2, 2, PUBLISHED, stride=2), ScaleProjection())
    before = str(module), module(photographs(1))
    split(module)
    assert str(module) == before[0]
    assert torch.equal(module(photographs(1)), before[1])


# --- the surgery


def test_wider_windows_keep_the_functions_where_they_were() -> None:
    lift = build(ScaleLift(1, 9, PUBLISHED, bias=False))
    wide = widened(lift)
    assert isinstance(lift, ScaleLift)
    assert isinstance(wide, ScaleLift)
    for scale, box in enumerate(lift.basis.boxes):
        old, new = (_kernel(layer, scale) for layer in (lift, wide))
        margin = (new.shape[-1] - box) // 2
        middle = new[..., margin : margin + box, margin : margin + box]
        torch.testing.assert_close(middle, old, rtol=1e-10, atol=1e-12)
    assert min(box // 2 / sigma for box, sigma in zip(wide.basis.boxes, wide.grid, strict=True)) >= 6


def _kernel(layer: ScaleLift, scale: int) -> Tensor:
    return torch.einsum("oin,nyx->oiyx", layer.weight.detach(), layer.basis.scale_functions(scale))


def test_a_finer_grid_gives_the_same_responses() -> None:
    lift = build(ScaleLift(3, 2, WIDE, padding_mode="circular"))
    fine = refined(lift)
    assert fine is not None
    images = photographs(1)
    smooth = rescale(rescale(images, 0.5, "fourier"), 2, "fourier")
    with torch.no_grad():
        expected, got = lift(smooth), rescale(fine(rescale(smooth, 2, "fourier")), 0.5, "fourier")
    assert float((got - expected).square().sum() / expected.square().sum()) < 1e-6


def test_without_strides_every_second_pixel_is_the_same() -> None:
    wide = basis_a(ScaleGrid.geometric(1.5, STEP, 2), "wide", 2)
    layers = ScaleLift(3, 2, wide, stride=2), ScaleConv1x1(2, 2, stride=2), ScaleConv(2, 2, wide)
    module = build(*layers)
    images = rescale(rescale(photographs(1), 1 / 8, "fourier"), 8, "fourier")  # smooth enough for a stride of 4
    still = unstrided(module, images)
    assert still is not None
    with torch.no_grad():
        expected, got = module(images), still(images)[..., ::4, ::4]
    inside = (..., slice(8, -8), slice(8, -8))
    assert float((got - expected)[inside].square().sum() / expected[inside].square().sum()) < 1e-4


def test_nothing_to_change_is_none() -> None:
    plain = nn.Sequential(nn.Identity())
    assert all(
        each is None
        for each in (
            widened(plain),
            refined(plain),
            unstrided(plain, photographs(1)),
            linearised(plain),
            bandlimited(plain, "zeros"),
        )
    )


def test_shared_layers_stay_shared() -> None:
    relu = nn.ReLU()
    changed = linearised(nn.Sequential(relu, nn.Sequential(relu)))
    assert changed is not None
    assert not any(isinstance(module, nn.ReLU) for module in changed.modules())


# --- the picture


def test_waterfall_is_drawn_the_same_twice(tmp_path: Path) -> None:
    found = split(build(ScaleLift(3, 2, PUBLISHED, bias=False), nn.ReLU()), resampler="legacy")
    pairs = [save(draw_causes(found), tmp_path / name, "found") for name in ("a", "b")]
    for one, other in zip(*pairs, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert f"mostly {found.largest}" in in_words(found)


def test_waterfall_of_a_network_that_is_not_split_says_why(tmp_path: Path) -> None:
    figure = draw_causes(causes(nn.Conv2d(3, 2, 3, padding=1).eval(), photographs(1), 1 / STEP))
    assert "not split: 1 ordinary convolution sees one scale" in " ".join(str(figure.get_supxlabel()).split())


def test_waterfall_of_nothing_can_be_drawn(tmp_path: Path) -> None:
    save(draw_causes(causes(nn.Identity(), photographs(1), 1 / STEP)), tmp_path, "nothing")


@settings(max_examples=15, phases=[Phase.generate])  # to draw takes a while, and shrinking draws very often
@given(splits(most=1e3), st.text("abc Δ$_/", max_size=300))
def test_every_label_of_a_waterfall_fits(found: CauseSplit, title: str) -> None:
    figure = draw_causes(found, title)
    figure.draw_without_rendering()
    [axes] = figure.axes
    for text in [*axes.texts, *axes.get_yticklabels(), *figure.texts]:
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
        assert inside, (text, box, figure.bbox)


class Parallel(nn.Module):
    """Two interscale layers beside each other: each spoils one channel, and so does their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = ScaleLift(3, 2, WIDE)
        self.one, self.other = (ScaleConv(2, 2, WIDE, interscale=2) for _ in range(2))

    def forward(self, image: Tensor) -> Tensor:
        field = self.lift(image)
        return self.one(field) + self.other(field)


def test_parallel_branches_spoil_no_more_than_one_of_them() -> None:
    torch.manual_seed(0)
    found = causes(Parallel().eval(), photographs(1), 1 / STEP)
    assert "1 spoilt channel(s) left out" in [step.change for step in found.steps]


# --- the command


@pytest.mark.parametrize("words", ["", "--canvas keep"])
def test_a_network_without_scales_is_told_so_at_once(words: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\nnetwork = nn.Conv2d(3, 2, 5, padding=2)\n", encoding="utf-8"
    )
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    files = ["--json", str(out), "--picture", str(picture), "--count", "2"]
    result = CliRunner().invoke(app, ["causes", f"{tmp_path / 'net.py'}:network", *files, *words.split()])
    assert result.exit_code == 0, result.output
    reason = "1 ordinary convolution sees one scale, and no layer works at several, so there is no cause to switch off"
    assert f"it is not split into causes: {reason}" in " ".join(result.output.split())
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["causes"]["unsplit"], found["shares"], found["causes"]["steps"]) == (reason, None, [])
    assert picture.exists()


def test_the_bar_of_causes_moves_and_tells_the_time_left() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    parts: list[float] = []
    with progress_bar(console, doing="switching causes off") as advance:

        def on_step(part: float) -> None:
            parts.append(part)
            advance(part)
            time.sleep(0.15)  # the bar is drawn ten times a second

        causes(build(ScaleLift(3, 1, PUBLISHED), nn.ReLU()), photographs(1), 1 / STEP, on_step=on_step)
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    assert len(set(re.findall(r"(\d+)%", shown))) >= 4, shown
    assert re.search(r"\d+% \d:\d\d:\d\d", shown), shown
    assert sum(parts) == pytest.approx(1)
    assert max(parts) <= 0.5
