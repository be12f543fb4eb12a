"""The meter certified: exact oracles, its floor and ceiling; what it pairs, counts, reads and refuses."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from measures import ROUNDING, put
from torch import Tensor, nn

import sesn
from sesn import ScaleGrid, basis_a, equivariance_error, rescale
from sesn.algorithms.resample import RESAMPLERS
from sesn.methods.riesz import RieszConv
from sesn.strategies import SEEDS, bases, images, networks, random_conv, random_images, random_lift, scale_grids

SQRT_HALF = 0.5**0.5


def wide_basis(ratio: float, count: int = 2, orders: int = 3) -> sesn.SteerableBasis:
    return basis_a(ScaleGrid.geometric(1.5, ratio, count), "wide", orders)


class Dilated(nn.Module):
    """A stack of kernels at scale 0, and of the same kernels dilated by 2 at scale 1."""

    grid = ScaleGrid([1.0, 2.0])

    def __init__(self, seed: int, depth: int, padding_mode: str = "circular") -> None:
        super().__init__()
        kernels = torch.randn(depth, 1, 1, 3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.register_buffer("kernels", kernels)
        self.mode = "circular" if padding_mode == "circular" else "constant"

    def forward(self, image: Tensor) -> Tensor:
        scales = []
        for dilation in (1, 2):
            x = image
            for kernel in self.kernels:
                x = F.conv2d(F.pad(x, [dilation] * 4, self.mode), kernel, dilation=dilation)
            scales.append(x)
        return torch.stack(scales, dim=2)


class CopyAlongScale(nn.Module):
    def __init__(self, scales: int) -> None:
        super().__init__()
        self.scales = scales

    def forward(self, image: Tensor) -> Tensor:
        return image.unsqueeze(2).expand(-1, -1, self.scales, -1, -1)


# --- certified


@given(image=images(height=st.integers(16, 32)), factor=st.floats(0.4, 2.5), resampler=st.sampled_from(RESAMPLERS))
def test_the_identity_network_is_equivariant(device, image, factor, resampler):
    error = equivariance_error(nn.Identity(), put(image, device), factor, resampler=resampler)
    assert error.kind == "map"
    assert error.valid.max() == 0
    assert error.ceiling is not None
    assert error.ceiling.min() > 0


@given(network=networks(bases(scale_grids(count=2), orders=2)), seed=SEEDS)
def test_a_network_and_itself_differ_by_exactly_nothing(device, network, seed):
    error = equivariance_error(put(network, device), put(random_images(seed, (2, 1, 12, 12)), device), 1.0)
    assert error.valid.max() == error.all.max() == 0
    assert error.lost == 0


@given(seed=SEEDS, depth=st.integers(1, 8), size=st.sampled_from([32, 64]), resampler=st.sampled_from(RESAMPLERS))
def test_a_kernel_and_its_dilated_copy_are_an_exact_oracle(device, seed, depth, size, resampler):
    """Decimation's noble identity: filtering by the dilated kernel and shrinking is shrinking and filtering."""
    network, image = put(Dilated(seed, depth), device), put(random_images(seed, (2, 1, size, size), 0.0), device)
    error = equivariance_error(network, image, 0.5, resampler=resampler, ends="circular", crop=0)
    assert error.pairs == ((0, 1),)
    assert error.valid.max() < 1e-28


def riesz_error(device: torch.device, seed: int, side: int, small: int) -> float:
    """The largest Delta of a linear Riesz layer on two images of white noise."""
    layer = put(RieszConv(1, 2, bias=False).double(), device).eval()
    with torch.no_grad():
        layer.mix.weight.copy_(random_images(seed, (1, 1, 2, 5)).reshape(2, 5, 1, 1))
    image = put(random_images(seed, (2, 1, side, side), 0.0), device)
    return equivariance_error(layer, image, small / side, resampler="fourier", crop=0).valid.max().item()


@given(seed=SEEDS)
def test_riesz_transforms_are_an_exact_oracle(device, seed):
    """They multiply a wave by a number that depends on its direction alone, which no factor changes."""
    assert riesz_error(device, seed, 96, 68) <= 1e-28


@given(seed=SEEDS, side=st.sampled_from([95, 96]), small=st.integers(24, 94))
def test_they_are_one_at_every_factor(device, seed, side, small):
    assert riesz_error(device, seed, side, small) <= ROUNDING


