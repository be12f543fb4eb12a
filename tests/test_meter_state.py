"""State, chance and constants: what a module must not do if two of its answers are to be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sesn import ScaleGrid, ScaleLift, assert_equivariant, basis_a, equivariance_error
from sesn.meter.compare import HARDLY
from sesn.tools.images import random_images

IMAGES = random_images(0, (4, 1, 64, 64), 1.0, None)
ONE = IMAGES[:1]
WIDE = basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)


class Does(nn.Module):
    """A module of one function, with a layer to begin with."""

    def __init__(self, function: Callable[[Tensor], Tensor], layer: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.layer = function, layer or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x))


def scores() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 7), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)]
    return nn.Sequential(*layers).double().eval()


# --- state and chance


class SameBuffer(nn.Module):
    """Writes every answer into the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = scores()
        self.register_buffer("answer", torch.zeros(4, 5, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.answer.copy_(self.scores(x))  # type: ignore[operator, return-value]


def test_an_answer_in_the_same_buffer_is_copied() -> None:
    found, wanted = (equivariance_error(module, IMAGES, 0.5) for module in (SameBuffer(), scores()))
    assert wanted.valid.min() > 0
    assert torch.equal(found.valid, wanted.valid)


class Memory(nn.Module):
    """The first answer, whatever comes later; or the first for each size."""

    def __init__(self, by_size: bool) -> None:
        super().__init__()
        self.scores, self.by_size = scores(), by_size
        self.kept: dict[Any, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.kept.setdefault(x.shape if self.by_size else None, self.scores(x))


@pytest.mark.parametrize("by_size", [False, True])
def test_a_remembered_answer_is_refused(by_size: bool) -> None:
    with pytest.raises(ValueError, match="the same output for the images in another order"):
        equivariance_error(Memory(by_size), IMAGES, 0.5)


def test_a_remembered_answer_to_one_image_does_not_pass() -> None:
    with pytest.raises(AssertionError, match="does not depend on the image"):
        assert_equivariant(Memory(False), ONE, 0.5, tolerance=1.0)


class Average(nn.Module):
    """The mean of all answers so far."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.calls, self.sum = scores(), 0, 0.0

    def forward(self, x: Tensor) -> Tensor:
        self.calls, self.sum = self.calls + 1, self.sum + self.scores(x)
        return self.sum / self.calls  # type: ignore[return-value]


RANDOM: dict[str, Callable[[], nn.Module]] = {
    "an average over calls": Average,
    "functional dropout": lambda: Does(lambda x: nn.functional.dropout(x, 0.1), scores()),
    "functional RReLU": lambda: Does(lambda x: nn.functional.rrelu(x, training=True), scores()),
    "noise": lambda: Does(lambda x: x + 1e-2 * torch.randn_like(x)),
}


@pytest.mark.parametrize("images", [IMAGES, ONE], ids=["four images", "one image"])
@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("make", RANDOM.values(), ids=RANDOM)
def test_state_and_chance_are_refused(make: Callable[[], nn.Module], factor: float, images: Tensor) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"other output for the same images .* state or chance"):
        equivariance_error(make(), images, factor)


def test_a_random_slope_in_train_mode_is_named() -> None:
    with pytest.raises(ValueError, match=r"`1` \(RReLU\) is in train mode"):
        equivariance_error(nn.Sequential(nn.Conv2d(1, 2, 3), nn.RReLU()).train(), IMAGES, 0.5)


def test_a_module_is_free_to_look_at_the_whole_batch() -> None:
    """Statistics of the batch are neither state nor chance: the diagnosis speaks of them."""
    torch.manual_seed(0)
    loose = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    assert equivariance_error(loose, IMAGES, 0.5).valid.isfinite().all()


def test_rounding_that_depends_on_the_order_is_no_state() -> None:
    """What is left of a sum that cancels is rounding, and may depend on a place in the batch."""

    def place(x: Tensor) -> Tensor:
        return 1e-17 * x.mean((-2, -1)) * torch.arange(1.0, x.shape[0] + 1, dtype=x.dtype)[:, None]

    assert equivariance_error(Does(place), IMAGES, 0.5).kind == "invariant"


# --- constants


def level(x: Tensor) -> Tensor:
    return torch.ones(x.shape[0], 5, dtype=x.dtype)


COPIES = {"one": ONE, "three": ONE.expand(3, -1, -1, -1), "most": IMAGES[[0, 0, 0, 0, 1]]}


@pytest.mark.parametrize("images", COPIES.values(), ids=COPIES)
def test_a_constant_does_not_pass_on_copies_of_an_image(images: Tensor) -> None:
    with pytest.raises(AssertionError, match="does not depend on the image"):
        assert_equivariant(Does(level), images, 0.5)
    error = assert_equivariant(ScaleLift(1, 2, WIDE).eval(), images, 0.5)
    assert error.ceiling is not None
    assert error.ceiling.shape == error.valid.shape
    assert error.ceiling.min() > HARDLY


def test_an_image_of_one_colour_has_an_unrelated_one_too() -> None:
    with pytest.raises(AssertionError, match="does not depend on the image"):
        assert_equivariant(Does(level), torch.full((1, 1, 32, 32), 0.5), 0.5)
