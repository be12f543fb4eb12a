"""Layers for fields that only act on space or channels: every scale by itself, and what they commute with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from measures import assert_same, put
from test_compiling import LAYERS
from test_readme import ROOT
from torch import Tensor, nn

import sesn
from sesn.meter.extent import seen_by
from sesn.strategies import images
from sesn.tools.photographs import photographs


def uneven(field: Tensor) -> Tensor:
    """Another mean and variance at each scale: maps that are drawn have the same."""
    size = torch.arange(1, field.shape[2] + 1, dtype=field.dtype)[:, None, None]
    return size * field + size


FIELDS = images(leading=st.tuples(st.integers(1, 2), st.just(4), st.integers(1, 4))).map(uneven)
#: A layer on a field, and what torch computes for the maps of one scale.
Pair = tuple[nn.Module, Callable[[Tensor], Tensor]]
KINDS = pytest.mark.parametrize("kind", ["up", "down", "mean", "max", "group norm", "layer norm"])


def resized(factor: float, mode: str, **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda maps: F.interpolate(maps, scale_factor=factor, mode=mode, **options)


def low_passed(factor: int, mode: str) -> Callable[[Tensor], Tensor]:
    """The filter by its definition. Torch's own gives other numbers where the output has one column (torch 2.13)."""

    def kernel(far: float) -> float:
        if mode == "bilinear":
            return max(0.0, 1 - far)
        if far < 1:
            return 1.5 * far**3 - 2.5 * far**2 + 1
        return -0.5 * far**3 + 2.5 * far**2 - 4 * far + 2 if far < 2 else 0.0

    def matrix(side: int) -> Tensor:
        centres = [(place + 0.5) * factor - 0.5 for place in range(side // factor)]
        rows = [[kernel(abs(pixel - centre) / factor) for pixel in range(side)] for centre in centres]
        return torch.tensor([[weight / sum(row) for weight in row] for row in rows], dtype=torch.float64)

    def low_pass(maps: Tensor) -> Tensor:
        down, across = (matrix(side).to(maps) for side in maps.shape[-2:])
        return down @ maps @ across.t()

    return low_pass


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_low_pass_to_one_column_is_that_of_its_definition(mode: Any) -> None:
    field = torch.arange(60.0, dtype=torch.float64).sin().reshape(1, 1, 1, 12, 5)
    for factor, layer in ((f, sesn.ScaleDownsample(f, mode)) for f in (2, 3, 4, 5)):
        assert_same(layer(field)[:, :, 0], low_passed(factor, mode)(field[:, :, 0]))


@st.composite
def pairs(draw: st.DrawFn, kind: str) -> Pair:
    """A layer of one kind with drawn options."""
    factor, rows, columns = draw(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)))
    groups = draw(st.sampled_from([1, 2, 4]))
    weight, bias = (torch.tensor(draw(st.lists(st.floats(-2, 2), min_size=4, max_size=4))).double() for _ in range(2))
    grouped, layered = sesn.ScaleGroupNorm(groups, 4), sesn.ScaleLayerNorm(4)
    for norm in (grouped, layered):
        norm.double().load_state_dict({"weight": weight, "bias": bias})

    def over_channels(maps: Tensor) -> Tensor:
        mean, variance = maps.mean(1, keepdim=True), maps.var(1, unbiased=False, keepdim=True)
        normed = (maps - mean) / (variance + layered.eps).sqrt()
        return normed * weight.to(maps)[:, None, None] + bias.to(maps)[:, None, None]

    size = rows, columns
    up, down = draw(st.sampled_from(["nearest", "bilinear", "bicubic"])), draw(st.sampled_from(["bilinear", "bicubic"]))
    choices: dict[str, Pair] = {
        "up": (sesn.ScaleUpsample(factor=factor, mode=up), resized(factor, up)),
        "down": (sesn.ScaleDownsample(factor=factor, mode=down), low_passed(factor, down)),
        "mean": (sesn.SpatialAdaptivePool(size), lambda maps: F.adaptive_avg_pool2d(maps, size)),
        "max": (sesn.SpatialAdaptivePool(size, "max"), lambda maps: F.adaptive_max_pool2d(maps, size)),
        "group norm": (grouped, lambda maps: F.group_norm(maps, groups, weight.to(maps), bias.to(maps))),
        "layer norm": (layered, over_channels),
    }
    return choices[kind]


