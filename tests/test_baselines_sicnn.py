"""SiCNN: the supports of the rescaled kernels, their norms, the layers against their definition, shifts, bad input."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sesn.methods.sicnn import SiCNNConv, SiCNNLift, canvas_side

MNIST = (0.3, 0.45, 0.67, 1, 1.49, 2.23, 3.33)
STL = (0.67, 1, 1.5)
RECIPES = ("paper", "released")


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def lift(kernel_size: int, scales: tuple[float, ...], recipe: str, **options: int) -> SiCNNLift:
    torch.manual_seed(3)
    return SiCNNLift(2, 3, kernel_size, scales, recipe=recipe, dtype=torch.float64, **options)  # type: ignore[arg-type]


def released_kernel(weight: Tensor, scale: float, side: int) -> Tensor:
    """The canvas resized by torch itself, cut back, and renormalised."""
    margin = (side - weight.shape[-1]) // 2
    canvas = F.pad(weight, [margin] * 4)
    if scale != 1:
        mode = {"mode": "nearest"} if scale > 1 else {"mode": "bilinear", "align_corners": True}
        canvas = F.interpolate(canvas, scale_factor=scale, recompute_scale_factor=False, **mode)  # type: ignore[arg-type]
    before = (side - canvas.shape[-1]) // 2
    after = side - canvas.shape[-1] - before
    canvas = F.pad(canvas, (before, after, before, after))
    return canvas * (weight.abs().sum((-1, -2)) / canvas.abs().sum((-1, -2)))[..., None, None]


def paper_kernel(weight: Tensor, scale: float, side: int) -> Tensor:
    """The bilinear interpolant of the kernel, zero outside, read off at multiples of 1 / scale from the centre."""
    positions = (torch.arange(side, dtype=torch.float64) - side // 2) / scale
    radius = weight.shape[-1] // 2 + side  # room for zeros around
    wide = F.pad(weight, [side] * 4)
    rows, columns = torch.meshgrid(positions / radius, positions / radius, indexing="ij")
    grid = torch.stack([columns, rows], dim=-1).expand(weight.shape[0], -1, -1, -1)
    canvas = F.grid_sample(wide, grid, mode="bilinear", align_corners=True)
    return canvas * (weight.abs().sum((-1, -2)) / canvas.abs().sum((-1, -2)))[..., None, None]


SLOW = {"released": released_kernel, "paper": paper_kernel}


# The kernels


def test_the_released_supports_of_mnist() -> None:
    layer = lift(7, MNIST, "released")
    assert canvas_side(7, MNIST) == 23
    assert layer.sides == [2, 4, 5, 7, 11, 16, 23]
    off_centre = [2 * first + side - 1 for first, side in zip(layer.firsts, layer.sides, strict=True)]
    assert [abs(twice) for twice in off_centre] == [1, 1, 0, 0, 0, 1, 0]


def test_the_released_supports_of_stl() -> None:
    layer = lift(3, STL, "released")
    assert canvas_side(3, STL) == 5
    assert layer.sides == [1, 3, 4]
    assert layer.firsts == [0, -1, -1]  # rows 1..4 of 0..4
    centre = layer.weight[:, :, 1, 1]
    norm = layer.weight.abs().sum((-1, -2))
    torch.testing.assert_close(layer.kernels()[0][:, :, 0, 0], centre.sign() * norm)


@pytest.mark.parametrize(("kernel_size", "scales"), [(7, MNIST), (3, STL), (1, STL)])
def test_the_paper_recipe_is_centred(kernel_size: int, scales: tuple[float, ...]) -> None:
    layer = lift(kernel_size, scales, "paper")
    assert all(2 * first + side == 1 for first, side in zip(layer.firsts, layer.sides, strict=True))
    assert max(layer.sides) <= canvas_side(kernel_size, scales)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize(("kernel_size", "scales"), [(7, MNIST), (3, STL), (5, (0.5, 1, 2))])
def test_kernels_are_rescaled_with_their_norm(recipe: str, kernel_size: int, scales: tuple[float, ...]) -> None:
    layer = lift(kernel_size, scales, recipe)
    side = canvas_side(kernel_size, scales)
    for kernel, first, scale in zip(layer.kernels(), layer.firsts, layer.scales, strict=True):
        start = first + side // 2
        stop = side - start - kernel.shape[-1]
        whole = F.pad(kernel, (start, stop, start, stop))
        torch.testing.assert_close(whole, SLOW[recipe](layer.weight, scale, side))
        torch.testing.assert_close(kernel.abs().sum((-1, -2)), layer.weight.abs().sum((-1, -2)))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_1x1_kernel_is_the_same_at_all_scales(recipe: str) -> None:
    layer = lift(1, MNIST, recipe)
    for kernel in layer.kernels():
        torch.testing.assert_close(kernel, layer.weight)


# The layers


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(7, 7), (5, 26)])
def test_the_layers_are_their_definition(recipe: str, stride: int, size: tuple[int, int]) -> None:
    image, field = normal(2, 2, *size), normal(2, 2, 7, *size)
    first = lift(7, MNIST, recipe, stride=stride)
    later = SiCNNConv(2, 3, 7, MNIST, stride=stride, recipe=recipe, dtype=torch.float64)  # type: ignore[arg-type]
    lifted, convolved = first(image), later(field)
    assert lifted.shape == (2, 3, 7, *(math.ceil(side / stride) for side in size))
    for i, scale in enumerate(MNIST):
        for layer, x, found in ((first, image, lifted), (later, field[:, :, i], convolved)):
            kernel = SLOW[recipe](layer.weight, scale, 23)
            torch.testing.assert_close(found[:, :, i], F.conv2d(x, kernel, stride=stride, padding=11))


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients(recipe: str) -> None:
    layer = SiCNNConv(1, 2, 3, STL, recipe=recipe, dtype=torch.float64)  # type: ignore[arg-type]
    field = normal(1, 1, 3, 5, 5).requires_grad_()

    def run(x: Tensor, w: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": w}, (x,))

    assert torch.autograd.gradcheck(run, (field, layer.weight.detach().requires_grad_()))


@pytest.mark.parametrize("recipe", RECIPES)
def test_gradients_of_zero_weights_are_finite(recipe: str) -> None:
    layer = lift(3, STL, recipe)
    torch.nn.init.zeros_(layer.weight)
    layer(normal(1, 2, 6, 6)).sum().backward()
    assert layer.weight.grad is not None
    assert bool(layer.weight.grad.isfinite().all())


@pytest.mark.parametrize("recipe", RECIPES)
def test_shifts_commute_exactly_away_from_the_border(recipe: str) -> None:
    layer = lift(3, STL, recipe)
    image = torch.zeros(1, 2, 20, 20, dtype=torch.float64)
    image[..., 7:12, 7:12] = normal(1, 2, 5, 5)
    moved = image.roll((2, 3), (-2, -1))
    torch.testing.assert_close(layer(moved), layer(image).roll((2, 3), (-2, -1)), atol=1e-14, rtol=0)


def test_constants_are_made_once_and_not_saved() -> None:
    layer = lift(3, STL, "paper")
    layer.kernels()
    kept = dict(layer._store._kept)
    layer.kernels()
    assert kept.keys() == layer._store._kept.keys()
    assert all(layer._store._kept[key] is value for key, value in kept.items())
    assert list(layer.state_dict()) == ["weight"]
    assert layer.float()(torch.zeros(1, 2, 5, 5)).dtype == torch.float32


# Bad input


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel_size": 4}, "kernel_size.*odd"),
        ({"scales": ()}, "scales.*positive"),
        ({"scales": (1, -2)}, "scales.*positive"),
        ({"scales": (2, 1)}, "scales.*increasing"),
        ({"scales": (0.01, 1), "recipe": "released"}, "scales.*0.01.*large enough"),
        ({"recipe": "mine"}, "recipe.*'paper', 'released'"),
        ({"stride": 0}, "stride.*at least 1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SiCNNLift(**{"in_channels": 1, "out_channels": 2, "kernel_size": 3, "scales": STL, **settings})  # type: ignore[arg-type]


def test_bad_fields_are_named() -> None:
    layer = SiCNNConv(2, 3, 3, STL)
    with pytest.raises(ValueError, match=r"field.shape\[2\].*number of scales"):
        layer(torch.zeros(1, 2, 2, 5, 5))
    with pytest.raises(ValueError, match="5-dimensional"):
        layer(torch.zeros(1, 2, 5, 5))
    with pytest.raises(TypeError, match=r"scales.*sequence"):
        SiCNNLift(1, 2, 3, 7)  # type: ignore[arg-type]


def test_the_repr_says_in_and_out() -> None:
    expected = "SiCNNConv(2 -> 3, kernel_size=3, scales=(0.67, 1, 1.5), recipe='released')"
    assert repr(SiCNNConv(2, 3, 3, STL, recipe="released")) == expected
