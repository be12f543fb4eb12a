"""Wrong arguments are refused with a message that names the argument, its value and the rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

import sesn
from sesn import (
    BandlimitedReLU,
    GlobalPool,
    ScaleBatchNorm,
    ScaleConv,
    ScaleConv1x1,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    SpatialMaxPool,
    SteerableBasis,
    basis_a,
    basis_b,
)

GRID = ScaleGrid([0.9, 1.3, 1.8])
BASIS = basis_a(GRID, 7, 2)
ANY = SteerableBasis.from_function(lambda x, y: torch.exp(-(x**2) - y**2), GRID, 7)


def complains(error: type[Exception], *words: str) -> Any:
    """An error of this type whose message has these words in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, words)))


@pytest.mark.parametrize("layer", [ScaleLift, ScaleConv, ScaleConv1x1])
@pytest.mark.parametrize("bias", ["no", None, 1, torch.tensor(True)])
def test_a_bias_is_asked_for_by_true_or_false(layer: Any, bias: Any) -> None:
    basis = () if layer is ScaleConv1x1 else (BASIS,)
    with complains(TypeError, "`bias`", "must be True or False"):
        layer(1, 2, *basis, bias=bias)
    assert layer(1, 2, *basis, bias=False).bias is None


@pytest.mark.parametrize(
    ("crop", "error"), [(-1, ValueError), ("none", TypeError), (1.5, TypeError), (True, TypeError)]
)
def test_a_meter_refuses_a_wrong_crop_when_it_is_made(crop: Any, error: type[Exception]) -> None:
    with complains(error, f"`crop` (={crop!r})", "or 'auto'"):
        sesn.Meter(crop=crop)


@pytest.mark.parametrize(("spoiled", "error"), [(-1, ValueError), ("all", TypeError), (True, TypeError)])
def test_a_meter_refuses_a_wrong_number_of_spoilt_scales_when_it_is_made(spoiled: Any, error: type[Exception]) -> None:
    with complains(error, f"`spoiled` (={spoiled!r})", "or None"):
        sesn.Meter(spoiled=spoiled)


@pytest.mark.parametrize(
    "make", [lambda x: sesn.ScaleBatchNorm(2, affine=x), lambda x: sesn.ScaleGroupNorm(1, 2, affine=x)]
)
def test_a_norm_is_made_affine_by_true_or_false(make: Any) -> None:
    with complains(TypeError, "`affine` (='no')", "must be True or False"):
        make("no")


# Scales

SIGMAS: list[tuple[list[float], tuple[str, ...]]] = [
    ([], ("`sigmas` (=())", "non-empty")),
    ([1.0, 1.0], ("`sigmas` (=(1.0, 1.0))", "strictly increasing")),
    ([1.0, 2.0, 1.5], ("`sigmas` (=(1.0, 2.0, 1.5))", "strictly increasing", "1.5 at index 2")),
    ([0.0, 1.0], ("`sigmas[0]` (=0.0)", "positive")),
    ([-1.0], ("`sigmas[0]` (=-1.0)", "positive")),
    ([1.0, float("nan")], ("`sigmas[1]` (=nan)", "finite")),
    ([1.0, float("inf")], ("`sigmas[1]` (=inf)", "finite")),
]


@pytest.mark.parametrize(("sigmas", "words"), SIGMAS, ids=lambda value: str(value) if type(value) is list else "")
def test_sigmas(sigmas: list[float], words: tuple[str, ...]) -> None:
    with complains(ValueError, *words):
        ScaleGrid(sigmas)


@given(st.lists(st.floats(0.1, 9), min_size=2, max_size=5), st.data())
def test_only_increasing_sigmas_are_taken(sigmas: list[float], data: st.DataObject) -> None:
    if sigmas == sorted(set(sigmas)):
        sigmas.append(sigmas[data.draw(st.integers(0, len(sigmas) - 1))])
    with complains(ValueError, "sigmas", repr(tuple(sigmas)), "strictly increasing"):
        ScaleGrid(sigmas)


@pytest.mark.parametrize("sigmas", [1.5, None, [None, 1.0], [[1.0], [2.0]], "12", [1.0, "2"], torch.tensor(1.5)])
def test_sigmas_that_are_no_numbers(sigmas: Any) -> None:
    with complains(TypeError, "sigmas", "a sequence of numbers"):
        ScaleGrid(sigmas)


@pytest.mark.parametrize("sigmas", ["abc", [1.0, "two"]])
def test_sigmas_that_are_text(sigmas: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="`sigmas"):
        ScaleGrid(sigmas)