@KINDS
@given(field=FIELDS, data=st.data())
def test_every_scale_is_treated_by_itself_as_torch_treats_maps(device, kind, field, data):
    layer, plain = data.draw(pairs(kind))
    layer, field = put(layer, device), put(field, device)
    out = layer(field)
    assert out.shape[:3] == field.shape[:3]
    for scale in range(field.shape[2]):
        assert_same(out[:, :, scale], plain(field[:, :, scale]))


@KINDS
@given(field=FIELDS, data=st.data())
def test_they_commute_with_every_order_of_the_scales(device, kind, field, data):
    layer, field = put(data.draw(pairs(kind))[0], device), put(field, device)
    order = data.draw(st.permutations(range(field.shape[2])))
    assert_same(layer(field[:, :, order]), layer(field)[:, :, order])


@given(field=FIELDS)
def test_layer_norm_commutes_with_picking_points(device, field):
    field, norm = put(field, device), put(sesn.ScaleLayerNorm(4, dtype=torch.float64), device)
    assert_same(norm(field[..., ::2, 1::2]), norm(field)[..., ::2, 1::2])


@given(field=FIELDS, factor=st.integers(1, 3))
def test_group_norm_and_adaptive_pools_commute_with_larger_pixels(device, field, factor):
    field = put(field, device)
    large = field.repeat_interleave(factor, -2).repeat_interleave(factor, -1)
    norm = put(sesn.ScaleGroupNorm(2, 4, dtype=torch.float64), device)
    assert_same(norm(large), norm(field).repeat_interleave(factor, -2).repeat_interleave(factor, -1))
    for mode in ("mean", "max"):
        whole = sesn.SpatialAdaptivePool(1, mode)
        assert_same(whole(large), whole(field))
        assert_same(whole(field)[..., 0, 0], sesn.GlobalPool(mode)(field))


