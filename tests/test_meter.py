"""One meter: every way of asking it gives the same numbers, and its errors say how they were measured."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

from sesn import EquivarianceError, Meter, ScaleConv, ScaleGrid, ScaleLift, basis_a, diagnose, equivariance_error
from sesn.meter.action import ScaleTranslation, rescale
from sesn.tools.photographs import photographs

STEP = 96 / 68
BASIS = basis_a(ScaleGrid.geometric(1.5, STEP, 4), "wide", 2)
IMAGES = photographs(3)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [ScaleLift(3, 2, BASIS), nn.ReLU(), ScaleConv(2, 2, BASIS, interscale=2)]
    return nn.Sequential(*layers).eval()


def numbers(error: EquivarianceError, *left_out: str) -> dict[str, object]:
    """Everything of an error as plain data, NaN as text."""
    kept = [field.name for field in fields(error) if field.name not in ("meter", *left_out)]
    return {name: repr(x.tolist()) if isinstance(x := getattr(error, name), Tensor) else x for name in kept}


@pytest.mark.parametrize("meter", [Meter(), Meter("bicubic", crop=2), Meter("fourier"), Meter(crop=0, ends="inside")])
def test_a_sweep_is_the_measurement_at_each_factor(meter: Meter) -> None:
    net, factors = network(), [1 / STEP, 0.5, 1.25]
    for factor, error in zip(factors, meter.sweep(net, IMAGES, factors), strict=True):
        assert numbers(error) == numbers(meter.measure(net, IMAGES, factor))
        options = {"resampler": meter.resampler, "crop": meter.crop, "ends": meter.ends}
        assert numbers(error) == numbers(equivariance_error(net, IMAGES, factor, **options))  # type: ignore[arg-type]
        assert error.meter == meter


@pytest.mark.parametrize("crop", [0, "auto"])
def test_along_a_chain_is_the_measurement_of_each_beginning(crop: int) -> None:
    net, meter = network(), Meter(crop=crop)
    for depth, error in enumerate(meter.along(net, IMAGES, 1 / STEP), start=1):
        whole = meter.measure(net[:depth], IMAGES, 1 / STEP, context=False)
        assert numbers(error) == numbers(whole)
    assert depth == len(net)


def test_a_sweep_runs_the_original_branch_once() -> None:
    sides: list[int] = []
    net = network()
    net.register_forward_hook(lambda _, inputs, __: sides.append(inputs[0].shape[-1]))
    list(Meter().sweep(net, IMAGES, [0.5, 0.75], context=False, repeat=False))
    assert sides == [96, 48, 72]


def test_no_gradient_mode_leaks_out_of_a_sweep() -> None:
    with torch.enable_grad():
        for _ in Meter().sweep(network(), IMAGES, [0.5], repeat=False):
            assert torch.is_grad_enabled()


def test_channels_apart_add_up_to_the_whole() -> None:
    net = network()
    apart = Meter().measure(net, IMAGES, 1 / STEP, apart=True)
    together = Meter().measure(net, IMAGES, 1 / STEP)
    delta, energy = (x.reshape(len(IMAGES), -1) for x in (apart.valid, apart.energy))
    torch.testing.assert_close((delta * energy).sum(1) / energy.sum(1), together.valid)


def test_without_context_delta_is_the_same() -> None:
    bare, full = (Meter().measure(network(), IMAGES, 1 / STEP, context=context) for context in (False, True))
    assert bool(bare.floor.isnan().all())
    assert bare.told_apart == math.inf
    context = "floor", "ceiling", "ceiling_centred", "ceiling_detail", "told_apart"
    assert numbers(bare, *context) == numbers(full, *context)


def test_convolutions_commute_with_translations_and_a_centred_pyramid_does_not() -> None:
    inside, element = Meter(crop=30), ScaleTranslation(1.0, (3.0, -2.0))
    conv = nn.Conv2d(3, 2, 5, padding=2, bias=False).double().eval()
    assert float(inside.measure(conv, IMAGES, element).valid.max()) < 1e-25
    ramp = nn.Identity()
    ramp.forward = lambda x: x * torch.linspace(0, 1, x.shape[-1], dtype=x.dtype)  # type: ignore[method-assign]
    assert float(inside.measure(ramp, IMAGES, element).valid.min()) > 1e-4


class Halves:
    """Doubles the output, and can compare the left half of a map only."""

    def __call__(self, output: Tensor, factor: float) -> Tensor:
        return rescale(output, factor) * 2

    def partnered(self, output: Tensor, direct: Tensor, factor: float) -> Tensor:
        return torch.arange(direct.shape[-1]) < output.shape[-1] * factor / 2


def test_an_action_may_say_what_can_be_compared() -> None:
    broken = nn.Identity()
    side = IMAGES.shape[-1]

    def forward(x: Tensor) -> Tensor:  # doubled by the action's factor, but not on the right of the small image
        if x.shape[-1] == side:
            return x
        return torch.cat([2 * x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]], dim=-1)

    broken.forward = forward  # type: ignore[method-assign]
    error = Meter(action=Halves(), kind="map", crop=0).measure(broken, IMAGES, 0.5)
    assert float(error.valid.max()) == 0
    assert float(error.all.min()) > 0.01


def test_the_diagnosis_measures_as_the_error_was_measured() -> None:
    net = nn.Sequential(*network(), nn.Identity())
    net[-1].forward = lambda field: field.flip(2)  # type: ignore[method-assign]
    error = equivariance_error(net, IMAGES, 1 / STEP, resampler="bicubic", ends="circular")
    found = [str(finding) for finding in diagnose(net, IMAGES, error)]
    assert found == [str(f) for f in diagnose(net, IMAGES, error, resampler="bicubic", ends="circular")]
    assert found != [str(f) for f in diagnose(net, IMAGES, error, resampler="legacy", ends="zeros")]


def test_a_meter_says_what_differs_from_the_default() -> None:
    assert str(Meter()) == "resampler lanczos3"
    assert str(Meter("bicubic", crop=3, grid=ScaleGrid([1.0, 2.0]))) == "resampler bicubic; crop 3; grid 1, 2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "picture"}, "`kind`"),
        ({"resampler": "nearest"}, "`resampler`"),
        ({"resampler": "fourier", "ends": "inside"}, "`ends`"),
        ({"action": rescale, "spoiled": 1}, "`action`"),
    ],
)
def test_bad_meters_are_refused_when_they_are_made(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Meter(**options)  # type: ignore[arg-type]


def test_fine_detail_is_delta_of_the_differences_between_neighbours() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 2, 3, padding=1).double().eval()
    meter = Meter(crop=4)
    found = meter.branches(conv, IMAGES.double(), 1 / 2)
    moved, direct = (x[..., 4:-4, 4:-4] for x in (found.moved, found.direct))
    error = meter.measure(conv, IMAGES, 1 / 2)

    def energy(x: Tensor) -> Tensor:
        """Of the differences, down and right, from every pixel that has both neighbours."""
        down, right = x.diff(dim=-2)[..., :, :-1], x.diff(dim=-1)[..., :-1, :]
        return (down.square() + right.square()).sum((1, 2, 3))

    assert torch.allclose(error.detail, energy(moved - direct) / energy(moved))
    assert error.ceiling_detail is not None
    assert torch.allclose(error.judged(), torch.maximum(error.relative, error.relative_detail))
    with torch.no_grad():
        assert conv.bias is not None
        conv.bias += 100
    assert torch.allclose(meter.measure(conv, IMAGES, 1 / 2).relative_detail, error.relative_detail)
    scores = meter.measure(nn.Sequential(conv, nn.AdaptiveAvgPool2d(1)).eval(), IMAGES, 1 / 2)
    assert bool(scores.relative_detail.isnan().all())
    assert torch.equal(scores.judged(), scores.relative)
