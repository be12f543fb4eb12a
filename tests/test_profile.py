"""The layer profile: the planted layer is found, every call has a row, and what cannot be compared says why."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sesn import (
    GlobalPool,
    Meter,
    ScaleConv,
    ScaleGrid,
    ScaleLift,
    ScaleProjection,
    ScaleTranslation,
    SpatialMaxPool,
    basis_a,
    equivariance_error,
)
from sesn.tools.photographs import photographs
from sesn.tools.profile import FUNCTIONS, WHOLE, adds_most, floor_of, profile

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
def test_the_planted_layer_adds_most(planted: type[nn.Module]) -> None:
    found = adds_most(profile(network(planted()), pictures(), 1 / STEP))
    assert found is not None
    assert found.name.partition(".")[0] == "2"
    assert found.own > 0.01


def test_an_equivariant_network_adds_nothing() -> None:
    net = network()
    rows = profile(net, pictures(), 1 / STEP)
    assert [row.name for row in rows] == ["0", "1", "2", WHOLE]
    assert all(row.added < 1e-4 and row.delta < 1e-4 and row.kind == "field" for row in rows)
    assert adds_most(rows, 1e-3) is None


class Signs(nn.Module):
    """Every other pixel negative, which rescaling turns over."""

    def forward(self, x: Tensor) -> Tensor:
        down, right = (torch.arange(side) for side in x.shape[-2:])
        return x * (1 - 2 * ((down[:, None] + right) % 2))


def test_the_first_layer_is_not_blamed_for_what_a_later_one_does() -> None:
    torch.manual_seed(0)
    first, last = (nn.Conv2d(3, 3, 5, padding=2, bias=False) for _ in range(2))
    net = nn.Sequential(first, nn.Identity(), nn.Sequential(nn.Identity(), Signs()), last).double().eval()
    rows, floor = profile(net, pictures(), 1 / 2), floor_of(net, pictures(), 1 / 2)
    named = {row.name: row for row in rows}
    # As many times as at the first, where the input is an image and has no error, it can grow nowhere.
    assert named["0"].relative / floor > 100 * named["2.1"].relative / named["2.0"].relative
    assert adds_most(rows, floor) is named["2.1"]


def test_one_number_for_each_image_is_a_score() -> None:
    net = nn.Sequential(network(), GlobalPool(), ScaleProjection(), nn.Linear(2, 1).double(), nn.Flatten(0)).eval()
    rows = profile(net, pictures(), 1 / STEP)
    assert rows[-1].kind == rows[-2].kind == "invariant"
    assert rows[-1].delta == equivariance_error(net, pictures(), 1 / STEP).valid.quantile(0.5)


def test_the_last_row_is_the_network_measured_as_a_whole() -> None:
    net = network(FlipScales())
    row = profile(net, pictures(), 1 / STEP)[-1]
    whole = equivariance_error(net, pictures(), 1 / STEP)
    assert row.name == WHOLE
    assert row.relative == pytest.approx(float(whole.relative.quantile(0.5)))
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
    assert all(row.relative == 0 and row.added == 0 for name, row in rows.items() if row.name == "twice")


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
    # A repr has every digit. From Python 3.13 on, data classes with the same NaN are not equal.
    assert repr(first) == repr(second)
    assert all(not module._forward_hooks for module in net.modules())


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


@pytest.mark.parametrize("count", [1, 3])
def test_the_relative_delta_is_that_of_the_verdict(count: int) -> None:
    """Of a single image too, where noise takes the place of another image."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), nn.ReLU()).double().eval()
    rows = profile(net, pictures(count), 1 / 2)
    for row, layers in ((rows[0], net[:1]), (rows[1], net)):
        whole = equivariance_error(layers, pictures(count), 1 / 2).relative
        assert row.relative == pytest.approx(float(whole.quantile(0.5)))


class Sum(nn.Module):
    """The input and a branch of it, which is small or large; changed in place, as many networks do."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size, self.branch = size, nn.Conv2d(3, 3, 5, padding=2, bias=False)
        self.act = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = self.branch(x)
        out *= self.size
        out += x
        return self.act(out)


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_a_residual_branch_counts_by_what_is_left_of_it(size: float) -> None:
    torch.manual_seed(0)
    coarse = nn.Conv2d(3, 3, 5, padding=2, groups=3, bias=False)
    net = nn.Sequential(coarse, Sum(size)).double().eval()
    found = profile(net, pictures(), 1 / 2, Meter(crop=8))
    rows = {(row.name, row.layer == FUNCTIONS): row for row in found}
    branch, total = rows["1.branch", False], rows["1.act", True]
    assert branch.own > rows["0", False].own / 10
    # The sum is measured itself, although the branch's own tensor has become it.
    assert total.relative == rows["1.act", False].relative == rows["1", False].relative
    if size > 1:
        assert total.relative == pytest.approx(branch.relative, rel=0.01)
    else:
        assert total.relative == pytest.approx(rows["0", False].relative, rel=0.01)
        assert branch.lasting < branch.own / 10
        assert adds_most(found) is rows["0", False]


class Skipped(nn.Module):
    """A U-Net of one step: coarse maps come up again by a transposed convolution, beside the fine ones."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(x)
        return self.last(torch.cat([fine, 0.1 * self.up(self.coarse(fine).relu())], dim=1))  # type: ignore[no-any-return]


