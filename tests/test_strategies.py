"""The strategies: what they promise about spectra, that they replay, and that failures shrink to something small."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from measures import assert_same, relative
from periodic_pictures import Picture, Wave, pictures
from torch import Tensor, nn

from sesn import ScaleGrid, basis_a, equivariance_error
from sesn.strategies import (
    HEADS,
    NONLINEARITIES,
    PADDING_MODES,
    SEEDS,
    bases,
    convs,
    factors,
    grid_factors,
    images,
    integer_factors,
    lifts,
    networks,
    random_conv,
    random_images,
    random_lift,
    random_network,
    scale_grids,
)

SHAPES = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(2, 24), st.integers(2, 24))
EVERYTHING = {
    "images": images(cutoff=st.floats(0.1, 0.5)),
    "pictures": pictures(),
    "grids": scale_grids(),
    "factors": factors(),
    "bases": bases(kind=st.sampled_from("ab"), window=st.sampled_from(["paper", "wide"])),
    "lifts": lifts(bias=st.booleans(), padding_mode=st.sampled_from(PADDING_MODES)),
    "convs": convs(),
    "networks": networks(),
}


def frequencies(height: int, width: int) -> Tensor:
    down, right = (torch.fft.fftfreq(side, dtype=torch.float64) for side in (height, width))
    return torch.hypot(down[:, None], right)


def values(thing: object) -> tuple[object, ...]:
    """What must be equal in two equal draws."""
    if isinstance(thing, Tensor):
        return (tuple(thing.shape), *thing.flatten().tolist())
    if isinstance(thing, nn.Module):
        return (repr(thing), *(number for p in thing.parameters() for number in p.flatten().tolist()))
    return (repr(thing),)


# --- images


@given(seed=SEEDS, shape=SHAPES, exponent=st.floats(0, 2))
def test_images_have_mean_0_variance_1_and_the_asked_spectrum(seed, shape, exponent):
    image = random_images(seed, shape, exponent)
    assert image.shape == shape
    assert_same(image.mean(dim=(-2, -1)), torch.zeros(shape[:2], dtype=torch.float64))
    assert_same(image.square().mean(dim=(-2, -1)), torch.ones(shape[:2], dtype=torch.float64))
    frequency = frequencies(*shape[-2:])
    flattened = torch.fft.fft2(image).abs() * frequency**exponent  # the same at every frequency but 0
    level = flattened.amax(dim=(-2, -1), keepdim=True)
    assert_same(flattened / level, (frequency > 0).double().expand_as(flattened))


@given(seed=SEEDS, shape=SHAPES, cutoff=st.floats(0.01, 0.5))
def test_nothing_is_left_beyond_the_cut_off_but_the_lowest_frequency(seed, shape, cutoff):
    spectrum = torch.fft.fft2(random_images(seed, shape, 1.0, cutoff)).abs()
    frequency = frequencies(*shape[-2:])
    lowest = 1 / max(shape[-2:])
    beyond = (frequency >= cutoff) & (frequency > lowest * 1.001)
    assert spectrum[..., beyond].sum() <= 1e-9 * spectrum.sum()
    assert spectrum.sum() > 0


def test_a_frequency_at_the_cut_off_is_beyond_it():
    """Also where rounding would have it otherwise: 12 periods in 34 pixels."""
    spectrum = torch.fft.fft2(random_images(0, (34, 34), 0.0, 12 / 34)).abs()
    assert spectrum[12, 0] < 1e-9 < spectrum[11, 0]


@given(picture=pictures(highest=4), size=st.integers(9, 24))
def test_pictures_have_mean_0_and_stay_below_their_highest_frequency(picture, size):
    spectrum = torch.fft.fft2(picture.sample(size)).abs()[0, 0]
    periods = torch.fft.fftfreq(size, dtype=torch.float64).abs() * size
    beyond = torch.maximum(periods[:, None], periods.expand(size, size)) > 4.5
    assert spectrum[0, 0] < 1e-9
    assert spectrum[beyond].sum() < 1e-9
    assert spectrum.sum() > 0.1


# --- the group, layers and networks


@given(grid=scale_grids(count=st.integers(2, 4)), data=st.data())
def test_factors_are_what_their_names_say(grid, data):
    assert 0.5 <= data.draw(factors(0.5, 0.75)) <= 0.75
    inverse = 1 / data.draw(integer_factors(5))
    assert inverse == pytest.approx(round(inverse))
    assert grid.match(data.draw(grid_factors(grid))).residual < 1e-9


@given(basis=bases(kind=st.sampled_from("ab"), window=st.sampled_from(["paper", "wide"])))
def test_every_drawn_basis_can_be_built(basis):
    assert basis.functions.isfinite().all()
    assert_same(basis.functions[:, 0].flatten(1).norm(dim=1), torch.ones(len(basis), dtype=torch.float64))


@given(seed=SEEDS, nonlinearity=st.sampled_from(NONLINEARITIES), mode=st.sampled_from(PADDING_MODES))
@pytest.mark.parametrize("head", HEADS)
def test_a_network_ends_in_its_head(head, seed, nonlinearity, mode):
    basis = basis_a(ScaleGrid([1.2, 1.8]), 5, 2)
    network = random_network(basis, seed, 1, nonlinearity, head, channels=2, padding_mode=mode)
    assert equivariance_error(network, random_images(seed, (1, 1, 12, 12)), 1 / 1.5).kind == head


# --- replaying


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_same_example_twice_is_the_same_thing(name):
    """Two runs from the same entropy draw equal values, whatever torch's global generator did in between."""
    first, second = [], []

    def run(seen: list[object]) -> None:
        @settings(max_examples=5, derandomize=True, database=None, phases=[Phase.generate])
        @given(EVERYTHING[name])
        def collect(thing: object) -> None:
            seen.append(values(thing))

        collect()

    run(first)
    torch.manual_seed(len(first))
    run(second)
    assert first == second


