"""The paper's Appendix A as laws of the layers: translation, scale, both; and how the error falls with resolution."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import assert_same, gaussian_blob, interior, put, relative
from periodic_pictures import pictures
from torch import Tensor

from sesn import ScaleGrid, ScaleLift, basis_a, equivariance_error, rescale, rescale_field, translate
from sesn.strategies import (
    SEEDS,
    bases,
    convs,
    factors,
    images,
    lifts,
    random_conv,
    random_images,
    random_lift,
    random_network,
    scale_grids,
)

SHIFTS = st.tuples(st.integers(-6, 6), st.integers(-6, 6))
#: Two or three scales whose kernels reach from a few pixels to past the border of the drawn images.
SMALL_BASES = bases(scale_grids(count=st.integers(1, 3), ratio=1.5), window=st.sampled_from(["paper", "wide"]))
INTERSCALE_BASES = bases(scale_grids(count=3, ratio=1.5), window=st.sampled_from(["paper", "wide"]))

#: A window of 4.5 sigma cuts off 2 x 4.5 phi(4.5) = 1.4e-4 of a kernel of order 2 on each axis; squared, on two axes:
#: 4e-8 of the kernel's own response. Drawn weights can make the response to a drawn image a few times weaker than that,
#: so 1e-6 for one layer; amplitudes add, so four times as much for two.
WINDOW = 1e-6
#: Up to this many cycles per pixel a kernel with sigma >= 1.3 is resolved: it aliases by exp(-2 pi^2 sigma^2 (1 - f)^2)
#: = 6e-6 of itself, well below what the window cuts off.
RESOLVED = 0.4


def sizes() -> st.SearchStrategy[tuple[int, int]]:
    """N and M: the factor M/N is no integer's inverse in general, yet the image stays periodic."""
    return st.integers(32, 56).flatmap(lambda n: st.tuples(st.just(n), st.integers(math.ceil(n / 2), n - 2)))


def wide_basis(sigma: float, ratio: float, count: int = 2):
    return basis_a(ScaleGrid.geometric(sigma, ratio, count), "wide", 3)


def resolved_images(before: int, after: int, leading: tuple[int, ...] = (1, 1)):
    """Periodic images that are band-limited well enough still when `before` pixels have become `after`."""
    return images(before, leading=leading, exponent=st.floats(0, 2), cutoff=RESOLVED * after / before)


# --- translation


@given(layer=lifts(SMALL_BASES, (1, 2), padding_mode="circular"), image=images(leading=(2, 1)), shift=SHIFTS)
def test_a_circular_lift_commutes_with_every_shift(device, layer, image, shift):
    layer, image = put(layer, device), put(image, device)
    with torch.no_grad():
        assert_same(layer(translate(image, *shift, "circular")), translate(layer(image), *shift, "circular"))


@given(
    layer=convs(INTERSCALE_BASES, (2, 1), padding_mode="circular", interscale=st.integers(1, 3)),
    field=images(leading=(1, 2, 3), height=st.integers(4, 20)),
    shift=SHIFTS,
)
def test_a_circular_convolution_commutes_with_every_shift(device, layer, field, shift):
    layer, field = put(layer, device), put(field, device)
    with torch.no_grad():
        assert_same(layer(translate(field, *shift, "circular")), translate(layer(field), *shift, "circular"))


@given(basis=bases(scale_grids(count=2, ratio=1.5), window="paper"), data=st.data(), shift=SHIFTS)
def test_a_zero_padded_lift_commutes_with_shifts_away_from_the_border(device, basis, data, shift):
    margin = basis.kernel_size // 2 + max(map(abs, shift))
    layer = put(data.draw(lifts(basis, (1, 2))), device)
    image = put(data.draw(images(height=st.integers(2 * margin + 1, 2 * margin + 9), leading=(1, 1))), device)
    with torch.no_grad():
        shifted, response = layer(translate(image, *shift)), translate(layer(image), *shift)
    assert_same(interior(shifted, margin), interior(response, margin))


