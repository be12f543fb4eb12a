"""Borders, strides and paddings for each axis, groups and the end of the scale axis, by every algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import slow
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measures import EXPORTS
from torch import Tensor, nn

import sesn
from sesn import ScaleConv, ScaleGrid, ScaleLift, basis_a
from sesn.conversion.plain import PlainConv
from sesn.meter.extent import seen_by, spoiled_by
from sesn.tools.photographs import photographs

ALGORITHMS = ["dense", "separable", "spectral", "auto"]
BORDERS = {"zeros": "constant", "circular": "wrap", "reflect": "reflect", "replicate": "edge"}


@dataclass(frozen=True)
class Case:
    """A layer's arguments, a field or image and parameters for it, and the slow functions of its basis."""

    bases: slow.Bases
    interscale: int | None  # None: a lift
    options: dict[str, Any]
    field: Tensor
    weight: Tensor
    bias: Tensor

    def layer(self, algorithm: str) -> Any:
        channels = self.field.shape[1], self.weight.shape[0]
        kind = ScaleLift if self.interscale is None else ScaleConv
        layer = kind(*channels, self.bases.library, algorithm=algorithm, dtype=torch.float64, **self.options)
        layer.load_state_dict({"weight": self.weight, "bias": self.bias})
        return layer

    def answer(self) -> Tensor:
        """The paper's sums on the padded field, group by group; what the strides skip is left out at the end."""
        extent, groups = self.interscale or 1, self.options["groups"]
        field, weight, functions = self.field.numpy(), self.weight.numpy(), self.bases.slow
        if self.interscale is None:
            field, weight = np.repeat(field[:, :, None], functions.shape[1], axis=2), weight[:, :, None]
        (down, across), mode = self.options["padding"], BORDERS[self.options["padding_mode"]]
        field = np.pad(field, [(0, 0)] * 3 + [(down, down), (across, across)], mode=mode)  # type: ignore[call-overload]
        ending, scales = self.options.get("scale_padding", "zeros"), functions.shape[1]
        if ending == "replicate":
            more = [(0, 0), (0, 0), (0, extent - 1)]
            field = np.pad(field, [*more, (0, 0), (0, 0)], mode="edge")
            functions = np.pad(functions, [(0, 0), (0, extent - 1), (0, 0), (0, 0)], mode="edge")
        outputs = (np.split(each, groups) for each in (weight, self.bias.numpy()))
        parts = zip(np.split(field, groups, 1), *outputs, strict=True)
        found = [slow.scale_convolution(*part, functions, 1, 0, False) for part in parts]
        kept = scales - extent + 1 if ending == "truncate" else scales
        rows, columns = self.options["stride"]
        return torch.from_numpy(np.concatenate(found, 1)[:, :, :kept, ::rows, ::columns].copy())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pair = draw(slow.bases())
    scales, side = len(pair.library.grid), pair.library.kernel_size
    interscale = draw(st.sampled_from([*range(scales, 0, -1), None]))
    mode = draw(st.sampled_from([*BORDERS]))
    padding = draw(st.tuples(*[st.integers(0, side // 2 + 1)] * 2))
    least = [max(2, side - 2 * pixels, pixels + 1 if mode in ("reflect", "circular") else 1) for pixels in padding]
    h, w = (draw(st.integers(each, each + 3)) for each in least)
    groups = draw(st.sampled_from([1, 2, 3]))
    options = {"stride": draw(st.tuples(*[st.integers(1, 3)] * 2)), "padding": padding, "padding_mode": mode}
    options["groups"] = groups
    middle, extent = ((), ()) if interscale is None else ((scales,), (interscale,))
    if interscale is not None:
        options["interscale"] = interscale
        options["scale_padding"] = draw(st.sampled_from(["replicate", "truncate", "zeros"]))
    seed, inputs, outputs = draw(st.integers(0, 2**16)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    field = slow.uniform(seed, 2, groups * inputs, *middle, h, w)
    weight = slow.uniform(seed + 1, groups * outputs, inputs, *extent, len(pair.slow))
    return Case(pair, interscale, options, field, weight, slow.uniform(seed + 2, groups * outputs))


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


@settings(max_examples=40)
@given(case=cases())
def test_every_algorithm_is_the_slow_definition(case: Case) -> None:
    answer = case.answer()
    for algorithm in ALGORITHMS:
        close(case.layer(algorithm)(case.field), answer)


@settings(max_examples=40)
@given(case=cases())
def test_every_algorithm_has_the_gradients_of_the_dense_one(case: Case) -> None:
    found = []
    for algorithm in ALGORITHMS:
        layer, x = case.layer(algorithm), case.field.clone().requires_grad_()
        out = layer(x)
        out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).cos().reshape(out.shape))
        found.append([x.grad, layer.weight.grad, layer.bias.grad])
    for one in found[1:]:
        close(one, found[0])


@settings(max_examples=40)
@given(case=cases())
def test_plain_convolutions_and_the_multiply_adds_follow(case: Case) -> None:
    layer = case.layer("dense")
    with torch.no_grad():
        out = layer(case.field)
        close(PlainConv(layer)(case.field), out)
    assert out.shape[2] == len(layer.grid)
    one = case.layer("dense")
    one.groups = 1
    assert layer.multiply_adds(case.field.shape) * layer.groups == one.multiply_adds(case.field.shape)


BASIS = basis_a(ScaleGrid([1.0, 1.41, 2.0]), 7, 2)
ODD: dict[str, dict[str, Any]] = {
    "groups": {"groups": 2},
    "reflect": {"padding_mode": "reflect"},
    "sides": {"stride": (2, 1), "padding": (1, 3)},
    "replicated scales": {"interscale": 2, "scale_padding": "replicate", "groups": 2},
    "truncated scales": {"interscale": 2, "scale_padding": "truncate"},
}


@pytest.mark.parametrize("algorithm", ["separable", "spectral"])
@pytest.mark.parametrize("name", ODD)
def test_they_are_differentiated_twice(name: str, algorithm: Any) -> None:
    layer = ScaleConv(2, 2, basis_a(ScaleGrid([0.9, 1.3]), 5, 1), algorithm=algorithm, dtype=torch.float64, **ODD[name])
    field = slow.uniform(0, 1, 2, 2, 5, 4).requires_grad_()

    def run(field: Tensor, weight: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(layer, {"weight": weight}, (field,))
        return found

    inputs = field, layer.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


@EXPORTS
@pytest.mark.parametrize("name", ODD)
def test_they_compile_and_are_exported(name: str) -> None:
    layer, x = ScaleConv(2, 2, BASIS, **ODD[name]).eval(), slow.uniform(0, 2, 2, 3, 12, 11).float()
    with torch.no_grad():
        wanted = layer(x)
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(sesn.export_plain(layer, x).module()(x), wanted, rtol=1e-5, atol=1e-5)


def test_a_pair_of_equal_numbers_is_one_number() -> None:
    layer = ScaleLift(1, 1, BASIS, stride=(2, 2), padding=[1, 1])
    assert (layer.stride, layer.padding) == (2, 1)
    assert "stride=(2, 1), padding=(1, 3)" in str(ScaleLift(1, 1, BASIS, **ODD["sides"]))
    assert "groups=2" in str(ScaleLift(2, 2, BASIS, groups=2))


def test_a_shortcut_has_two_strides_too() -> None:
    field, point = slow.uniform(0, 1, 2, 3, 7, 6).float(), sesn.ScaleConv1x1(2, 4, stride=(2, 3))
    plain = sesn.ScaleConv1x1(2, 4)
    plain.load_state_dict(point.state_dict())
    torch.testing.assert_close(point(field), plain(field)[..., ::2, ::3])
    assert point.multiply_adds(field.shape) * 6 * 7 == plain.multiply_adds(field.shape) * 4 * 2


# --- the end of the scale axis


def lifted(**options: Any) -> nn.Module:
    """A lift and an interscale layer with wide windows on five scales."""
    basis = basis_a(ScaleGrid.geometric(1.5, 2**0.5, 5), "wide", 2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        lift = ScaleLift(3, 2, basis, bias=False)
        return nn.Sequential(lift, ScaleConv(2, 2, basis, interscale=2, bias=False, **options)).eval()


def test_a_truncated_field_has_the_scales_that_its_grid_says_and_none_is_spoilt() -> None:
    network, images = lifted(scale_padding="truncate"), photographs(2).float()
    field = network(images)
    assert network[1].grid.sigmas == network[0].grid.sigmas[:4]
    assert field.shape[2] == 4
    assert torch.equal(field, lifted()(images)[:, :, :4])
    after = ScaleConv(2, 2, basis_a(network[1].grid, "wide", 2))
    assert after(field).shape[2] == 4
    assert [spoiled_by(lifted(scale_padding=how), images) for how in ("truncate", "zeros", "replicate")] == [0, 1, 1]


@pytest.mark.parametrize("scale_padding", ["zeros", "replicate", "truncate"])
def test_the_scales_that_are_not_spoilt_are_equivariant(scale_padding: Any) -> None:
    error = sesn.Meter(ends="inside").measure(lifted(scale_padding=scale_padding), photographs(2), 2**-0.5)
    assert error.valid.median() < 1e-4
    assert error.lost == (1 if scale_padding == "truncate" else 2)  # one to rescaling, one to the end of the axis


@pytest.mark.parametrize("scale_padding", ["zeros", "replicate"])
def test_a_scale_that_sees_past_the_end_is_not_equivariant(scale_padding: Any) -> None:
    """The largest scale again is nearer to what lies past it than zero is, but it is not it: both are spoilt."""
    meter = sesn.Meter(ends="inside", spoiled=0)
    assert meter.measure(lifted(scale_padding=scale_padding), photographs(2), 2**-0.5).valid.median() > 1e-3


def test_what_an_output_sees_is_read_with_two_strides() -> None:
    assert seen_by(ScaleLift(3, 1, BASIS, stride=(2, 1)), photographs(1)).stride == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"groups": 2}, "`in_channels` (=3) must be a multiple of groups (=2)"),
        ({"groups": 3}, "`out_channels` (=4) must be a multiple of groups (=3)"),
        ({"groups": 0}, "`groups` (=0) must be at least 1"),
        ({"stride": (1, 0)}, "`stride[1]` (=0) must be at least 1"),
        ({"padding": (1, 2, 3)}, "`padding` (=(1, 2, 3)) must be one whole number, or two for rows and columns"),
        ({"padding_mode": "edge"}, "`padding_mode` (='edge') must be one of 'zeros', 'circular', 'reflect', 'repl"),
        ({"padding_mode": "reflect"}, "`input side` (=3) must be more than 3, the padding, for padding_mode='reflect'"),
        ({"scale_padding": "mirror"}, "`scale_padding` (='mirror') must be one of 'zeros', 'replicate', 'truncate'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str) -> None:
    with pytest.raises(sesn.UsageError) as raised:
        ScaleConv(3, 4, BASIS, **options)(torch.zeros(1, 3, 3, 3, 9))
    assert words in str(raised.value)


# --- the transposed convolution


@given(bases=slow.bases(), data=st.data())
def test_the_transposed_convolution_is_the_adjoint(bases: slow.Bases, data: st.DataObject) -> None:
    """<A x, y> = <x, A^T y> for every x and y, and so for the gradient of either."""
    stride = data.draw(st.tuples(*[st.integers(1, 3)] * 2))
    h, w, fine, coarse = data.draw(st.tuples(*[st.integers(1, 7)] * 2, *[st.integers(1, 3)] * 2))
    seed, scales = data.draw(st.integers(0, 2**16)), len(bases.library.grid)
    options: dict[str, Any] = {"stride": stride, "bias": False, "dtype": torch.float64}
    there = ScaleConv(fine, coarse, bases.library, algorithm="dense", **options)
    back = sesn.ScaleConvTranspose(coarse, fine, bases.library, **options)
    weight = slow.uniform(seed, coarse, fine, 1, len(bases.library))
    there.load_state_dict({"weight": weight})
    back.load_state_dict({"weight": weight[:, :, 0].transpose(0, 1)})
    x = slow.uniform(seed + 1, 2, fine, scales, stride[0] * h, stride[1] * w)
    y = slow.uniform(seed + 2, 2, coarse, scales, h, w)
    assert back(y).shape == x.shape
    close((there(x) * y).sum(), (x * back(y)).sum())
    assert back.multiply_adds(y.shape) == there.multiply_adds(x.shape)


def test_a_stride_and_its_transpose_are_equivariant_together() -> None:
    """The finer pixels lie where those before the stride lay."""
    basis = basis_a(ScaleGrid.geometric(2.0, 2**0.5, 4), "wide", 2)
    torch.manual_seed(0)
    down, up = ScaleLift(3, 2, basis, stride=2, bias=False), sesn.ScaleConvTranspose(2, 2, basis, stride=2, bias=False)
    seen = seen_by(nn.Sequential(down, up), photographs(1))
    assert (seen.stride, seen.first, seen.measured) == (1, 0, ())
    assert seen.radius == 2 * (basis.kernel_size // 2)
    error = sesn.Meter(ends="inside").measure(nn.Sequential(down, up).eval(), photographs(2), 2**-0.5)
    assert (error.kind, error.lost) == ("field", 1)
    assert error.valid.median() < 1e-3


def test_a_transposed_convolution_says_what_it_does() -> None:
    layer = sesn.ScaleConvTranspose(2, 4, BASIS, stride=2)
    assert str(layer) == f"ScaleConvTranspose(2 -> 4, basis={BASIS!r}, stride=2)"
    with pytest.raises(sesn.UsageError, match=r"`field\.shape\[2\]` \(=4\) must be 3"):
        layer(torch.zeros(1, 2, 4, 8, 8))