class LengthSeen(RieszConv):
    """A Riesz layer whose multipliers depend on a wave's length in pixels, by one part in a million."""

    def _spectra(self, image: Tensor) -> Tensor:
        spectra = super()._spectra(image)
        return spectra * torch.linspace(1, 1 + 1e-6, spectra.shape[-1], dtype=torch.float64, device=image.device)


def test_a_riesz_layer_that_sees_the_length_of_a_wave_is_caught(device):
    torch.manual_seed(0)
    layer = put(LengthSeen(1, 2, bias=False).double(), device).eval()
    image = put(random_images(0, (2, 1, 96, 96)), device)
    assert equivariance_error(layer, image, 68 / 96, resampler="fourier", crop=0).valid.min() > 1e-18


def test_at_the_border_zero_padding_breaks_the_oracle(device):
    network, image = put(Dilated(0, 4, "zeros"), device), put(random_images(0, (1, 1, 64, 64)), device)
    whole = equivariance_error(network, image, 0.5, crop=0)
    inside = equivariance_error(network, image, 0.5, crop=12)  # 4 layers of radius 1 and Lanczos' 3, with room to spare
    assert inside.valid.item() < 1e-28
    assert whole.valid.item() > 1e-4
    energy, kept = whole.energy.item() * 32**2, inside.energy.item() * (32 - 2 * 12) ** 2
    assert inside.border.item() == pytest.approx(whole.valid.item() * energy / (energy - kept))


@pytest.mark.parametrize(("resampler", "most"), [("lanczos3", 1e-5), ("fourier", 1e-8)])
@given(seed=SEEDS)
def test_the_floor_is_low(device, resampler, most, seed):
    image = put(random_images(seed, (2, 1, 96, 96)), device)
    mode = "circular" if resampler == "fourier" else "zeros"
    lift = put(random_lift(wide_basis(2.0), (1, 4), seed, padding_mode=mode, bias=False), device)
    error = equivariance_error(lift, image, 0.5, resampler=resampler)
    assert error.floor.max() < most
    assert error.ceiling.min() > 0.1  # unrelated responses: of order 1


# --- what is compared


@given(
    scales=st.integers(2, 5),
    steps=st.integers(1, 4),
    layers=st.integers(1, 2),
    interscale=st.integers(1, 5),
    seed=SEEDS,
)
def test_scales_are_lost_to_the_shift_and_to_every_interscale_layer(device, scales, steps, layers, interscale, seed):
    interscale, steps = min(interscale, scales), min(steps, scales - 1)
    basis = basis_a(ScaleGrid.geometric(1.0, 1.25, scales), 5, 2)
    convolutions = [random_conv(basis, (1, 1), seed, interscale=interscale) for _ in range(layers)]
    network = put(nn.Sequential(CopyAlongScale(scales), *convolutions), device)
    error = equivariance_error(network, put(random_images(seed, (1, 1, 20, 20)), device), 1.25**-steps)
    whole = max(0, scales - steps - layers * (interscale - 1))
    assert error.pairs == tuple((k, k + steps) for k in range(scales - steps))
    assert error.lost == scales - whole
    assert error.by_scale.shape == (scales - steps, 1)
    assert bool(error.valid.isnan().all()) == (whole == 0)
    assert bool(error.all.isfinite().all())


def test_with_as_many_interacting_scales_as_there_are_no_channel_is_valid(device):
    basis = wide_basis(2**0.5, 3, orders=1)
    network = put(nn.Sequential(CopyAlongScale(3), random_conv(basis, (1, 1), 0, interscale=3)), device)
    error = equivariance_error(network, put(random_images(0, (1, 1, 32, 32)), device), SQRT_HALF)
    assert error.valid.isnan().all()
    assert error.energy.isnan().all()
    assert error.lost == 3


def test_truncation_alone_grows_with_the_interacting_scales(device):
    """The paper's right panel: an image copied along S, one layer, whose filters meet zeros past the largest scale."""
    basis = wide_basis(2**0.5, 5)
    image = put(random_images(0, (4, 1, 96, 96)), device)
    everything = []
    for interscale in range(1, 5):
        layer = random_conv(basis, (1, 16), 0, interscale=interscale, bias=False)
        error = equivariance_error(put(nn.Sequential(CopyAlongScale(5), layer), device), image, SQRT_HALF)
        everything.append(error.all.mean().item())
        # Only the smallest scales stay valid, whose responses have the finest detail; the resampler's part grows a bit.
        assert (error.valid < 5 * error.floor).all()
    assert everything[0] < 1e-5
    assert everything[1] == pytest.approx(0.1, rel=0.4)
    assert everything == sorted(everything)
    assert everything[3] > 2 * everything[1]


