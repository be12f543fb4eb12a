"""The layer profile: the planted layer is found, every call has a row, and what cannot be compared says why."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sesn import (
    GlobalPool,
    ScaleConv,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    SpatialMaxPool,
    basis_a,
    equivariance_error,
)
from sesn.tools.photographs import photographs
from sesn.tools.profile import WHOLE, profile, profile_table, worst

STEP = 96 / 68
BASIS = basis_a(ScaleGrid.geometric(1.5, STEP, 3), "wide", 2)


class FlipScales(nn.Module):
    """Reverses the scale axis."""

    def forward(self, field: Tensor) -> Tensor:
        return field.flip(2)


class PlainOnScales(nn.Module):
    """An ordinary convolution over all scales as channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 5, padding=2)

    def forward(self, field: Tensor) -> Tensor:
        return self.conv(field.flatten(1, 2)).unflatten(1, field.shape[1:3])


def network(*planted: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [ScaleLift(3, 2, BASIS, bias=False), ScaleConv(2, 2, BASIS, bias=False), *planted, ScaleConv(2, 2, BASIS)]
    return nn.Sequential(*layers).double().eval()


def pictures(count: int = 2) -> Tensor:
    return photographs(count)


@pytest.mark.parametrize("planted", [FlipScales, PlainOnScales])
def test_planted_layer_is_the_largest_jump(planted: type[nn.Module]) -> None:
    found = worst(profile(network(planted()), pictures(), 1 / STEP))
    assert found is not None
    assert found.name.partition(".")[0] == "2"
    assert found.jump > 100


def test_an_equivariant_network_has_no_jump() -> None:
    rows = profile(network(), pictures(), 1 / STEP)
    assert [row.name for row in rows] == ["0", "1", "2", WHOLE]
    assert all(row.jump < 20 and row.delta < 1e-4 and row.kind == "field" for row in rows)


def test_the_last_row_is_the_network_measured_as_a_whole() -> None:
    net = network(FlipScales())
    row = profile(net, pictures(), 1 / STEP)[-1]
    whole = equivariance_error(net, pictures(), 1 / STEP)
    assert row.name == WHOLE
    assert row.crop == whole.crop
    assert torch.tensor(row.values, dtype=torch.float64).allclose(whole.valid, rtol=1e-9, atol=0)


def test_ranks_strides_and_interscale_are_followed() -> None:
    torch.manual_seed(0)
    head = [SpatialMaxPool(2), ScaleConv(2, 2, BASIS, interscale=2), ScaleProjection(), GlobalPool(), nn.Linear(2, 3)]
    net = nn.Sequential(ScaleLift(3, 2, BASIS), *head).double().eval()
    rows = profile(net, pictures(), 1 / STEP)
    kinds = [row.kind for row in rows]
    assert kinds == ["field", "field", "field", "map", "invariant", "invariant", "invariant"]
    assert rows[1].shape[-1] == 48
    assert rows[1].crop <= rows[0].crop
    assert "spoilt" not in rows[2].note
    assert all(math.isfinite(row.delta) for row in rows)


def test_nothing_left_whole_is_said() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(ScaleLift(3, 2, BASIS), ScaleConv(2, 2, BASIS, interscale=3)).double().eval()
    row = profile(net, pictures(), 1 / STEP)[-1]
    assert "no scale channel is left whole" in row.note
    assert row.delta > 0


class Odd(nn.Module):
    """Returns what has no Delta: a tuple, then sizes that do not follow, then NaN, and a module called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.fixed, self.nan, self.twice = (nn.Identity() for _ in range(4))
        self.pair.forward = lambda x: (x, x)  # type: ignore[method-assign]
        self.fixed.forward = lambda x: x[..., :20, :20]  # type: ignore[method-assign]
        self.nan.forward = lambda x: x / 0 * 0  # type: ignore[method-assign]

    def forward(self, image: Tensor) -> Tensor:
        self.pair(image)
        self.fixed(image)
        self.nan(image)
        return self.twice(self.twice(image))


def test_what_cannot_be_compared_has_a_row_that_says_why() -> None:
    rows = {(row.name, row.call): row for row in profile(Odd().eval(), pictures(), 1 / STEP)}
    assert "returns tuple" in rows["pair", 0].note
    assert "does not follow" in rows["fixed", 0].note
    assert "NaN" in rows["nan", 0].note
    assert all(math.isnan(rows[name, 0].delta) for name in ("pair", "fixed", "nan"))
    assert rows["twice", 0].delta == rows["twice", 1].delta == 0
    assert len(rows) == 6


def test_a_network_that_ends_in_nan_still_shows_where() -> None:
    net = nn.Sequential(nn.Identity(), Odd().nan).eval()
    rows = profile(net, pictures(), 1 / STEP)
    assert [bool(row.note) for row in rows] == [False, True, True]


def test_a_failing_network_and_bad_images_are_refused() -> None:
    with pytest.raises(ValueError, match="rejected images"):
        profile(network(), pictures()[:, :1], 1 / STEP)
    with pytest.raises(ValueError, match="factor"):
        profile(network(), pictures(), 0.0)


def test_hooks_are_gone_and_numbers_repeat() -> None:
    net = network()
    first, second = (profile(net, pictures(), 1 / STEP) for _ in range(2))
    assert first == second
    assert all(not module._forward_hooks for module in net.modules())


def test_table_names_the_layer() -> None:
    table = profile_table(profile(network(FlipScales()), pictures(), 1 / STEP))
    assert "grows most at 2 (FlipScales)" in str(table.caption)
    assert table.row_count == 5


class Parallel(nn.Module):
    """Two interscale layers beside each other: each spoils one channel, and so does their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = ScaleLift(3, 2, BASIS)
        self.one, self.other = (ScaleConv(2, 2, BASIS, interscale=2) for _ in range(2))

    def forward(self, image: Tensor) -> Tensor:
        field = self.lift(image)
        return self.one(field) + self.other(field)


def test_parallel_branches_spoil_no_more_than_one_of_them() -> None:
    torch.manual_seed(0)
    net = Parallel().double().eval()
    rows = profile(net, pictures(), 1 / STEP)
    whole = equivariance_error(net, pictures(), 1 / STEP)
    assert rows[-1].note == ""
    assert torch.tensor(rows[-1].values, dtype=torch.float64).allclose(whole.valid, rtol=1e-9, atol=0)
    assert [row.crop for row in rows[1:]] == [whole.crop] * 3
