"""`causes`: the planted cause is named, the steps telescope, and the surgery changes no more than it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
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
from sesn.tools.causes import CAUSES, causes
from sesn.tools.drawing import save
from sesn.tools.images import random_images
from sesn.tools.photographs import photographs
from sesn.tools.split import NOT_PRESENT, CauseSplit, causes_table, in_words
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


def test_transposed_convolutions_are_counted() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 2, 3, 2, 1), nn.Conv2d(2, 2, 3, padding=1), nn.ConvTranspose2d(2, 1, 2, 2)
    ).eval()
    told = causes(network, random_images(0, (2, 3, 32, 32)), 1 / 2).unsplit
    assert told.startswith("2 ordinary convolutions and 1 transposed convolution see one scale, and no layer")
