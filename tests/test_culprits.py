"""What a layer adds: a profile of a network with one known culprit names it, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from zoo import Residual

from sesn import Meter, ScaleGrid, ScaleLift, ScaleProjection, ScaleTranslation, basis_a
from sesn.tools.images import random_images
from sesn.tools.profile import FUNCTIONS, LayerRow, adds_most, floor_of, profile

IMAGES = random_images(0, (3, 3, 48, 48))
SHIFT = ScaleTranslation(1.0, (1.0, 1.0))


def mixing(before: int, after: int) -> nn.Conv2d:
    """A convolution of one pixel, which commutes with all that moves pixels."""
    return nn.Conv2d(before, after, 1)


class Signs(nn.Module):
    """Every other pixel negative, which rescaling turns over."""

    def forward(self, x: Tensor) -> Tensor:
        down, right = (torch.arange(side) for side in x.shape[-2:])
        return x * (1 - 2 * ((down[:, None] + right) % 2))


class Beside(nn.Module):
    """A branch and its input as channels beside each other, mixed again."""

    def __init__(self, branch: nn.Module, width: int = 4) -> None:
        super().__init__()
        self.branch, self.mix = branch, mixing(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(torch.cat([x, self.branch(x)], 1))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Down by a pool, up again and beside what came in; all other layers commute with scalings or with shifts."""

    def __init__(self, pool: nn.Module, kernel: int) -> None:
        super().__init__()
        padded = kernel // 2
        self.stem, self.pool = nn.Conv2d(3, 8, kernel, padding=padded), pool
        self.bottom = nn.Conv2d(8, 16, kernel, padding=padded)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = nn.Sequential(mixing(24, 8), mixing(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.stem(x)
        return self.head(torch.cat([fine, self.up(self.bottom(self.pool(fine)))], 1))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """A class token beside patches, whose scores are made of the class token alone."""

    def __init__(self, planted: nn.Module) -> None:
        super().__init__()
        self.cut, self.first = mixing(3, 4), nn.Parameter(torch.zeros(1, 1, 4))
        self.planted, self.attend = planted, nn.MultiheadAttention(4, 1, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.planted(self.cut(nn.functional.avg_pool2d(x, 4))).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(x), 1, 4), tokens], 1)
        tokens, _ = self.attend(tokens, tokens, tokens, need_weights=False)
        return self.head(tokens[:, 0])  # type: ignore[no-any-return]


def culprit(network: nn.Module, moved: float | ScaleTranslation) -> LayerRow:
    rows = profile(network.eval(), IMAGES, moved)
    found = adds_most(rows, floor_of(network, IMAGES, moved))
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_pool_of_a_unet_is_named_for_shifts(kernel: int, seed: int) -> None:
    torch.manual_seed(seed)
    assert culprit(UNet(nn.MaxPool2d(2), kernel), SHIFT).name == "pool"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kernel", "guilty"), [(1, {"pool", "up"}), (3, {"stem", "bottom"})])
def test_what_sees_one_scale_of_a_unet_is_named_for_scalings(kernel: int, guilty: set[str], seed: int) -> None:
    """Small kernels, or else the pool and the upsampling after it, which share it: coarse maps hold less detail."""
    torch.manual_seed(seed)
    network = UNet(nn.MaxPool2d(2), kernel).eval()
    rows = profile(network, IMAGES, 1 / 2)
    found = adds_most(rows, floor_of(network, IMAGES, 1 / 2))
    assert found is not None
    assert found.name in guilty
    assert max(row.own for row in rows if row.name.startswith(("head", "(output)"))) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_the_one_strided_convolution_of_a_resnet_is_named(seed: int) -> None:
    torch.manual_seed(seed)

    def block(stride: int = 1) -> nn.Module:
        layers = [nn.Conv2d(4, 4, 3, stride, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1)]
        return Residual(nn.Sequential(*layers), nn.AvgPool2d(stride) if stride > 1 else None)

    network = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), block(), block(), block(2), block(), mixing(4, 4))
    assert culprit(network, SHIFT).name in ("3.branch.0", "3.shortcut")


def test_what_functions_do_is_named() -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = mixing(3, 4), mixing(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.after(self.before(x)[..., ::2, ::2])  # type: ignore[no-any-return]

    found = culprit(Strided(), 1 / 2)
    assert (found.layer, found.title) == (FUNCTIONS, "before after")


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "mix": lambda planted: nn.Sequential(planted, mixing(4, 4)),
    "norm": lambda planted: nn.Sequential(nn.BatchNorm2d(4), planted),
    "sum": lambda planted: Residual(nn.Sequential(mixing(4, 4), planted)),
    "beside": lambda planted: Beside(nn.Sequential(planted, mixing(4, 4))),
}


@settings(deadline=None, max_examples=15)
@given(
    ways=st.lists(st.sampled_from(sorted(WAYS)), min_size=1, max_size=4),
    place=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_a_planted_culprit_is_named_wherever_it_is_and_accounts_for_the_output(
    ways: list[str], place: int, seed: int
) -> None:
    torch.manual_seed(seed)
    place %= len(ways)
    layers = [WAYS[way](Signs() if here == place else nn.Identity()) for here, way in enumerate(ways)]
    network = nn.Sequential(mixing(3, 4), *layers).double().eval()
    rows = profile(network, IMAGES, 1 / 2, Meter(crop=4))
    found = adds_most(rows, 1e-6)
    assert found is not None
    assert found.layer == "Signs"
    innocent = [row for row in rows if row.leaf and row.layer != "Signs"]
    assert max(row.own for row in innocent) < 1e-3 * found.own
    # What is left of it at the output is all that there is.
    assert found.lasting == pytest.approx(rows[-1].relative, rel=1e-2)


def test_a_projection_over_truncated_scales_is_named_and_the_field_before_it_is_not() -> None:
    torch.manual_seed(0)
    basis = basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)
    network = nn.Sequential(ScaleLift(3, 4, basis), ScaleProjection(), mixing(4, 4)).eval()
    assert culprit(network, 1 / 2).name == "1"


def test_what_reaches_the_scores_through_a_class_token_is_named() -> None:
    torch.manual_seed(0)
    assert culprit(Tokens(Signs()), 1 / 2).layer == "Signs"


class InPlace(nn.Module):
    """The tensor that a rectifier changes in place is used again beside its output."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.act, self.pool = mixing(3, 4), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        self.last = mixing(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(x)
        return self.last(self.pool(self.act(x)) + x[..., ::2, ::2].detach())  # type: ignore[no-any-return]


def test_layers_that_work_in_place_are_followed_and_nothing_is_left_behind() -> None:
    torch.manual_seed(0)
    network = InPlace().eval()
    rows = {row.title: row for row in profile(network, IMAGES, SHIFT)}
    assert rows["before last"].own > 0.01
    assert max(rows[name].own for name in ("mix", "act", "last")) < 1e-12
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in network.modules())
