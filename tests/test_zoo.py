"""The acceptance of the verdict: no ordinary network of the zoo passes at any tolerance, every wide SESN field does."""

from __future__ import annotations

import pytest
import torch
import zoo
from click.testing import Result
from torch import Tensor, nn
from typer.testing import CliRunner

from sesn import assert_equivariant, equivariance_error
from sesn.tools.app import app
from sesn.tools.images import image_set

TOLERANCES = [1e-4, 1e-3, 1e-2, 1e-1]
DRAWN, _ = image_set("1/f", 1, zoo.SIDE, zoo.SIDE, 6)
SLOW = pytest.mark.slow
#: Training takes a second each.
CASES = [
    pytest.param(name, weights, seed, marks=SLOW if weights == "trained" or seed else ())
    for name in zoo.ORDINARY
    for weights in zoo.WEIGHTS
    for seed in range(3)
]


def assert_fails(network: nn.Module, images: Tensor) -> None:
    error = equivariance_error(network, images, 1 / 2)
    assert [tolerance for tolerance in TOLERANCES if error.passes(tolerance)] == []
    with pytest.raises(AssertionError, match="not scale-equivariant"):
        assert_equivariant(network, images, 1 / 2, tolerance=TOLERANCES[-1])


@pytest.mark.parametrize(("name", "weights", "seed"), CASES)
def test_an_ordinary_network_fails_at_every_tolerance(name: str, weights: str, seed: int) -> None:
    assert_fails(zoo.ordinary(name, weights, seed), DRAWN)


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=SLOW) for seed in range(3, 24))])
@pytest.mark.parametrize(("channels", "side"), [(1, 3), (8, 3), (8, 5)])
def test_a_single_small_convolution_fails_at_every_tolerance(channels: int, side: int, seed: int) -> None:
    """Smooth images are hardly changed by it but for a factor, so that it shows in their fine detail."""
    torch.manual_seed(seed)
    assert_fails(nn.Conv2d(1, channels, side, padding=side // 2).eval(), DRAWN)


def test_the_command_says_that_fine_detail_decides() -> None:
    result = checked("small", "--tolerance", "0.1", "--input", "1x64x64", "--downscale", "2", seed=7)
    assert result.exit_code == 1, result.output
    told = " ".join(result.output.split())
    assert "ABOVE the tolerance 0.1 in fine detail, whose relative Δ is" in told


def checked(factory: str, *words: str, **arguments: object) -> Result:
    """`sesn check` with a factory of the zoo, on the sizes, downscales and images that it chooses."""
    given = [word for name, value in arguments.items() for word in ("--with", f"{name}={value}")]
    return CliRunner().invoke(app, ["check", f"{zoo.__file__}:{factory}", *given, *words])


@pytest.mark.parametrize(("name", "weights", "seed"), CASES)
def test_it_fails_at_the_loosest_tolerance_as_the_command_comes(name: str, weights: str, seed: int) -> None:
    result = checked("ordinary", "--tolerance", "0.1", name=name, weights=weights, seed=seed)
    assert result.exit_code == 1, result.output
    assert "synthetic 1/f amplitude; 16 used" in " ".join(result.output.split())


@pytest.mark.parametrize("depth", [1, 3, pytest.param(5, marks=SLOW)])
def test_a_wide_field_passes_as_the_command_comes(depth: int) -> None:
    result = checked("wide_field", "--tolerance", "1e-3", depth=depth)
    assert result.exit_code == 0, result.output


@SLOW
@pytest.mark.parametrize("weights", zoo.WEIGHTS)
@pytest.mark.parametrize("name", zoo.ORDINARY)
def test_it_fails_on_photographs_too(name: str, weights: str) -> None:
    """At every tolerance: they are held against images of the same contrast and texture, and by their fine detail."""
    photographs, _ = image_set("embedded", 1, zoo.SIDE, zoo.SIDE, 8)
    for seed in range(3):
        assert not equivariance_error(zoo.ordinary(name, weights, seed), photographs, 1 / 2).passes(0.1)


def test_a_network_that_says_the_same_of_every_image_is_said_to() -> None:
    """Layer norm leaves nothing but rounding of this one, which no ratio should judge."""
    with pytest.raises(AssertionError, match="the output does not depend on the image"):
        assert_equivariant(zoo.ordinary("vit", "shifted"), DRAWN, 1 / 2, tolerance=10.0)


@pytest.mark.parametrize("downscale", [2**0.5, 2.0])
@pytest.mark.parametrize("depth", [1, 2, 3, pytest.param(4, marks=SLOW), pytest.param(5, marks=SLOW)])
def test_a_wide_field_passes(depth: int, downscale: float) -> None:
    assert_equivariant(zoo.wide_field(depth), DRAWN, 1 / downscale, tolerance=1e-3)


def test_a_wide_field_with_a_large_bias_passes_but_not_by_delta_itself() -> None:
    field = zoo.shifted(zoo.wide_field(1))
    assert_equivariant(field, DRAWN, 1 / 2, tolerance=1e-3)
    with pytest.raises(AssertionError, match="hardly depends on the image"):
        assert_equivariant(field, DRAWN, 1 / 2, tolerance=1e-3, absolute=True)


@SLOW
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("depth", [1, 3, 5])
def test_a_wide_field_passes_on_photographs(depth: int, seed: int) -> None:
    photographs, _ = image_set("embedded", 1, zoo.SIDE, zoo.SIDE, 8)
    assert_equivariant(zoo.wide_field(depth, seed), photographs, 1 / 2, tolerance=1e-3)
