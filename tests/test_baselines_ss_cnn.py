"""SS-CNN: the harmonics' values, steering against its definition, the maximum over scales, shifts, bad input."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sesn.methods._layer import largest
from sesn.methods.ss_cnn import SSConv, harmonics, radial_frequency

ORDERS = (0.5, 1, 2)


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def slow_harmonic(side: int, order: float, angle: float) -> list[list[complex]]:
    """One harmonic, pixel by pixel, not normalised."""
    kappa = 2 * math.pi * order / math.log(math.sqrt(2) * (side - 1) / 2)
    plane = [[0j] * side for _ in range(side)]
    for row in range(side):
        for column in range(side):
            up, right = side // 2 - row, column - side // 2
            r, phi = (math.hypot(up, right), math.atan2(right, up)) if up or right else (1.0, 0.0)
            ways = [abs(phi - angle - turn * math.pi) for turn in range(-3, 4)]
            if r <= (side - 1) / 2 or not (up or right):
                g = math.exp(-(min(ways) ** 2) / (2 * (math.pi / 16) ** 2)) / r
                plane[row][column] = g * cmath.exp(1j * (kappa * math.log(r) - math.pi / 4))
    return plane


def slow_kernels(layer: SSConv) -> list[Tensor]:
    side = layer.sizes[-1]
    kernels = []
    for size in layer.sizes:
        total = torch.zeros(layer.out_channels, layer.in_channels, side, side, dtype=torch.float64)
        for k, order in enumerate(layer.orders):
            t = -radial_frequency(order, side) * math.log(size / layer.nominal)
            a = layer.real[k] * math.cos(t) - layer.imag[k] * math.sin(t)
            b = layer.real[k] * math.sin(t) + layer.imag[k] * math.cos(t)
            for j in range(layer.angles):
                plane = torch.tensor(
                    slow_harmonic(side, order, j * math.pi / (layer.angles - 1)), dtype=torch.complex128
                )
                real, imag = (part / part.norm() for part in (plane.real, plane.imag))
                total = total + a[..., j, None, None] * real - b[..., j, None, None] * imag
        cut = (side - size) // 2
        kernels.append(total[..., cut : side - cut, cut : side - cut])
    return kernels


# The harmonics


@pytest.mark.parametrize(("side", "kappas"), [(13, (1.469, 2.938, 5.877)), (17, (1.295, 2.590, 5.180))])
def test_radial_frequencies(side: int, kappas: tuple[float, ...]) -> None:
    assert [radial_frequency(order, side) for order in ORDERS] == pytest.approx(kappas, abs=6e-4)


def test_the_harmonics_have_norm_one_and_the_two_ends_agree() -> None:
    for part in harmonics(13, ORDERS, 9):
        torch.testing.assert_close(part.square().sum((-2, -1)), torch.ones(3, 9, dtype=torch.float64))
        torch.testing.assert_close(part[:, 0], part[:, 8])
        assert float(part[..., 0, 0].abs().max()) == 0.0  # the corner lies outside the circle


def test_at_side_three_the_basis_has_rank_two() -> None:
    real, imag = harmonics(3, (1,), 9)
    torch.testing.assert_close(imag, -real)
    assert int(torch.linalg.matrix_rank(torch.cat([real, imag]).reshape(18, 9))) == 2


@pytest.mark.parametrize(("sizes", "nominal", "orders"), [((3, 5, 7), 3, (1,)), ((5, 7), 11, ORDERS)])
def test_kernels_are_steered_as_defined(sizes: tuple[int, ...], nominal: int, orders: tuple[float, ...]) -> None:
    layer = SSConv(2, 3, sizes, nominal, orders, dtype=torch.float64)
    for kernel, expected in zip(layer.kernels(), slow_kernels(layer), strict=True):
        torch.testing.assert_close(kernel, expected)


# The layer


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(7, 7), (4, 15)])
def test_the_layer_keeps_the_largest_response(stride: int, size: tuple[int, int]) -> None:
    layer = SSConv(2, 3, (3, 9, 15), 11, ORDERS, stride=stride, dtype=torch.float64)
    image = normal(2, 2, *size)
    maps = [F.conv2d(image, kernel, stride=stride, padding=kernel.shape[-1] // 2) for kernel in layer.kernels()]
    torch.testing.assert_close(layer(image), torch.stack(maps).amax(0))
    assert layer(image).shape[-2:] == tuple(math.ceil(side / stride) for side in size)


def test_the_first_of_equal_scales_gets_the_gradient() -> None:
    maps = [torch.tensor(values, requires_grad=True) for values in ([1.0, 2.0], [1.0, 3.0], [0.0, 3.0])]
    out = largest(maps)
    out.backward(torch.tensor([5.0, 7.0]))
    assert out.tolist() == [1, 3]
    assert [x.grad.tolist() for x in maps if x.grad is not None] == [[5, 0], [0, 7], [0, 0]]
    with torch.no_grad():
        assert torch.equal(largest(maps), out)


def test_second_derivatives_pass_the_maximum() -> None:
    maps = [normal(2, 3).requires_grad_(), normal(3, 3)[1:].clone().requires_grad_()]
    assert torch.autograd.gradgradcheck(lambda *x: largest([v**3 for v in x]), maps)


def test_released_counts_include_the_unused_constant() -> None:
    mnist = SSConv(2, 3, (5, 7), 11, ORDERS, recipe="released")
    stl = SSConv(2, 3, (3,), 3, (1,), recipe="released")
    assert sum(p.numel() for p in mnist.parameters()) == 55 * 6
    assert sum(p.numel() for p in stl.parameters()) == 19 * 6
    assert [name for name, _ in mnist.named_parameters() if name not in mnist.unused_parameters] == ["real", "imag"]
    assert mnist.unused_parameters == ("const",)
    assert sum(p.numel() for p in SSConv(2, 3, (5, 7), 11, ORDERS).parameters()) == 54 * 6
    mnist(torch.randn(1, 2, 9, 9)).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in (mnist.real, mnist.imag))


def test_the_weights_start_within_their_bound() -> None:
    torch.manual_seed(0)
    layer = SSConv(8, 16, (5, 7), 11, ORDERS)
    bound = math.sqrt(2 / (9 * 8 * 16))
    for part in (layer.real, layer.imag):
        assert 0.9 * bound < float(part.detach().abs().max()) <= bound


def test_shifts_commute_exactly_away_from_the_border() -> None:
    layer = SSConv(1, 2, (3, 5, 7), 5, ORDERS, dtype=torch.float64)
    image = torch.zeros(1, 1, 24, 24, dtype=torch.float64)
    image[..., 9:14, 9:14] = normal(1, 1, 5, 5)
    moved = image.roll((2, 3), (-2, -1))
    torch.testing.assert_close(layer(moved), layer(image).roll((2, 3), (-2, -1)), atol=1e-14, rtol=0)


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sizes": (4,)}, "sizes.*odd"),
        ({"sizes": ()}, "sizes.*one or more"),
        ({"sizes": (7, 5)}, "sizes.*increasing"),
        ({"sizes": (1,)}, "sizes.*at least 3"),
        ({"nominal": 0}, "nominal.*positive"),
        ({"orders": ()}, "orders.*positive"),
        ({"angles": 1}, "angles.*at least 2"),
        ({"recipe": "mine"}, "recipe.*'paper', 'released'"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], words: str) -> None:
    good = {"in_channels": 1, "out_channels": 2, "sizes": (3, 5), "nominal": 3, "orders": (1,)}
    with pytest.raises(ValueError, match=words):
        SSConv(**{**good, **settings})  # type: ignore[arg-type]


def test_bad_maps_are_named() -> None:
    layer = SSConv(2, 3, (3, 5), 3, (1,))
    with pytest.raises(ValueError, match=r"image.shape\[1\].*in_channels"):
        layer(torch.zeros(1, 1, 5, 5))
    with pytest.raises(ValueError, match="4-dimensional"):
        layer(torch.zeros(1, 2, 2, 5, 5))
    with pytest.raises(TypeError, match="sizes"):
        SSConv(1, 2, 3, 3, (1,))  # type: ignore[arg-type]
    assert repr(layer) == "SSConv(2 -> 3, sizes=(3, 5), nominal=3)"