@given(basis=bases(scale_grids(count=2, ratio=1.5), window="paper"), data=st.data(), shift=SHIFTS)
def test_a_zero_padded_convolution_commutes_with_shifts_away_from_the_border(device, basis, data, shift):
    margin = basis.kernel_size // 2 + max(map(abs, shift))
    layer = put(data.draw(convs(basis, (1, 2), interscale=st.integers(1, 2))), device)
    field = put(data.draw(images(height=st.integers(2 * margin + 1, 2 * margin + 9), leading=(1, 1, 2))), device)
    with torch.no_grad():
        shifted, response = layer(translate(field, *shift)), translate(layer(field), *shift)
    assert_same(interior(shifted, margin), interior(response, margin))


@given(layer=lifts(SMALL_BASES, (1, 1), padding_mode="circular", stride=2), image=images(height=16), shift=SHIFTS)
def test_a_stride_turns_shifts_by_it_into_shifts_by_one(device, layer, image, shift):
    layer, image = put(layer, device), put(image[:, :1], device)
    down, right = shift
    with torch.no_grad():
        shifted = layer(translate(image, 2 * down, 2 * right, "circular"))
        assert_same(shifted, translate(layer(image), down, right, "circular"))


# --- scale


@given(pair=sizes(), sigma=st.floats(1.3, 2.0), seed=SEEDS, data=st.data())
def test_a_lift_commutes_with_scaling(device, pair, sigma, seed, data):
    before, after = pair
    layer = random_lift(wide_basis(sigma, before / after), (1, 4), seed, padding_mode="circular", bias=False)
    image = data.draw(resolved_images(before, after))
    error = equivariance_error(put(layer, device), put(image, device), after / before, resampler="fourier", crop=0)
    assert error.residual < 1e-12
    assert error.valid.item() < WINDOW


@given(pair=sizes(), sigma=st.floats(1.3, 2.0), seed=SEEDS, interscale=st.integers(1, 2), data=st.data())
def test_a_convolution_commutes_with_scaling(device, pair, sigma, seed, interscale, data):
    """On any field, L_s acting on its scales and on space; but not where a filter looks past the largest scale."""
    before, after = pair
    basis = wide_basis(sigma, before / after, 3)
    layer = random_conv(basis, (2, 3), seed, interscale=interscale, padding_mode="circular", bias=False)
    field = data.draw(resolved_images(before, after, leading=(1, 2, 3)))
    layer, field = put(layer, device), put(field, device)

    def act(x: Tensor) -> Tensor:
        return rescale_field(x, after / before, basis.grid, "fourier")[0]

    whole = 3 - 1 - (interscale - 1)
    with torch.no_grad():
        direct, moved = layer(act(field))[:, :, :whole], act(layer(field))[:, :, :whole]
    assert relative(direct, moved) < WINDOW


@pytest.mark.parametrize("interscale", [1, 2])
@given(pair=sizes(), seed=SEEDS, data=st.data())
def test_a_lift_and_a_convolution_commute_with_scaling(device, interscale, pair, seed, data):
    before, after = pair
    basis = wide_basis(1.5, before / after, 3)
    network = random_network(basis, seed, 1, "none", interscale=interscale, padding_mode="circular", channels=3)
    image = data.draw(resolved_images(before, after))
    error = equivariance_error(put(network, device), put(image, device), after / before, resampler="fourier", crop=0)
    assert error.lost == interscale
    assert error.valid.item() < 4 * WINDOW


@given(factor=st.one_of(factors(0.5, 0.95), factors(1.05, 1.6)), sigma=st.floats(1.5, 2.0), seed=SEEDS)
def test_a_zero_padded_lift_is_as_equivariant_as_the_probe_can_tell(device, factor, sigma, seed):
    """Any real factor, up or down, with Lanczos3: the resampler is what is left, as in the probe's own floor."""
    layer = random_lift(wide_basis(sigma, max(factor, 1 / factor)), (1, 4), seed, bias=False)
    image = put(random_images(seed, (1, 1, 64, 64)), device)
    error = equivariance_error(put(layer, device), image, factor)
    # The reference lift weighs its nine functions alike; drawn weights may prefer the ones with the finest detail.
    assert error.valid.item() < 10 * error.floor.item()


# --- resolution


