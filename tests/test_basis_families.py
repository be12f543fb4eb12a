"""The B-spline, Fourier-Bessel and log-radial families against independent evaluations, in layers and in the tools."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.special
import slow
import torch
from hypothesis import given
from measures import EXPORTS
from scipy.interpolate import BSpline
from test_basis import assert_steers
from torch import nn

import sesn
from sesn import ScaleGrid, SteerableBasis
from sesn.basis.bessel import bessel_j, bessel_zeros
from sesn.basis.bspline import cardinal_bspline
from sesn.basis.fourier_bessel import slowest_waves
from sesn.errors import UsageError, WrongTypeError
from sesn.tools.causes import causes


def published(smallest: float) -> ScaleGrid:
    """Four scales a third of an octave apart, rounded to two decimals."""
    return ScaleGrid([round(smallest * 2 ** (i / 3), 2) for i in range(4)])


#: As in the comparison of bases (MNIST-scale at 56 pixels, without and with random scaling).
FAMILIES: dict[str, Callable[[], SteerableBasis]] = {
    "bspline": lambda: sesn.basis_bspline(published(0.6), 15, 7, degree=2, mult=2.0),
    "bspline+": lambda: sesn.basis_bspline(published(0.6), 15, 7, degree=1, mult=3.0),
    "bessel": lambda: sesn.basis_fourier_bessel(published(0.88), 15, 7),
    "bessel+": lambda: sesn.basis_fourier_bessel(published(0.6), 15, 7),
    "log-radial": lambda: sesn.basis_log_radial(published(0.1), 15, 7, directions=11, width=0.2),
    "log-radial+": lambda: sesn.basis_log_radial(published(0.5), 15, 7, directions=10, width=0.3),
}
#: Small ones for layers.
GRID = ScaleGrid([0.8, 1.12])
SMALL: dict[str, SteerableBasis] = {
    "bspline": sesn.basis_bspline(GRID, 7, 3),
    "bessel": sesn.basis_fourier_bessel(GRID, 7, 3, radius=4.5),
    "bessel wide": sesn.basis_fourier_bessel(GRID, "wide", 3, radius=3.5),
    "log-radial": sesn.basis_log_radial(GRID, 7, 3, directions=4),
    "samples": SteerableBasis.from_samples([torch.eye(9).reshape(9, 3, 3), torch.randn(9, 5, 5)], GRID),
}

# Bessel functions


@given(st.integers(0, 30), st.lists(st.floats(0, 90), min_size=1, max_size=20))
def test_bessel_functions_are_scipys(order: int, places: list[float]) -> None:
    x = np.array(places)
    np.testing.assert_allclose(bessel_j(order, x), scipy.special.jv(order, x), rtol=0, atol=5e-14)


@given(st.integers(0, 20), st.integers(1, 12))
def test_their_zeros_are_scipys(order: int, count: int) -> None:
    np.testing.assert_allclose(bessel_zeros(order, count), scipy.special.jn_zeros(order, count), rtol=1e-13)


# Slow definitions


def slow_bspline(degree: int, mult: float, spread: float):
    spline = BSpline.basis_element(np.arange(degree + 2) - (degree + 1) / 2, extrapolate=False)

    def line(coordinate: float, centre: float) -> float:
        return float(np.nan_to_num(spline((coordinate - centre) * mult / spread)))

    def value(n: int, x: int, y: int, radius: int, sigma: float) -> float:
        centres = np.linspace(-1, 1, 7) * spread
        return line(x / radius, centres[n // 7]) * line(y / radius, centres[n % 7])

    return value


WAVES = sorted(
    (zero, k, part) for k in range(30) for zero in scipy.special.jn_zeros(k, 10) for part in "cs"[: 1 + (k > 0)]
)


def slow_bessel(n: int, x: int, y: int, radius: int, sigma: float) -> float:
    zero, k, part = WAVES[n]
    r, theta = math.hypot(x, y) / (7.5 * sigma), math.atan2(y, x)
    if r >= 1:
        return 0.0
    turn = {"c": math.cos, "s": math.sin}[part](k * theta) * (math.sqrt(2) if k else 1)
    return float(turn * scipy.special.jv(k, zero * r) / abs(scipy.special.jv(k + 1, zero)))


def slow_log_radial(directions: int, width: float):
    def value(n: int, x: int, y: int, radius: int, sigma: float) -> float:
        order = (0.5, 1, 2)[n // 2 // directions]
        phi_j = math.pi * (n // 2 % directions) / (directions - 1)
        r, phi = (math.hypot(x, y), math.atan2(x, -y)) if x or y else (1.0, 0.0)
        if math.hypot(x, y) > radius:
            return 0.0
        turns = [abs((phi - phi_j - m * math.pi + math.pi) % (2 * math.pi) - math.pi) for m in (0, 1)]
        kappa = 2 * math.pi * order / math.log(math.sqrt(2) * radius / sigma)
        wave = (math.cos, math.sin)[n % 2](kappa * math.log(r / sigma) - math.pi / 4)
        return math.exp(-(min(turns) ** 2) / (2 * width**2)) / (r / sigma) * wave

    return value


SLOW = {
    "bspline": slow_bspline(2, 2.0, 0.6),
    "bspline+": slow_bspline(1, 3.0, 0.6),
    "bessel": slow_bessel,
    "bessel+": slow_bessel,
    "log-radial": slow_log_radial(11, 0.2),
    "log-radial+": slow_log_radial(10, 0.3),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_functions_are_those_of_the_definition(name: str) -> None:
    """Some functions at all scales, pixel by pixel, on the paper's boxes and normalised at the smallest scale."""
    basis, value = FAMILIES[name](), SLOW[name]
    assert basis.boxes == tuple(slow.paper_boxes(basis.grid.sigmas, 15)) == (7, 9, 11, 15)
    for n in (0, 3, 10, 24, 37, 48):
        planes = [
            np.array([[value(n, x, y, r, s) for x in range(-r, r + 1)] for y in range(-r, r + 1)]) / s**2
            for s, r in ((s, box // 2) for s, box in zip(basis.grid, basis.boxes, strict=True))
        ]
        for k, plane in enumerate(planes):
            expected = plane / np.linalg.norm(planes[0])
            np.testing.assert_allclose(basis.scale_functions(k)[n].numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_there_are_forty_nine_of_norm_one_at_the_smallest_scale(name: str) -> None:
    basis = FAMILIES[name]()
    norms = basis.functions[:, 0].flatten(1).norm(dim=1)
    assert basis.functions.shape == (49, 4, 15, 15)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-13, atol=0)


@given(st.integers(0, 5), st.floats(-4, 4))
def test_cardinal_splines_sum_to_one(degree: int, shift: float) -> None:
    total = sum(cardinal_bspline(np.array([shift + k]), degree) for k in range(-12, 13))
    np.testing.assert_allclose(total, 1, rtol=1e-12)


# Steering


@given(st.sampled_from([2, 3]), st.floats(0.5, 2.0))
def test_fourier_bessel_functions_steer(q: int, sigma: float) -> None:
    assert_steers(sesn.basis_fourier_bessel(ScaleGrid([sigma, q * sigma]), "wide", 4, radius=4.0), q)


@pytest.mark.parametrize("q", [3, 5])
def test_splines_and_log_radial_harmonics_steer_where_the_boxes_have_the_ratio(q: int) -> None:
    """Boxes 2r + 1 and 2qr + 1; the centre of a log-radial harmonic is as far out as a pixel, at every scale."""
    grid = ScaleGrid([0.8, 0.8 * q])
    assert_steers(sesn.basis_bspline(grid, 7 * q, 3).resampled(grid, [7, 6 * q + 1]), q)
    radial = sesn.basis_log_radial(grid, 7 * q, 3).resampled(grid, [7, 6 * q + 1])
    small, large = radial.scale_functions(0).clone(), radial.scale_functions(1)[:, ::q, ::q].clone()
    small[:, 3, 3] = large[:, 3, 3] = 0
    torch.testing.assert_close(large, small / q**2, rtol=1e-10, atol=1e-13)


def test_fourier_bessel_functions_are_orthogonal_on_a_fine_grid() -> None:
    basis = sesn.basis_fourier_bessel(ScaleGrid([30.0]), "wide", 5, radius=4.0)
    flat = basis.scale_functions(0).flatten(1)
    torch.testing.assert_close(flat @ flat.t(), torch.eye(25, dtype=torch.float64), rtol=0, atol=2e-3)


def test_a_wave_is_left_out_if_its_next_zero_is_too_high() -> None:
    """J_0 has its zeros at 2.4, 5.5 and 8.7, J_1 at 3.8 and 7.02, J_2 at 5.1 and 8.4: below 7, one has a successor."""
    assert [(round(wave.zero, 1), wave.order) for wave in slowest_waves(49, 7.0)] == [(2.4, 0)]
    assert [wave.order for wave in slowest_waves(49, 7.1)] == [0, 1, -1]


def test_a_wide_window_holds_the_whole_disc() -> None:
    grid = ScaleGrid([1.3, 2.6])
    wide = sesn.basis_fourier_bessel(grid, "wide", 3, radius=3.0)
    wider = wide.resampled(grid, [box + 4 for box in wide.boxes])
    assert wide.boxes == (7, 15)
    torch.testing.assert_close(wider.functions[..., 2:-2, 2:-2], wide.functions, rtol=1e-13, atol=0)


# Layers


def layer_of(basis: SteerableBasis, algorithm: str) -> nn.Module:
    torch.manual_seed(0)
    kinds = {"algorithm": algorithm, "dtype": torch.float64}
    return nn.Sequential(sesn.ScaleLift(5, 6, basis, **kinds), nn.ReLU(), sesn.ScaleConv(6, 4, basis, **kinds))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("algorithm", ["auto", "spectral", "separable"])
def test_every_algorithm_that_can_gives_the_same(name: str, algorithm: str) -> None:
    basis, image = SMALL[name], torch.randn(2, 5, 13, 10, dtype=torch.float64)
    if algorithm == "separable" and not basis.separable:
        with pytest.raises(UsageError, match=r"'separable'\) needs products.*use 'dense', 'spectral' or 'auto'"):
            layer_of(basis, algorithm)
        return
    torch.testing.assert_close(
        layer_of(basis, algorithm)(image), layer_of(basis, "dense")(image), rtol=1e-9, atol=1e-12
    )


def test_the_chooser_takes_the_spectral_way_for_large_boxes_and_never_the_separable_one() -> None:
    basis = sesn.basis_fourier_bessel(ScaleGrid([1.0, 4.0]), "wide", 5, radius=4.0)
    conv = sesn.ScaleConv(16, 16, basis)
    chosen = conv.plan((2, 16, 2, 40, 40)).algorithms
    assert "separable" not in chosen
    assert chosen[1] == "spectral"


@EXPORTS
@pytest.mark.parametrize("name", SMALL)
def test_layers_of_every_family_compile_export_and_learn(name: str) -> None:
    network = layer_of(SMALL[name], "auto").float()
    image = torch.randn(2, 5, 9, 8)
    expected = network(image)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(image), expected, rtol=1e-4, atol=1e-5)
    program = torch.export.export(network.eval(), (image,)).module()
    torch.testing.assert_close(program(image), expected, rtol=1e-4, atol=1e-5)
    network(image).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in network.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_copies_pickles_and_states_know_their_family(name: str) -> None:
    basis = SMALL[name]
    for same in (copy.deepcopy(basis), pickle.loads(pickle.dumps(basis))):
        assert (repr(same), same.signature) == (repr(basis), basis.signature)
    other = sesn.ScaleLift(1, 2, sesn.basis_a(GRID, 7, 3))
    with pytest.raises(RuntimeError, match="belong to other constants"):
        other.load_state_dict(sesn.ScaleLift(1, 2, basis).state_dict())


def test_a_convolution_is_fitted_in_any_family() -> None:
    conv = nn.Conv2d(2, 3, 3)
    fitted = sesn.ScaleLift.from_conv2d(
        conv, SteerableBasis.from_samples([torch.eye(9).reshape(9, 3, 3)], ScaleGrid([1.0]))
    )
    assert fitted.residual < 1e-6


# The tools


@pytest.mark.parametrize("name", SMALL)
def test_the_tools_work_with_every_family(name: str) -> None:
    """Causes of the error are split, and the diagnosis words no advice that does not apply."""
    lift = sesn.ScaleLift(1, 2, SMALL[name], bias=False).eval()
    images = torch.rand(1, 1, 40, 40, dtype=torch.float64)
    split = causes(lift, images, 1 / GRID.ratio)
    notes = {step.cause: step.note for step in split.steps}
    fixed = f"a basis made by {SMALL[name].name} cannot be sampled on another window or grid"
    assert (fixed in notes["kernel sampling"]) == (name == "samples")
    changes = {step.cause: step.change for step in split.steps}
    assert ("→ 4.5 sigma" in changes["kernel window"]) == (name == "bessel")
    error = sesn.equivariance_error(lift, images, 1 / GRID.ratio)
    found = {finding.cause for finding in sesn.diagnose(lift, images, error)}
    assert ("truncated windows" in found) == (name in ("bessel", "samples"))
    assert "undersampled functions" not in found


def test_what_a_family_reaches() -> None:
    reaches = {name: basis.reach for name, basis in SMALL.items()}
    assert reaches == {"bspline": 0, "bessel": 4.5, "bessel wide": 3.5, "log-radial": 0, "samples": None}
    with pytest.raises(UsageError, match="from_samples cannot be sampled on another"):
        SMALL["samples"].resampled(GRID, [3, 5])


# Bad input

WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: sesn.basis_bspline(GRID, "wide", 3), UsageError, r"`window` \(='wide'\) must be an odd number"),
    (lambda: sesn.basis_bspline(GRID, 7, 3, degree=-1), UsageError, r"`degree` \(=-1\)"),
    (lambda: sesn.basis_bspline(GRID, 7, 3, mult=0.0), UsageError, r"`mult` \(=0.0\)"),
    (lambda: sesn.basis_bspline(GRID, 7, 3, spread=-1.0), UsageError, r"`spread` \(=-1.0\)"),
    (lambda: sesn.basis_bspline(GRID, 7, 7, degree=0, mult=30.0), UsageError, "norm 0.0 on the smallest"),
    (lambda: sesn.basis_bspline(3, 7, 3), WrongTypeError, r"`grid` \(=3\)"),  # type: ignore[arg-type]
    (lambda: sesn.basis_fourier_bessel(GRID, "wide", 3), UsageError, "`radius` must be given for window='wide'"),
    (lambda: sesn.basis_fourier_bessel(GRID, 7, 3, radius=-2.0), UsageError, r"`radius` \(=-2.0\)"),
    (lambda: sesn.basis_fourier_bessel(GRID, 7, 7, radius=1.0), UsageError, r"`effective_size` \(=7\).*raise `radius`"),
    (lambda: sesn.basis_log_radial(GRID, 7, 3, directions=1), UsageError, r"`directions` \(=1\).*at least 2"),
    (lambda: sesn.basis_log_radial(GRID, 7, 3, width=0.0), UsageError, r"`width` \(=0.0\)"),
    (lambda: sesn.basis_log_radial(ScaleGrid([3.0, 4.0]), 5, 3), UsageError, r"`sigma` \(=3.0\).*corners"),
    (
        lambda: SteerableBasis.from_samples([torch.ones(1, 3, 3)], GRID),
        UsageError,
        r"`boxes` \(=\(3,\)\).*one per scale",
    ),
    (lambda: SteerableBasis.from_samples([3, 4], GRID), WrongTypeError, r"`samples\[0\]` \(=3\)"),  # type: ignore[list-item]
    (lambda: SteerableBasis.from_samples([torch.ones(1, 3, 3), torch.ones(2, 3, 3)], GRID), UsageError, "same n"),
    (lambda: SteerableBasis.from_samples([torch.ones(1, 2, 2)] * 2, GRID), UsageError, "odd"),
    (lambda: SteerableBasis.from_samples([torch.zeros(1, 3, 3)] * 2, GRID), UsageError, "norm 0.0"),
    (lambda: SteerableBasis(GRID, [3, 5]), UsageError, "exactly one of `pairs`"),
]


@pytest.mark.parametrize(("make", "error", "words"), WRONG)
def test_bad_input_is_named(make: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