def test_between_two_steps_of_the_grid_the_residual_is_reported(device):
    lift = put(random_lift(wide_basis(2.0), (1, 2), 0, bias=False), device)
    image = put(random_images(0, (1, 1, 64, 64)), device)
    error = equivariance_error(lift, image, 0.6)
    assert error.pairs == ((0, 1),)
    assert error.residual == pytest.approx(math.log(1.2))
    assert not error.on_grid
    assert error.valid.item() > 100 * equivariance_error(lift, image, 0.5).valid.item()
    assert equivariance_error(lift, image, 0.5 * 1.01).on_grid  # published sigmas are rounded


def test_a_factor_beyond_the_grid_compares_nothing_and_says_so(device):
    lift = put(random_lift(wide_basis(1.2), (1, 1), 0), device)
    error = equivariance_error(lift, put(random_images(0, (2, 1, 32, 32)), device), 0.5)
    assert error.pairs == ()
    assert error.lost == 2
    assert torch.stack([error.valid, error.all, error.centred, error.ceiling, error.energy]).isnan().all()
    assert not error.on_grid


# --- what is read


@pytest.mark.parametrize(
    ("pools", "kind", "lost"),
    [
        ([], "field", 1),
        ([sesn.ScaleProjection()], "map", 0),
        ([sesn.GlobalPool()], "scale", 1),
        ([sesn.ScaleProjection(), sesn.GlobalPool()], "invariant", 0),
    ],
)
def test_the_rank_of_the_output_tells_what_it_is(device, pools, kind, lost):
    network = put(nn.Sequential(random_lift(wide_basis(2.0), (1, 2), 0), *pools), device)
    image = put(random_images(0, (3, 1, 48, 48)), device)
    error, asked = equivariance_error(network, image, 0.5), equivariance_error(network, image, 0.5, kind=kind)
    assert (error.kind, error.lost) == (asked.kind, asked.lost) == (kind, lost)
    assert error.valid.shape == error.all.shape == error.floor.shape == error.ceiling.shape == (3,)
    assert error.valid.dtype == torch.float64
    assert bool(error.centred.isnan().all()) == (kind in ("scale", "invariant"))


def test_an_action_stands_for_any_other_representation(device):
    """A vector field: five axes, but the third is no scale. Turning its arrows round by mistake gives (1 + 1)^2."""
    network, image = Vectors(), put(random_images(0, (2, 1, 32, 32)), device)
    error = equivariance_error(network, image, 0.5, action=rescale)
    assert (error.kind, error.lost, error.crop) == ("action", 0, 0)
    assert error.valid.max() == 0
    wrong = equivariance_error(network, image, 0.5, action=lambda output, factor: -rescale(output, factor))
    torch.testing.assert_close(wrong.valid, torch.full((2,), 4.0, dtype=torch.float64))