@pytest.mark.parametrize("depth", [0, 1])
@given(picture=pictures(highest=4), sixteenths=st.integers(8, 14), seed=SEEDS)
def test_the_error_falls_as_the_same_picture_is_put_on_finer_grids(device, depth, picture, sixteenths, seed):
    """Kernels grow with the picture, so only their sampling changes: sigma is 0.5, 0.75, 1 and 1.5 pixels."""
    factor, deltas = sixteenths / 16, []
    for size in (32, 48, 64, 96):
        basis = wide_basis(size / 64, 1 / factor)
        network = put(random_network(basis, seed, depth, "none", channels=4, padding_mode="circular"), device)
        error = equivariance_error(network, put(picture.sample(size), device), factor, resampler="fourier", crop=0)
        deltas.append(error.valid.item())
    floor = (depth + 1) ** 2 * WINDOW
    # exp(-2 pi^2 sigma^2 (1 - f)^2) squared, f <= 1/8: 5e-4, 4e-8, ... with the orders' powers of f; then the window.
    assert deltas[1] < max(deltas[0] / 30, floor)
    assert deltas[2] < floor
    assert deltas[3] < floor


# --- the closed form


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("column", [0, 1, 2])
@given(width=st.floats(1.5, 3), grid=scale_grids(smallest=st.floats(1.3, 2), count=2))
def test_a_lifted_gaussian_has_its_closed_form(device, row, column, width, grid):
    """He_n under a Gaussian sigma, correlated with a Gaussian tau, is He_n under rho^2 = sigma^2 + tau^2."""
    layer = ScaleLift(1, 1, basis_a(grid, "wide", 3), bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0, 3 * column + row] = 1.0
        response = put(layer, device)(put(gaussian_blob(41, width), device))[0, 0].cpu()
    for k, sigma in enumerate(grid):
        down, across = (closed_form(order, sigma, width) / norm(order, grid.smallest) for order in (row, column))
        expected = down[:, None] * across
        # the window leaves out 1.4e-4 of a kernel of order 2 on each axis
        torch.testing.assert_close(response[k], expected, rtol=0, atol=3e-4 * float(expected.abs().max()))


def closed_form(order: int, sigma: float, width: float) -> Tensor:
    """One axis of it, at the 41 pixels; a correlation with an odd function changes its sign."""
    rho = math.hypot(sigma, width)
    x = (torch.arange(41, dtype=torch.float64) - 20) / rho
    return math.sqrt(2 * math.pi) * width / rho * (-sigma / rho) ** order * hermite_gauss(order, x)


def norm(order: int, sigma: float) -> float:
    """The norm of the sampled profile, by which the basis divides."""
    return float((hermite_gauss(order, torch.arange(-20, 21, dtype=torch.float64) / sigma) / sigma).norm())


def hermite_gauss(order: int, x: Tensor) -> Tensor:
    return [torch.ones_like(x), x, x.square() - 1][order] * (-0.5 * x.square()).exp()


# --- both


@given(pair=sizes(), shift=SHIFTS, seed=SEEDS, data=st.data())
def test_a_lift_commutes_with_shifting_and_then_scaling(device, pair, shift, seed, data):
    before, after = pair
    basis = wide_basis(1.5, before / after)
    layer = put(random_lift(basis, (1, 4), seed, padding_mode="circular", bias=False), device)
    image = put(data.draw(resolved_images(before, after)), device)
    with torch.no_grad():
        direct = layer(rescale(translate(image, *shift, "circular"), after / before, "fourier"))
        response = translate(layer(image), *shift, "circular")
        moved, partnered = rescale_field(response, after / before, basis.grid, "fourier")
    assert partnered == (0,)
    assert relative(direct[:, :, 0], moved[:, :, 0]) < WINDOW


@given(shift=st.tuples(*[st.integers(-3, 3)] * 2), seed=SEEDS, image=images(48, leading=(1, 1), cutoff=RESOLVED / 2))
def test_scaling_and_shifting_combine_as_in_the_group(device, shift, seed, image):
    """L_s L_t f = L_{s t} L_s f goes through two layers to L_{s t} L_s Phi(f)."""
    network = random_network(wide_basis(1.5, 2.0), seed, 1, "none", padding_mode="circular", channels=3)
    network, image = put(network, device), put(image, device)
    with torch.no_grad():
        far = translate(image, 2 * shift[0], 2 * shift[1], "circular")
        direct = network(rescale(far, 0.5, "fourier"))
        moved, _ = rescale_field(network(image), 0.5, network[0].grid, "fourier")
    assert relative(direct[:, :, 0], translate(moved, *shift, "circular")[:, :, 0]) < 4 * WINDOW