@given(field=images(leading=(2, 64, 2)), seed=st.integers(0, 2**16), p=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_dropout_drops_whole_channels_and_every_draw_commutes(device, field, seed, p):
    field, drop = put(field, device) + 3, sesn.ScaleDropout(p=p)

    def drawn(x: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return drop(x)

    factors = drawn(field) / field
    assert_same(factors, factors[:, :, :1, :1, :1].expand_as(field))
    kept = 1 / (1 - p) if p < 1 else 0.0
    assert {round(value, 9) for value in factors.unique().tolist()} <= {0.0, round(kept, 9)}
    if 0 < p < 1:
        assert len(factors[..., 0].unique()) >= 2  # of 128 channels some are dropped and some are not
    assert_same(drawn(field.flip(2)), drawn(field).flip(2))
    assert_same(drawn(field[..., ::2, ::2]), drawn(field)[..., ::2, ::2])
    assert torch.equal(drop.eval()(field), field)


# --- what the meter says


def delta(layer: nn.Module, factor: float = 0.5) -> float:
    """The median of Delta of a field of wide kernels, then the layer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        lift = sesn.ScaleLift(3, 4, sesn.basis_a(sesn.ScaleGrid.geometric(1.5, 2**0.5, 5), "wide", 3), bias=False)
    error = sesn.Meter(ends="inside").measure(nn.Sequential(lift, layer).eval(), photographs(2), factor)
    assert error.kind == "field"
    return float(error.valid.median())


def test_low_pass_downsampling_is_more_equivariant_than_pooling_and_striding():
    low_pass = delta(sesn.ScaleDownsample())
    assert low_pass < 0.01
    assert low_pass < delta(sesn.SpatialMaxPool(2)) / 5
    assert low_pass < delta(sesn.ScaleConv1x1(4, 4, stride=2, bias=False)) / 5


def test_a_binomial_blur_costs_more_equivariance_than_the_sharp_cut_off():
    blur = nn.Conv2d(4, 4, 4, stride=2, padding=1, padding_mode="reflect", groups=4, bias=False)
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 8
    with torch.no_grad():
        blur.weight.copy_(torch.outer(taps, taps).expand(4, 1, 4, 4))
    assert delta(sesn.ScaleDownsample()) < delta(sesn.EachScale(blur)) / 3


def test_a_sharper_cut_off_is_more_equivariant():
    assert delta(sesn.ScaleDownsample()) < delta(sesn.ScaleDownsample(mode="bilinear")) / 3
    modes = [delta(sesn.ScaleUpsample(mode=mode)) for mode in ("bicubic", "bilinear", "nearest")]
    assert modes == sorted(modes)
    assert modes[0] < 2e-3


def test_the_group_norm_of_torch_does_not_commute_with_scale():
    assert delta(sesn.ScaleGroupNorm(2, 4)) < 1e-3
    assert delta(nn.GroupNorm(2, 4)) > 1e-2


def test_the_meter_reads_how_far_they_look():
    image = torch.randn(1, 1, 32, 32)
    lift = sesn.ScaleLift(1, 4, sesn.basis_a(sesn.ScaleGrid([1.0, 1.41]), 7, 3))
    for layer, stride in ((sesn.ScaleUpsample(), 0.5), (sesn.ScaleDownsample(), 2)):
        seen = seen_by(nn.Sequential(lift, layer), image)
        assert (seen.stride, seen.measured) == (stride, ())
        assert seen.first == (stride - 1) / 2  # centred on the map


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [name for name in LAYERS if hasattr(sesn, name)])
def test_every_layer_takes_numbers_of_two_bytes(name: str, dtype: torch.dtype):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer, x = make().to(dtype), torch.randn(shape).to(dtype).requires_grad_()
    found = layer(x)
    found.sum().backward()
    precise = layer.float()(x.detach().float())
    assert found.dtype == dtype
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (found.float() - precise).norm() < 4 * torch.finfo(dtype).eps * precise.norm() + 1e-6


def test_arguments_that_torch_takes_by_position_are_taken_so():
    assert str(sesn.ScaleDropout(0.2)) == "ScaleDropout(p=0.2, inplace=False)"
    assert sesn.ScaleUpsample(3).factor == sesn.ScaleDownsample(3).factor == 3
    assert sesn.ScaleProjection("mean").reduce == "mean"


# --- what is said


def test_they_say_what_they_do():
    assert str(sesn.ScaleUpsample(factor=3)) == "ScaleUpsample(factor=3, mode='bicubic')"
    assert str(sesn.ScaleDownsample(mode="bilinear")) == "ScaleDownsample(factor=2, mode='bilinear')"
    assert str(sesn.SpatialAdaptivePool(4)) == "SpatialAdaptivePool(output_size=(4, 4), mode='mean')"
    assert [*sesn.ScaleLayerNorm(4, affine=False).state_dict()] == []


FIELD = (1, 4, 2, 3, 8)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sesn.ScaleUpsample(factor=0), "`factor` (=0) must be at least 1"),
        (lambda: sesn.ScaleUpsample(mode="area"), "`mode` (='area') must be one of 'nearest', 'bilinear', 'bicubic'"),
        (lambda: sesn.ScaleDownsample(mode="nearest"), "`mode` (='nearest') must be one of 'bilinear', 'bicubic'"),
        (lambda: sesn.ScaleDownsample(factor=4), "`input side` (=3) must be at least 4, the factor; use a larger"),
        (lambda: sesn.SpatialAdaptivePool((2, 0)), "`output_size[1]` (=0) must be at least 1"),
        (lambda: sesn.SpatialAdaptivePool((2, 2, 2)), "`output_size` (=(2, 2, 2)) must be one whole number, or two"),
        (lambda: sesn.SpatialAdaptivePool(2, "sum"), "`mode` (='sum') must be one of 'max', 'mean'"),
        (lambda: sesn.ScaleDropout(p=1.5), "`p` (=1.5) must be a number from 0 to 1"),
        (lambda: sesn.ScaleGroupNorm(3, 4), "`num_channels` (=4) must be a multiple of num_groups (=3)"),
        (lambda: sesn.ScaleGroupNorm(1, 3), "`field.shape[1]` (=4) must be 3, the layer's num_channels"),
        (lambda: sesn.ScaleLayerNorm(3), "`field.shape[1]` (=4) must be 3, the layer's num_features"),
        (lambda: sesn.ScaleLayerNorm(4, eps=-1.0), "`eps` (=-1.0) must be a number of at least 0; such as 1e-5"),
        (lambda: sesn.ScaleGroupNorm(1, 4, eps=math.nan), "`eps` (=nan) must be a number of at least 0"),
        (lambda: sesn.ScaleBatchNorm(4, eps="small"), "`eps` (='small') must be a number of at least 0"),
        (lambda: sesn.ScaleBatchNorm(4, momentum=2), "`momentum` (=2) must be a number from 0 to 1; None takes"),
        (lambda: sesn.ScaleBatchNorm(4, dtype="float16"), "`dtype` (='float16') must be a floating-point type"),
        (lambda: sesn.ScaleGroupNorm(1, 4, dtype=torch.int64), "`dtype` (=torch.int64) must be a floating-point type"),
        (lambda: sesn.ScaleConv1x1(4, 4, dtype=torch.int64), "`dtype` (=torch.int64) must be a floating-point type"),
        (lambda: sesn.ScaleConv(4, 4, dtype="float16"), "`dtype` (='float16') must be a floating-point type"),
        (lambda: sesn.ScaleConv1x1(torch.tensor(4.0), 4), "`in_channels` (=tensor(4.)) must be a whole number"),
        (
            lambda: sesn.EachScale(nn.MaxPool2d(2, return_indices=True)),
            "`module(maps)` (='tuple') must be a tensor; use a module that returns one",
        ),
        (
            lambda: sesn.EachScale(nn.Flatten(0)),
            "`module(maps).shape` (=(192,)) must be [2, ...], with an item for every",
        ),
    ],
)
def test_bad_arguments(make: Callable[[], nn.Module], words: str):
    with pytest.raises(sesn.UsageError) as raised:
        make()(torch.zeros(FIELD))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "layer",
    [
        sesn.ScaleUpsample(),
        sesn.ScaleDownsample(),
        sesn.SpatialAdaptivePool(2),
        sesn.ScaleDropout(),
        sesn.ScaleGroupNorm(2, 4),
        sesn.ScaleLayerNorm(4),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_an_image_is_no_field(layer: nn.Module):
    with pytest.raises(sesn.UsageError, match="5-dimensional"):
        layer(torch.zeros(1, 4, 8, 8))


# --- the table of torch's layers in the documentation

PAGE = (ROOT / "docs" / "layers-for-fields.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip().strip("`") for cell in line[1:-1].split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `nn.")
]
NAMES = {"nn": nn, "sesn": sesn, "basis": sesn.basis_a(sesn.ScaleGrid([1.0, 1.4, 2.0, 2.8]), 7, 2)}


def keeps_scales_apart(layer: nn.Module) -> bool:
    """As many scales, all treated alike, and none changed by what another one holds."""
    torch.manual_seed(0)
    field = torch.randn(2, 4, 4, 8, 8)
    alike, changed = field[:, :, :1].expand(-1, -1, 4, -1, -1), field.clone()
    changed[:, :, 0] *= 2

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return layer(x)

    out = run(alike)
    if out.dim() == 5 and out.shape[2] == 4:
        same = torch.allclose(out, out[:, :, :1].expand_as(out), atol=1e-6)
        return same and torch.allclose(run(changed)[:, :, 1:], run(field)[:, :, 1:], atol=1e-6)
    return False


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_the_documentation_says_of_torchs_layers_is_so(row: list[str]):
    torchs, gives, what, instead = row
    layer, ours = eval(torchs, dict(NAMES)), eval(instead, dict(NAMES))
    field = torch.randn(2, 4, 4, 8, 8)
    if gives == "an error":
        assert not what
        with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
            layer(field)
    else:
        assert str(list(layer(field).shape)) == gives
        assert what
        assert not keeps_scales_apart(layer)
    # Kernels grow with the scale; batch norm in train mode and a projection see all scales.
    exempt = isinstance(ours, sesn.ScaleConv | sesn.ScaleConvTranspose | sesn.ScaleBatchNorm | nn.Sequential)
    assert exempt or keeps_scales_apart(ours)
    assert ours(field).shape[:2] == (2, 16 if "Unshuffle" in instead else 1 if "Shuffle" in instead else 4)


def test_the_table_is_read():
    assert len(ROWS) >= 20


#: Arguments with which one layer of torch or another takes a field `[2, 4, 4, 8, 8]`.
TRIED: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    *(((), {name: value}) for name, value in (("scale_factor", 2), ("dim", 1), ("dim", 2))),
    *(
        (args, {})
        for args in (
            (),
            (1,),
            (2,),
            (4,),
            (1, 0.0),
            (2, 2),
            (2, 4),
            (4, 4, 3),
            (4, 3),
            ([4, 8, 8],),
            ([4] * 2 + [8] * 2,),
        )
    ),
)
LAYERS_OF_TORCH = sorted(
    name for name, kind in vars(nn).items() if isinstance(kind, type) and issubclass(kind, nn.Module)
)


@pytest.mark.parametrize("name", LAYERS_OF_TORCH)
@pytest.mark.filterwarnings("ignore")
def test_every_layer_of_torch_that_mixes_scales_without_an_error_is_in_the_documentation(name: str):
    for args, options in TRIED:
        try:
            layer = getattr(nn, name)(*args, **options)
            mixes = not keeps_scales_apart(layer)
        except Exception:  # these are no arguments of it, or it says that it takes no field
            continue
        assert not mixes or f"nn.{name.removeprefix('Lazy')}" in PAGE, (args, options)
