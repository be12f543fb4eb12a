"""The group H of scalings and translations, its action on functions, and its discrete action on images and fields."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import assert_same, put
from torch import Tensor

from sesn import ScaleGrid, ScaleTranslation, rescale, rescale_field, translate
from sesn.strategies import images, scale_grids

Function = Callable[[Tensor], Tensor]

POSITIONS = st.tuples(st.floats(-3, 3), st.floats(-3, 3))
ELEMENTS = st.builds(ScaleTranslation, st.floats(0.25, 4), POSITIONS)
POINTS = st.lists(POSITIONS, min_size=1, max_size=4).map(lambda points: torch.tensor(points, dtype=torch.float64))
SHIFTS = st.tuples(st.integers(-5, 5), st.integers(-5, 5))


def bump(points: Tensor) -> Tensor:
    """A function on the plane without symmetry: no group element but the identity leaves it as it is."""
    down, right = points.unbind(-1)
    return torch.exp(-((down - 0.3).square() + 2 * (right + 0.5).square()) / 8) + 0.1 * torch.sin(down + 2 * right)


def act(g: ScaleTranslation, f: Function) -> Function:
    """L_g f(x) = f(g^-1 x)."""
    return lambda points: f(g.inverse().move(points))


def assert_same_element(got: ScaleTranslation, expected: ScaleTranslation) -> None:
    assert got.scale == pytest.approx(expected.scale, rel=1e-12)
    assert got.translation == pytest.approx(expected.translation, rel=1e-12, abs=1e-12)


@given(ELEMENTS, ELEMENTS)
def test_the_product_is_that_of_the_paper(g2, g1):
    (down2, right2), (down1, right1) = g2.translation, g1.translation
    product = (g2.scale * down1 + down2, g2.scale * right1 + right2)
    assert_same_element(g2 @ g1, ScaleTranslation(g2.scale * g1.scale, product))


@given(ELEMENTS, ELEMENTS, ELEMENTS)
def test_the_product_is_associative(g3, g2, g1):
    assert_same_element((g3 @ g2) @ g1, g3 @ (g2 @ g1))


@given(ELEMENTS)
def test_the_inverse_undoes_an_element_from_either_side(g):
    assert_same_element(g @ g.inverse(), ScaleTranslation(1.0))
    assert_same_element(g.inverse() @ g, ScaleTranslation(1.0))


@given(ELEMENTS)
def test_scale_1_without_translation_is_the_identity(g):
    assert g @ ScaleTranslation(1.0) == g
    assert ScaleTranslation(1.0) @ g == g


@given(ELEMENTS, ELEMENTS, POINTS)
def test_a_product_moves_points_one_element_after_the_other(g2, g1, points):
    assert_same((g2 @ g1).move(points), g2.move(g1.move(points)))


@given(ELEMENTS, ELEMENTS, POINTS)
def test_the_action_on_functions_is_a_homomorphism(g2, g1, points):
    assert_same(act(g2 @ g1, bump)(points), act(g2, act(g1, bump))(points))


@given(st.floats(0.25, 4), POSITIONS, POINTS)
def test_a_scaling_passes_a_translation_by_scaling_it(s, t, points):
    """L_s L_t = L_{s t} L_s."""
    scaling, shift = ScaleTranslation(s), ScaleTranslation(1.0, t)
    scaled_shift = ScaleTranslation(1.0, (s * t[0], s * t[1]))
    assert_same(act(scaling, act(shift, bump))(points), act(scaled_shift, act(scaling, bump))(points))


def test_scalings_and_translations_do_not_commute():
    scaling, shift, origin = ScaleTranslation(2.0), ScaleTranslation(1.0, (1.0, 0.0)), torch.zeros(1, 2)
    one_way, other_way = act(scaling, act(shift, bump)), act(shift, act(scaling, bump))
    assert (one_way(origin) - other_way(origin)).abs().item() > 0.01
    assert scaling @ shift != shift @ scaling


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_is_no_positive_number_is_rejected(scale):
    with pytest.raises(ValueError, match=r"`scale`.*must be positive"):
        ScaleTranslation(scale)


@given(image=images(), first=SHIFTS, second=SHIFTS)
def test_circular_translations_add_up(device, image, first, second):
    image = put(image, device)
    twice = translate(translate(image, *first, "circular"), *second, "circular")
    assert torch.equal(twice, translate(image, first[0] + second[0], first[1] + second[1], "circular"))


@given(image=images(height=st.integers(4, 8), width=st.integers(4, 8)), shift=SHIFTS)
def test_a_translation_moves_pixels_and_fills_with_zeros(device, image, shift):
    image = put(image, device)
    moved = translate(image, *shift)
    for row, column in [(0, 0), (image.shape[-2] // 2, image.shape[-1] - 1), (image.shape[-2] - 1, 0)]:
        i, j = row - shift[0], column - shift[1]
        inside = 0 <= i < image.shape[-2] and 0 <= j < image.shape[-1]
        expected = image[..., i, j] if inside else torch.zeros_like(image[..., 0, 0])
        assert torch.equal(moved[..., row, column], expected)


@given(grid=scale_grids(count=st.integers(2, 4)), data=st.data())
def test_rescaling_a_field_shifts_its_scales_without_wrap(device, grid, data):
    field = put(data.draw(images(leading=(1, 2, len(grid)), height=16)), device)
    shift = data.draw(st.integers(1 - len(grid), len(grid) - 1).filter(bool))
    factor = (grid.smallest / grid.sigmas[abs(shift)]) ** math.copysign(1, shift)
    moved, partnered = rescale_field(field, factor, grid)
    assert partnered == tuple(k for k in range(len(grid)) if 0 <= k + shift < len(grid))
    for k in range(len(grid)):
        came = rescale(field[:, :, k + shift], factor) if k in partnered else torch.zeros_like(moved[:, :, k])
        assert_same(moved[:, :, k], came)


@given(grid=scale_grids(count=3), field=images(leading=(1, 1, 3)))
def test_rescaling_a_field_by_1_returns_it(device, grid, field):
    field = put(field, device)
    moved, partnered = rescale_field(field, 1.0, grid)
    assert torch.equal(moved, field)
    assert partnered == (0, 1, 2)


def test_a_field_of_another_length_than_the_grid_is_rejected():
    with pytest.raises(ValueError, match=r"`field.shape\[2\]` \(=2\) must be the grid's length \(3\)"):
        rescale_field(torch.zeros(1, 1, 2, 8, 8), 0.5, ScaleGrid([1.0, 2.0, 4.0]))


def test_rescaling_can_be_exported():
    class Half(torch.nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return rescale(image, 0.5)

    image = torch.linspace(-1, 1, 300 * 300).reshape(1, 1, 300, 300).sin()
    found = torch.export.export(Half(), (torch.zeros_like(image),), strict=False).module()(image)
    assert_same(found, rescale(image, 0.5))