def test_what_falls_again_before_the_output_does_not_add_most() -> None:
    """The transposed convolution has the largest Delta of all, next to nothing of which reaches the output."""
    torch.manual_seed(0)
    found = profile(Skipped().eval(), pictures(), 1 / 2)
    rows = {row.name: row for row in found if row.layer != FUNCTIONS}
    assert max(found, key=lambda row: row.own) is rows["up"]
    assert rows["(output)"].relative < rows["up"].relative / 2
    assert rows["up"].lasting < rows["up"].own / 4
    named = adds_most(found)
    assert named is not None
    assert named.name in ("fine", "last")


class Places(nn.Module):
    """Adds what depends on the place alone, between two layers that do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[-1], dtype=x.dtype) % 3
        return self.after(self.before(x) + place)


def test_what_functions_add_between_layers_is_found() -> None:
    found = adds_most(profile(Places().eval(), pictures(), 1 / 2))
    assert found is not None
    assert (found.layer, found.title) == (FUNCTIONS, "before after")


def test_pooling_a_map_adds_nothing_to_it() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double().eval()
    _, pooled, flat, _ = profile(net, pictures(), 1 / 2)
    assert pooled.kind == "invariant"
    assert pooled.relative > 0
    assert pooled.keeps()
    assert flat.own == 0


class Attends(nn.Module):
    """Patches as tokens, attention that returns a tuple, and heads [b, heads, n, c]; scores."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.attend = nn.Conv2d(3, 8, 4, 4), nn.MultiheadAttention(8, 2, batch_first=True)
        self.heads, self.head = nn.Identity(), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.cut(x).flatten(2).transpose(1, 2)
        tokens, _ = self.attend(tokens, tokens, tokens, need_weights=False)
        heads = self.heads(tokens.unflatten(2, (2, 4)).transpose(1, 2))
        return self.head(heads.mean((1, 2)).repeat(1, 2))


def test_tokens_and_heads_are_maps_whatever_the_output_is() -> None:
    torch.manual_seed(0)
    net = Attends().double().eval()
    rows = {row.title: row for row in profile(net, pictures(), 1 / 2)}
    assert [rows[name].kind for name in ("cut", "before attend", "attend", "before heads")] == ["map", *["tokens"] * 3]
    assert rows["before attend"].values == rows["cut"].values  # the same numbers in another order
    assert rows["heads"].relative == pytest.approx(rows["attend"].relative)
    assert rows["before heads"].own == pytest.approx(0, abs=1e-9)  # functions have only rearranged it
    assert rows["attend"].leaf  # it holds a layer that it does not call


def test_convolutions_commute_with_shifts_and_a_stride_aliases() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1)]
    net = nn.Sequential(*layers).double().eval()
    shifts = {pixels: profile(net, pictures(), ScaleTranslation(1.0, (pixels, pixels))) for pixels in (1, 2, 4)}
    for pixels, rows in shifts.items():
        assert max(row.relative for row in rows[:2]) < 1e-20, pixels
    assert all(row.relative < 1e-20 for pixels in (2, 4) for row in shifts[pixels])
    assert shifts[1][2].relative > 1e-3
    found = adds_most(shifts[1], floor_of(net, pictures(), ScaleTranslation(1.0, (1.0, 1.0))))
    assert found is not None
    assert found.name == "2"


def test_a_smooth_map_of_stride_two_is_shifted_by_half_a_pixel() -> None:
    """The resampler interpolates: what has no fine detail moves by half a pixel without an error."""
    width = torch.arange(-16, 17, dtype=torch.float64)
    kernel = torch.exp(-width.square() / 32)
    blur = nn.Conv2d(1, 1, 33, stride=2, padding=16, bias=False).double()
    blur.weight.data.copy_((kernel[:, None] * kernel)[None, None])
    image = pictures()[:, :1].double()
    shifted = [profile(blur.eval(), image, ScaleTranslation(1.0, (t, t)))[-1].relative for t in (1.0, 2.0)]
    assert shifted[0] < 1e-5
    assert shifted[1] < 1e-20


def test_progress_sums_to_one() -> None:
    parts: list[float] = []
    profile(network(), pictures(), 1 / STEP, on_step=parts.append)
    assert len(parts) > 3
    assert sum(parts) == pytest.approx(1)