class Vectors(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return torch.stack([image, -2 * image], dim=2)


def test_the_grid_is_the_keywords_or_the_modules_or_the_last_submodules(device):
    coarse, fine = (random_lift(wide_basis(ratio, orders=1), (1, 1), 0) for ratio in (2.0, 1.5))
    image = put(random_images(0, (1, 1, 32, 32)), device)
    network = put(nn.Sequential(coarse, sesn.ScaleProjection(), fine), device)
    assert equivariance_error(network, image, 1 / 1.5).pairs == ((0, 1),)
    network.grid = ScaleGrid([1.0, 1.2])
    assert equivariance_error(network, image, 1 / 1.2).pairs == ((0, 1),)
    assert equivariance_error(network, image, 0.25, grid=ScaleGrid([1.0, 4.0])).pairs == ((0, 1),)
    assert equivariance_error(network, image, 0.25).pairs == ()


def test_a_large_mean_hides_the_error_but_not_once_it_is_removed(device):
    layer = nn.Conv2d(1, 4, 3, padding=1, bias=False, dtype=torch.float64)
    nn.init.constant_(layer.weight, 1.0)
    image = random_images(0, (1, 1, 64, 64))
    plain, raised = (equivariance_error(put(layer, device), put(image + mean, device), 0.5) for mean in (0, 100))
    assert raised.valid.item() < plain.valid.item() / 100
    assert raised.centred.item() == pytest.approx(plain.centred.item(), rel=0.01)
    assert raised.energy.item() > 100 * plain.energy.item()


@given(seed=SEEDS)
def test_a_float32_module_is_measured_in_float64(device, seed):
    lift = random_lift(wide_basis(2.0), (1, 4), seed, bias=False)
    image = put(random_images(seed, (1, 1, 64, 64)), device)
    exact = equivariance_error(put(lift, device), image, 0.5)
    single = equivariance_error(put(lift, device).float(), image, 0.5)
    assert single.valid.dtype == torch.float64
    # only the module rounds: 6e-8 of each value, 1e-14 of its square, against a Delta of 1e-6
    assert single.valid.item() == pytest.approx(exact.valid.item(), rel=1e-2)


# --- what is refused


class Returning(nn.Module):
    def __init__(self, make) -> None:
        super().__init__()
        self.make = make

    def forward(self, image: Tensor):
        return self.make(image)


REFUSED = {
    "a size that does not follow the image's": (nn.Conv2d(1, 1, 5), {}, ValueError, "its spatial size does not follow"),
    "NaN": (Returning(lambda x: x / 0 * 0), {}, ValueError, "returned NaN or infinity"),
    "a tuple": (Returning(lambda x: (x, x)), {}, TypeError, "must return one tensor, got tuple"),
    "another channel count": (nn.Conv2d(3, 1, 1), {}, ValueError, r"rejected images of shape \(2, 1, 16, 16\)"),
    "batch norm in train mode": (nn.Sequential(nn.BatchNorm2d(1)), {}, ValueError, r"`0` \(BatchNorm2d\) is in train"),
    "dropout in train mode": (nn.Dropout(0.5), {}, ValueError, r"`module` \(Dropout\) is in train mode"),
    "a field without a grid": (CopyAlongScale(2), {}, ValueError, "give `grid=`"),
    "a grid of another length": (CopyAlongScale(2), {"grid": ScaleGrid([1.0])}, ValueError, "`grid`.*scale axis"),
    "an unknown rank": (Returning(lambda x: x[..., None, None]), {}, ValueError, "give `action=`"),
    "a kind of another rank": (nn.Identity(), {"kind": "field"}, ValueError, r"`kind` \(='field'\) must be"),
    "an unknown kind": (nn.Identity(), {"kind": "image"}, ValueError, r"`kind` \(='image'\) must be one of"),
    "an unknown resampler": (nn.Identity(), {"resampler": "area"}, ValueError, r"`resampler` \(='area'\) must be one"),
    "unknown ends": (nn.Identity(), {"ends": "mirror"}, ValueError, r"`ends` \(='mirror'\) must be one of"),
    "too large a crop": (nn.Identity(), {"crop": 4}, ValueError, r"`crop` \(=4\) must be less than half"),
    "a negative spoiled": (CopyAlongScale(1), {"grid": ScaleGrid([1.0]), "spoiled": -1}, ValueError, "`spoiled`"),
    "an action without a tensor": (nn.Identity(), {"action": lambda x, s: None}, TypeError, "`action` must return"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_module_that_cannot_be_measured_is_refused(what):
    module, options, kind, words = REFUSED[what]
    with pytest.raises(kind, match=words):
        equivariance_error(module, torch.ones(2, 1, 16, 16), 0.5, **options)


@pytest.mark.parametrize(
    ("images", "factor", "words"),
    [
        (torch.ones(1, 1, 8, 8), 0.0, r"`factor` \(=0.0\) must be a positive number"),
        (torch.ones(1, 1, 8, 8), -0.5, r"`factor` \(=-0.5\) must be a positive number"),
        (torch.ones(1, 1, 8, 8), math.nan, r"`factor` \(=nan\) must be a positive number"),
        (torch.ones(1, 1, 8, 8), 0.25, r"`factor` \(=0.25\) must be large enough to leave 3 pixels of 8"),
        (torch.ones(1, 8, 8), 0.5, r"`images` \(=\(1, 8, 8\)\) must be a floating-point tensor \[b, c, h, w\]"),
        (torch.ones(1, 1, 8, 8).long(), 0.5, "`images`.*floating-point"),
        (torch.ones(0, 1, 8, 8), 0.5, r"`images.shape\[0\]` \(=0\) must be at least 1"),
        (torch.full((1, 1, 8, 8), math.nan), 0.5, "`images`.*must be finite"),
    ],
)
def test_images_or_factors_that_cannot_be_measured_are_refused(images, factor, words):
    with pytest.raises(ValueError, match=words):
        equivariance_error(nn.Identity(), images, factor)
