"""The methods that appeared after the paper: what their definitions promise, against slow and obvious ways."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from measures import put
from torch import Tensor, nn

import sesn
from harness.experiments.properties import translation_error
from sesn import Meter
from sesn.methods import METHODS
from sesn.methods.fourier_layers import (
    MODES,
    FourierLayer,
    NestedMaxPool,
    ResampledMaxPool,
    SpectralConv,
    dirichlet_matrix,
)
from sesn.methods.riesz import RieszConv, riesz_multipliers
from sesn.methods.scale_channels import MNIST_SCALES, ScaleChannelConv, ScaleChannelNet, magnification
from sesn.strategies import SEEDS
from sesn.tools.photographs import photographs

#: Relative squared error that float64 leaves of a layer that commutes, on white noise.
CERTIFIED = 1e-27
SIDES = st.integers(4, 24)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def smooth(*shape: int, seed: int = 0) -> Tensor:
    """Blobs in the middle of the map."""
    axis = torch.arange(shape[-1], dtype=torch.float64) - (shape[-1] - 1) / 2
    window = torch.exp(-((axis[:, None] ** 2 + axis**2) / (shape[-1] / 6) ** 2))
    return window * sesn.rescale(noise(*shape[:-2], shape[-2] // 4, shape[-1] // 4, seed=seed), 4.0)


# Scale channels


@given(size=st.integers(6, 40), factor=st.floats(0.3, 3), seed=SEEDS)
def test_a_channel_is_a_centre_crop_or_has_zeros_around_it(size: int, factor: float, seed: int) -> None:
    """The picture resampled by the factor, whatever its size then, with its middle in the middle of the canvas."""
    line = noise(size, seed=seed)
    larger = F.pad(line, (40, 40)) if factor < 1 else line
    whole = sesn.resampling_matrix(len(larger), factor) @ larger
    found = magnification(size, factor) @ line
    # Resampled sizes are whole numbers: only where they leave as many pixels on both sides do the two grids coincide.
    if (len(whole) - size) % 2 == 0 and len(whole) >= size:
        start = (len(whole) - size) // 2
        torch.testing.assert_close(found, whole[start : start + size], rtol=0, atol=1e-12)
    far = (torch.arange(size) + 0.5 - size / 2).abs() > factor * size / 2 + 3 * max(1.0, factor) + 1
    assert not found[far].any()


def test_scale_channels_have_the_parameters_of_the_shared_network() -> None:
    for key in ("fov-avg", "fov-max"):
        assert METHODS[key].count("mnist") == METHODS["cnn"].count("mnist")
        assert METHODS[key].count("stl10") == METHODS["wrn"].count("stl10")


def test_only_what_its_largest_channel_does_not_see_keeps_the_first_layer_from_equivariance() -> None:
    """Table 1 compares the middle half; the channel that enlarges by 2 sqrt(2) sees 1 / (2 sqrt(2)) of the side."""
    torch.manual_seed(0)
    layer, images = ScaleChannelConv(3, 8, 7, MNIST_SCALES).eval(), photographs(4)
    half, seen = 12, 18  # of the 48 pixels after shrinking; 48 / (2 sqrt(2)) = 17 remain, less what a kernel adds
    first, second = sesn.equivariance_error(layer, images, 0.5, crop=half).by_scale.median(-1).values
    assert first > 0.3
    assert second < first / 3
    assert sesn.equivariance_error(layer, images, 0.5, crop=seen).valid.median() < 0.01


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_scores_are_pooled_over_the_sizes_of_the_image(pooling: str, device: torch.device) -> None:
    shared = put(sesn.build("cnn", "mnist", channels=(2, 2, 2)).double().eval(), device)
    network = ScaleChannelNet(shared, MNIST_SCALES, pooling)  # type: ignore[arg-type]
    image = put(smooth(3, 1, 28, 28), device)
    each = torch.stack([shared(sesn.rescale(image, 1 / scale, canvas="keep", ends="zeros")) for scale in MNIST_SCALES])
    expected = each.mean(0) if pooling == "mean" else each.amax(0)
    torch.testing.assert_close(network(image), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("step", [math.sqrt(2), 2.0])
def test_the_scale_channels_shift_when_the_image_is_resized(step: float) -> None:
    """Up to the resampler; with the channels in the wrong order the field is another one."""
    torch.manual_seed(0)
    layer = ScaleChannelConv(1, 4, 7, (1 / step, 1.0, step)).double().eval()
    image = smooth(2, 1, 96, 96)
    good = Meter().measure(layer, image, 1 / step).valid.max().item()
    layer.scales = layer.scales[::-1]
    assert 100 * good < Meter().measure(layer, image, 1 / step).valid.min().item()


def test_channels_take_images_and_fields() -> None:
    layer = ScaleChannelConv(2, 2, 3, (0.5, 1.0)).double()
    image = noise(1, 2, 9, 9)
    torch.testing.assert_close(layer(image), layer(torch.stack([image, image], dim=2)))
    with pytest.raises(sesn.UsageError, match="number of scales"):
        layer(torch.stack([image] * 3, dim=2))
    with pytest.raises(sesn.UsageError, match="`image` must be a torch tensor"):
        layer([image])


# Riesz


def test_the_riesz_network_has_the_published_number_of_parameters() -> None:
    assert METHODS["riesz"].count("mnist").total == 20_882
    assert METHODS["riesz"].widths("mnist") == (12, 16, 24, 32, 80)


@given(h=SIDES, w=SIDES, seed=SEEDS)
@settings(max_examples=15)
def test_riesz_transforms_are_those_of_the_definition(h: int, w: int, seed: int) -> None:
    """Frequency by frequency, by the slow Fourier transform."""
    image = noise(1, 1, h, w, seed=seed)
    found = RieszConv(1, 1).double().transforms(image)[0]
    y, x = torch.fft.fftfreq(h, dtype=torch.float64)[:, None], torch.fft.fftfreq(w, dtype=torch.float64)
    known = (y.abs() < 0.5) & (x.abs() < 0.5) & ((y != 0) | (x != 0))
    length = torch.where(known, torch.hypot(*torch.broadcast_tensors(y, x)), 1.0)
    down, right = (-1j * part / length * known for part in (y, x))
    spectrum = torch.fft.fft2(image[0, 0])
    for map_, multiplier in zip(found, (down, right, down * down, down * right, right * right), strict=True):
        expected = torch.fft.ifft2(spectrum * multiplier)
        assert expected.imag.abs().max() < 1e-12
        torch.testing.assert_close(map_, expected.real, rtol=1e-10, atol=1e-12)


def test_riesz_transforms_see_no_mean_and_the_even_ones_add_up() -> None:
    layer = RieszConv(1, 1).double()
    assert not layer.transforms(torch.ones(1, 1, 9, 9, dtype=torch.float64)).abs().gt(1e-12).any()
    image = noise(1, 1, 15, 15)
    maps = layer.transforms(image)
    torch.testing.assert_close(-(maps[:, 2:3] + maps[:, 4:5]), image - image.mean())
    assert riesz_multipliers(8, 8)[:, 4].abs().max() == 0


def test_spectra_are_mixed_as_their_maps_would_be() -> None:
    layer, image = RieszConv(2, 3).double(), noise(2, 2, 9, 12)
    torch.testing.assert_close(layer(image), layer.mix(layer.transforms(image)))


# Fourier layers


def test_a_spectral_convolution_is_a_circular_convolution_with_a_kernel_on_five_points() -> None:
    """With the DFT of a real kernel as its modes; by the definition, pixel by pixel."""
    side, kernel, image = 11, noise(MODES, MODES), noise(1, 1, 11, 11, seed=1)
    layer = SpectralConv(1, 1, side).double()
    with torch.no_grad():
        layer.modes[0, 0] = torch.view_as_real(torch.fft.fft2(kernel))
        layer.skip[0, 0] = torch.tensor([0.5, 0.0])
    shifted = [image.roll((y, x), (-2, -1)) * kernel[y, x] for y in range(MODES) for x in range(MODES)]
    torch.testing.assert_close(layer(image), sum(shifted, 0.5 * image), rtol=1e-10, atol=1e-10)


def test_the_complex_weights_of_a_spectral_convolution_have_the_variance_of_one_over_the_channels() -> None:
    torch.manual_seed(0)
    layer = SpectralConv(64, 256, 28)
    for weight in (layer.modes, layer.skip):
        parts = weight.detach().square().flatten(0, -2).mean(0) * 64
        assert parts.tolist() == pytest.approx([0.5, 0.5], rel=0.05)  # the real part and the imaginary one


@given(grid=st.integers(MODES, 30), lowest=st.integers(-9, 0), highest=st.integers(0, 9))
def test_the_dirichlet_matrix_is_the_closed_form(grid: int, lowest: int, highest: int) -> None:
    found = torch.view_as_complex(dirichlet_matrix(torch.arange(lowest, highest + 1), grid))
    for k, row in zip(range(lowest, highest + 1), found.tolist(), strict=True):
        for n, value in enumerate(row):
            x = 2 * math.pi * (k / grid - n / MODES)
            if abs(math.sin(x / 2)) > 1e-6:
                closed = cmath.exp(-1j * x * (MODES - 1) / 2) * math.sin(MODES * x / 2) / math.sin(x / 2) / MODES
                assert abs(value - closed) < 1e-9


@pytest.mark.parametrize("side", [68, 67, 47, 34, 33])
@pytest.mark.parametrize("made", [lambda: FourierLayer(2, 3, 28), NestedMaxPool], ids=["layer", "pool"])
def test_fourier_layers_commute_with_ideal_downscaling(made: Callable[[], nn.Module], side: int) -> None:
    """To odd and even sizes."""
    torch.manual_seed(0)
    module, meter = made().double().eval(), Meter(resampler="fourier", crop=0, kind="map")
    pixels = 2 * side if isinstance(module, NestedMaxPool) else side  # pooling leaves half of them
    size = 192 if isinstance(module, NestedMaxPool) else 96
    error = meter.measure(module, noise(1, 2, size, size), pixels / size, context=False).valid
    assert error.item() < CERTIFIED
    plain = nn.Sequential(*list(module.children())[:1], nn.ReLU()) if pixels == side else nn.MaxPool2d(2)
    broken = meter.measure(plain.double().eval(), noise(1, 2, size, size), pixels / size, context=False).valid
    assert broken.item() > 1e20 * CERTIFIED


def test_the_activation_of_fourier_layers_breaks_translations_and_the_convolution_does_not() -> None:
    torch.manual_seed(0)
    layer, image = FourierLayer(1, 2, 28).double().eval(), noise(1, 1, 96, 96)
    convolution = layer[0]
    assert translation_error(convolution, image, 1, 0, 0, "circular").item() < CERTIFIED
    assert translation_error(layer, image, 1, 0, 0, "circular").item() > 1e-3


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(RieszConv(2, 3), id="riesz"),
        pytest.param(ScaleChannelConv(2, 3, 5, (0.7, 1.0)), id="channels"),
        pytest.param(SpectralConv(2, 3, 7), id="spectral"),
        pytest.param(NestedMaxPool(), id="pool"),
        pytest.param(ResampledMaxPool(4), id="resampled"),
    ],
)
def test_layers_compile_and_have_gradients(layer: nn.Module) -> None:
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    image = noise(1, 2, 12, 10).float()
    torch.testing.assert_close(compiled(image), layer(image))
    exact = layer.double()
    assert torch.autograd.gradcheck(exact, noise(1, 2, 6, 7).requires_grad_())