@given(seed=SEEDS)
def test_torchs_global_generator_is_left_alone(seed):
    basis = basis_a(ScaleGrid([1.2]), 3, 1)
    before = torch.get_rng_state()
    random_images(seed, (1, 1, 4, 4))
    random_lift(basis, (1, 1), seed)
    random_conv(basis, (1, 1), seed)
    random_network(basis, seed)
    assert torch.equal(torch.get_rng_state(), before)


# --- shrinking

#: Enough examples to meet what is looked for, whatever the profile says.
SEARCH = settings(max_examples=300, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def planted_bug(image: Tensor) -> Tensor:
    """A transpose that forgets the columns past the eighth."""
    wrong = image.mT.clone()
    wrong[..., 8:, :] = 0
    return wrong


def test_a_planted_bug_shrinks_to_the_smallest_image_that_shows_it():
    smallest = find(
        images(st.integers(4, 32), st.integers(4, 32)), lambda image: relative(planted_bug(image), image.mT) > 0
    )
    assert smallest.shape == (1, 1, 4, 9)
    assert torch.equal(smallest, random_images(0, (1, 1, 4, 9)))


def test_a_wrong_layer_shrinks_to_one_channel_and_the_fewest_scales():
    """Planted: a network that rolls its scale axis. Two scales, no depth and the simplest seed are enough to see it."""

    def is_wrong(network: nn.Sequential) -> bool:
        rolled = nn.Sequential(*network, Rolled())
        rolled.grid = network[0].grid
        error = equivariance_error(rolled, random_images(0, (1, 1, 24, 24)), 1 / 1.5)
        return error.on_grid and error.lost < len(rolled.grid) and error.valid.item() > 0.1

    grids = scale_grids(1.5, 1.5, st.integers(1, 4))
    drawn = networks(bases(grids, orders=st.integers(1, 3)), head="field", channels=st.integers(1, 3))
    network = find(drawn, is_wrong, settings=SEARCH)
    assert len(network[0].grid) == 2
    assert len(network[0].basis) == 1
    assert network[0].out_channels == 1
    assert len(network) == 1


class Rolled(nn.Module):
    def forward(self, field: Tensor) -> Tensor:
        return field.roll(1, dims=2)


def test_pictures_shrink_to_one_wave():
    assert find(pictures(), lambda picture: True, settings=SEARCH) == Picture((Wave(0, 1, 1.0, 0.0),))


def test_a_failure_is_reported_as_the_call_that_makes_it():
    @settings(database=None, derandomize=True, phases=[Phase.generate, Phase.shrink])
    @given(image=images(), layer=lifts(bases(orders=1), (1, 1)))
    def fails(image: Tensor, layer: nn.Module) -> None:
        assert image.shape[-1] < 6

    with pytest.raises(AssertionError) as failure:
        fails()
    report = re.sub(r"\s", "", "".join(failure.value.__notes__))
    assert "image=random_images(0,(1,1,6,6)," in report
    assert "layer=random_lift(" in report