GEOMETRIC = [
    ((0, 2.0, 3), ValueError, "smallest", "0", "positive"),
    ((float("nan"), 2.0, 3), ValueError, "smallest", "nan", "positive"),
    ((1.0, 1.0, 3), ValueError, "ratio", "1.0", "greater than 1"),
    ((1.0, float("nan"), 3), ValueError, "ratio", "nan", "greater than 1"),
    ((1.0, 2.0, 0), ValueError, "count", "0", "at least 1"),
    ((1.0, 2.0, 2.5), TypeError, "count", "2.5", "whole number"),
]


@pytest.mark.parametrize(("arguments", "error", "name", "value", "rule"), GEOMETRIC)
def test_geometric_grids(arguments: Any, error: type[Exception], name: str, value: str, rule: str) -> None:
    with complains(error, f"`{name}` (={value})", rule):
        ScaleGrid.geometric(*arguments)


# Bases

MAKERS: dict[str, Callable[..., SteerableBasis]] = {
    "A": lambda grid=GRID, size=7, **o: basis_a(grid, size, 3, **o),
    "B": lambda grid=GRID, size=7, **o: basis_b(grid, size, 3, **o),
    "any": lambda grid=GRID, size=7, **o: SteerableBasis.from_function(torch.hypot, grid, size, **o),
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_even_kernels(make: Any, size: int) -> None:
    with complains(ValueError, f"`window` (={size})", "odd", f"use {size - 1} or {size + 1}"):
        make(size=size)


@pytest.mark.parametrize(
    ("size", "error", "rule"),
    [
        (0, ValueError, "at least 1"),
        (-3, ValueError, "at least 1"),
        (7.0, TypeError, "whole"),
        (True, TypeError, "whole"),
    ],
)
def test_kernels_of_no_size(make: Any, size: Any, error: type[Exception], rule: str) -> None:
    with complains(error, f"`window` (={size})", rule):
        make(size=size)


@pytest.mark.parametrize(("window", "error"), [("narrow", ValueError), (None, TypeError)])
def test_unknown_windows(make: Any, window: Any, error: type[Exception]) -> None:
    with complains(error, f"`window` (={window!r})", "'wide'"):
        make(size=window)


def test_a_grid_that_is_a_list(make: Any) -> None:
    with complains(TypeError, "`grid` (=[1.0, 2.0])", "a ScaleGrid"):
        make(grid=[1.0, 2.0])


@pytest.mark.parametrize("maker", [basis_a, basis_b])
def test_a_box_larger_than_the_kernel(maker: Any) -> None:
    with complains(ValueError, "`effective_size` (=9)", "at most", "7"):
        maker(GRID, 7, 9)


BASES: list[tuple[Any, type[Exception], str, str]] = [
    (lambda: basis_a(GRID, 7, 0), ValueError, "`effective_size` (=0)", "at least 1"),
    (lambda: basis_a(GRID, 7, 2.0), TypeError, "`effective_size` (=2.0)", "whole"),  # type: ignore[arg-type]
    (lambda: basis_a(GRID, 7, 2, max_order=-1), ValueError, "`max_order` (=-1)", "at least 0"),
    (lambda: basis_b(GRID, 7, 2, max_order=-1), ValueError, "`max_order` (=-1)", "at least 0"),
    (lambda: basis_b(GRID, 7, 2, mult=1.0), ValueError, "`mult` (=1.0)", "greater than 1"),
    (lambda: basis_b(GRID, 7, 2, mult=float("nan")), ValueError, "`mult` (=nan)", "greater than 1"),
    (lambda: basis_a(GRID, 3, 2), ValueError, "norm 0", "window"),
    (lambda: SteerableBasis.from_function([], GRID, 7), ValueError, "`psi` (=[])", "non-empty"),
    (lambda: SteerableBasis.from_function(3, GRID, 7), TypeError, "`psi` (=3)", "callable"),  # type: ignore[arg-type]
    (lambda: SteerableBasis.from_function(lambda x, y: x[0], GRID, 7), ValueError, "psi(x, y).shape", "(3,)"),
    (lambda: SteerableBasis.from_function(lambda x, y: 0 * x, GRID, 7), ValueError, "norm 0.0", "cannot be normalised"),
    (lambda: SteerableBasis.from_function(lambda x, y: x / 0, GRID, 7), ValueError, "norm", "cannot be normalised"),
]


@pytest.mark.parametrize(
    ("build", "error", "name", "rule"), BASES, ids=lambda value: value if type(value) is str else ""
)
def test_bases(build: Any, error: type[Exception], name: str, rule: str) -> None:
    with complains(error, name, rule):
        build()


# Layers

OPTIONS: list[tuple[dict[str, Any], type[Exception], str, str]] = [
    ({"in_channels": 0}, ValueError, "`in_channels` (=0)", "at least 1"),
    ({"out_channels": -1}, ValueError, "`out_channels` (=-1)", "at least 1"),
    ({"out_channels": 1.5}, TypeError, "`out_channels` (=1.5)", "whole"),
    ({"stride": 0}, ValueError, "`stride` (=0)", "at least 1"),
    ({"stride": (2, 2.5)}, TypeError, "`stride[1]` (=2.5)", "whole"),
    ({"padding": -1}, ValueError, "`padding` (=-1)", "at least 0"),
    ({"padding": "full"}, ValueError, "`padding` (='full')", "'same', 'valid'"),
    ({"padding": None}, TypeError, "`padding` (=None)", "whole"),
    ({"padding_mode": "edge"}, ValueError, "`padding_mode` (='edge')", "'zeros', 'circular'"),
    ({"algorithm": "fft"}, ValueError, "`algorithm` (='fft')", "'auto', 'dense', 'separable', 'spectral'"),
    ({"basis": torch.ones(4, 3, 7, 7)}, TypeError, "`basis`", "a SteerableBasis"),
    (
        {"basis": ANY, "algorithm": "separable"},
        ValueError,
        "`algorithm` (='separable')",
        "use 'dense', 'spectral' or 'auto'",
    ),
]


@pytest.mark.parametrize("kind", [ScaleLift, ScaleConv])
@pytest.mark.parametrize(("options", "error", "name", "rule"), OPTIONS, ids=str)
def test_layer_arguments(kind: Any, options: dict[str, Any], error: type[Exception], name: str, rule: str) -> None:
    with complains(error, name, rule):
        kind(**({"in_channels": 2, "out_channels": 2, "basis": BASIS} | options))


@pytest.mark.parametrize(
    ("interscale", "error", "rule"),
    [(4, ValueError, "at most the number of scales (3)"), (0, ValueError, "at least 1"), (1.5, TypeError, "whole")],
)
def test_interscale(interscale: Any, error: type[Exception], rule: str) -> None:
    with complains(error, f"`interscale` (={interscale})", rule):
        ScaleConv(1, 1, BASIS, interscale=interscale)


# Inputs

LIFT, CONV, POINT = ScaleLift(2, 2, BASIS), ScaleConv(2, 2, BASIS), ScaleConv1x1(2, 2)
INPUTS: list[tuple[nn.Module, Tensor, type[Exception], tuple[str, ...]]] = [
    (LIFT, torch.ones(2, 8, 8), ValueError, ("`image.shape` (=(2, 8, 8))", "4-dimensional", "[b, c, h, w]")),
    (LIFT, torch.ones(1, 2, 3, 8, 8), ValueError, ("`image.shape`", "4-dimensional", "ScaleProjection")),
    (CONV, torch.ones(1, 2, 8, 8), ValueError, ("`field.shape`", "5-dimensional", "[b, c, s, h, w]", "ScaleLift")),
    (LIFT, torch.ones(1, 3, 8, 8), ValueError, ("`image.shape[1]` (=3)", "2, the layer's in_channels")),
    (CONV, torch.ones(1, 3, 3, 8, 8), ValueError, ("`field.shape[1]` (=3)", "2, the layer's in_channels")),
    (CONV, torch.ones(1, 2, 4, 8, 8), ValueError, ("`field.shape[2]` (=4)", "3, the number of scales")),
    (POINT, torch.ones(1, 3, 3, 8, 8), ValueError, ("`field.shape[1]` (=3)", "2, the layer's in_channels")),
    (LIFT, torch.ones(1, 2, 8, 8).double(), TypeError, ("`image.dtype` (=torch.float64)", "torch.float32")),
    (CONV, torch.ones(1, 2, 3, 0, 8), ValueError, ("input side", "(=0)", "at least 1")),
    (
        ScaleLift(2, 2, BASIS, padding="valid"),
        torch.ones(1, 2, 8, 6),
        ValueError,
        ("(=6)", "at least 7", "larger image"),
    ),
    (
        ScaleBatchNorm(2),
        torch.ones(1, 3, 3, 8, 8),
        ValueError,
        ("`field.shape[1]` (=3)", "2, the layer's num_features"),
    ),
    (ScaleProjection(), torch.ones(1, 2, 8, 8), ValueError, ("`field.shape`", "5-dimensional")),
    (
        ScaleProjection(reduce="mean"),
        torch.ones(1, 2, 3, dtype=torch.int64),
        TypeError,
        ("`field.dtype`", "floating-point"),
    ),
    (SpatialMaxPool(2), torch.ones(1, 2, 8, 8), ValueError, ("`field.shape`", "5-dimensional")),
    (GlobalPool(), torch.ones(1, 2), ValueError, ("`field.shape`", "5-dimensional")),
]


@pytest.mark.parametrize(("layer", "value", "error", "words"), INPUTS, ids=range(len(INPUTS)))
def test_inputs(layer: nn.Module, value: Tensor, error: type[Exception], words: tuple[str, ...]) -> None:
    with complains(error, *words):
        layer(value)


FIELD_LAYERS = [CONV, POINT, ScaleBatchNorm(2), ScaleProjection(), SpatialMaxPool(2), sesn.SpatialAvgPool(2)]


@pytest.mark.parametrize(
    "layer", [*FIELD_LAYERS, GlobalPool("mean"), BandlimitedReLU(), LIFT], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integer_tensors(layer: nn.Module, dtype: torch.dtype) -> None:
    shape = (1, 2, 8, 8) if layer is LIFT else (1, 2, 3, 8, 8)
    with complains(TypeError, str(dtype), "a floating-point t", "float"):
        layer(torch.ones(shape, dtype=dtype))


@pytest.mark.parametrize("layer", [*FIELD_LAYERS, GlobalPool(), LIFT], ids=lambda x: type(x).__name__)
def test_what_is_no_tensor(layer: nn.Module) -> None:
    with complains(TypeError, "must be a torch tensor", "got list"):
        layer([[1.0]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sesn.build(None, "mnist"), r"`method` \(=None\) must be text, one of cnn"),  # type: ignore[arg-type]
        (lambda: sesn.build(3, 4), r"`method` \(=3\) must be text"),  # type: ignore[arg-type]
        (lambda: sesn.build(["cnn"], "mnist"), r"`method` \(=\['cnn'\]\) must be text"),  # type: ignore[arg-type]
        (lambda: sesn.build("cnn", ["mnist"]), r"`network` \(=\['mnist'\]\) must be text, one of mnist"),  # type: ignore[arg-type]
        (lambda: sesn.list_methods(3), r"`network` \(=3\) must be text"),  # type: ignore[arg-type]
        (lambda: sesn.rescale(3, 0.5), r"`image` must be a torch tensor \[..., h, w\], got int"),  # type: ignore[arg-type]
    ],
)
def test_names_that_are_no_text_and_images_that_are_no_tensors(call: Any, words: str) -> None:
    with pytest.raises(sesn.WrongTypeError, match=words):
        call()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"label": ""}, sesn.UsageError, r"`label` \(=''\) must be a name to print"),
        ({"label": 3}, sesn.WrongTypeError, r"`label` \(=3\) must be text"),
        ({"source": "text"}, sesn.WrongTypeError, r"`source` \(='text'\) must be a sesn.Source"),
        ({"side": 5}, sesn.UsageError, r"`side` \(=5\) must be 3 or 7"),
        ({"resamples": "foo"}, sesn.UsageError, r"`resamples` \(='foo'\) must be one of"),
        ({"layer": 3}, sesn.WrongTypeError, r"`layer` \(=3\) must be a function"),
        ({"between": 3}, sesn.WrongTypeError, r"`between` \(=3\) must be a function"),
        ({"networks": {"mnist": 3}}, sesn.WrongTypeError, r"`networks\['mnist'\]` \(=3\) must be a function"),
        ({"networks": {"mnist": None}}, sesn.WrongTypeError, r"`networks\['mnist'\]` \(=None\) must be a function"),
        ({"networks": nn.Identity}, sesn.WrongTypeError, "must be a mapping from networks"),
        ({"colour": None}, sesn.WrongTypeError, r"`colour` \(=None\) must be text of the form #RRGGBB"),
    ],
)
def test_a_wrong_field_of_a_method_is_an_error_at_once(change: Any, error: type[Exception], words: str) -> None:
    fields: dict[str, Any] = {"key": "mine", "label": "Mine", "layer": lambda step: nn.Identity()}
    with pytest.raises(error, match=words):
        sesn.Method(**(fields | change))
