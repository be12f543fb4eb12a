"""The sweeps of Delta: their numbers are the meter's, and the truths of the paper's Figure 2 at small sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from harness.experiment import Context, Request
from harness.experiments import EXPERIMENTS
from harness.experiments import delta as equivariance
from harness.experiments.delta import (
    KEPT,
    delta_depth,
    delta_downscale,
    delta_interscale,
    measurements,
    swept,
)
from harness.experiments.sweep_networks import (
    Layer,
    SweepSettings,
    calibrate,
    deep_network,
    interscale_network,
    kernels,
    powers,
    sides_of,
)
from harness.records import Cell, Measurement, Scalar
from sesn import Meter, equivariance_error
from sesn.algorithms.resample import resampled_size
from sesn.tools.photographs import photographs

SIDE = 48
RUNS = {"delta-depth": delta_depth, "delta-downscale": delta_downscale, "delta-interscale": delta_interscale}


def cell_of(experiment: str, window: str, nonlinearity: str, **changes: Scalar) -> Cell:
    """The planned smoke cell of that window and nonlinearity, made small."""
    small: dict[str, Scalar] = {"side": SIDE, "image_count": 2, "channels": 3, **changes}
    for planned in EXPERIMENTS[experiment].plan(Request()):
        settings = planned.cell.settings
        if (settings["window"], settings["nonlinearity"]) == (window, nonlinearity):
            return replace(planned.cell, settings={**settings, **small})
    raise AssertionError("the plan has no such cell")


def settings_of(cell: Cell) -> SweepSettings:
    return EXPERIMENTS[cell.experiment].settings.of(cell)  # type: ignore[return-value]


def values(found: list[Measurement], metric: str, **at: Scalar) -> Tensor:
    (one,) = [m for m in found if m.metric == metric and all(m.at.get(name) == value for name, value in at.items())]
    return torch.tensor(one.values)


def delta(experiment: str, window: str, nonlinearity: str, **changes: Scalar) -> float:
    """The median of the last point of a sweep."""
    found = RUNS[experiment](cell_of(experiment, window, nonlinearity, **changes), Context())
    return float(torch.tensor([m for m in found if m.metric == "delta"][-1].values).median())


@pytest.fixture(scope="module")
def images() -> Tensor:
    crops = photographs(5)[..., :SIDE, :SIDE]
    return crops - crops.mean(dim=(-2, -1), keepdim=True)


@pytest.mark.parametrize("nonlinearity", ["linear", "relu", "bandlimited", "nested"])
@pytest.mark.parametrize("crop", [0, "auto"])
def test_one_pass_gives_the_error_of_every_truncated_network(
    images: Tensor, nonlinearity: str, crop: int | str
) -> None:
    cell = cell_of("delta-depth", "wide", nonlinearity)
    network = deep_network(settings_of(cell), seed=3, layers=4)
    calibrate(network, images.float())
    factor = 1 / float(cell.settings["step"])
    points = swept(lambda f: Meter(crop=crop).along(network, f, factor), images, chunk=5)
    for depth in (1, 2, 4):
        expected = equivariance_error(network[:depth], images, factor, crop=crop)  # type: ignore[arg-type]
        (found,) = points[depth - 1]
        for name in ("valid", "all", "centred", "energy"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name))
        assert (found.lost, found.crop) == (expected.lost, expected.crop)


@pytest.mark.parametrize("window", ["published", "wide"])
def test_one_lift_gives_the_error_at_every_factor(images: Tensor, window: str) -> None:
    cell = cell_of("delta-downscale", window, "relu")
    network = deep_network(settings_of(cell), seed=3, layers=1)
    factors = [1 / downscale for downscale in (2.0, 8.0)]
    points = swept(lambda f: Meter().sweep(network, f, factors, context=False), images, chunk=5)
    for factor, (found,) in zip(factors, points, strict=True):
        expected = equivariance_error(network, images, factor)
        torch.testing.assert_close(found.valid, expected.valid)
        torch.testing.assert_close(found.centred, expected.centred)
        assert (found.lost, found.crop) == (expected.lost, expected.crop)


@pytest.mark.parametrize("extent", [1, 3, 5])
def test_an_interscale_layer_has_the_error_of_the_meter(images: Tensor, extent: int) -> None:
    cell = cell_of("delta-interscale", "wide", "linear", extent=extent)
    network = interscale_network(settings_of(cell), seed=1)
    factor = 1 / float(cell.settings["step"])
    ((found,),) = swept(lambda f: Meter().sweep(network, f, [factor], context=False), images, chunk=5)
    expected = equivariance_error(network, images, factor)
    torch.testing.assert_close(found.valid, expected.valid, equal_nan=True)
    torch.testing.assert_close(found.all, expected.all)
    assert found.lost == expected.lost == min(5, extent)


def test_values_do_not_depend_on_the_chunks(images: Tensor) -> None:
    cell = cell_of("delta-depth", "wide", "relu")
    network = deep_network(settings_of(cell), seed=0, layers=3)
    factor = 1 / float(cell.settings["step"])
    columns = []
    for chunk in (1, 2, 5):
        points = swept(lambda f: Meter(crop=0).along(network, f, factor), images, chunk)
        columns.append([m.values for errors in points for m in measurements(errors, {}, tuple(KEPT))])
    for column in columns[1:]:
        for got, expected in zip(column, columns[0], strict=True):
            assert got == pytest.approx(expected, rel=1e-4)


def test_the_scalars_keep_the_signal_at_1_and_leave_delta_as_it_is(images: Tensor) -> None:
    cell = cell_of("delta-depth", "wide", "relu")
    network = deep_network(settings_of(cell), seed=0, layers=3)
    factor = 1 / float(cell.settings["step"])
    before = equivariance_error(network, images, factor).valid
    calibrate(network, images.float())
    with torch.no_grad():
        assert float(network(images.float()).square().mean().sqrt()) == pytest.approx(1, rel=1e-4)
    torch.testing.assert_close(equivariance_error(network, images, factor).valid, before, rtol=1e-3, atol=0)
    assert not any(name.endswith("gain") for name, _ in network.named_parameters())


def test_a_cell_repeats_exactly_and_its_seed_draws_the_weights() -> None:
    cell = cell_of("delta-depth", "wide", "bandlimited", layers=3)
    first, again = delta_depth(cell, Context()), delta_depth(cell, Context())
    assert first == again
    other = delta_depth(replace(cell, seed=1), Context())
    assert (values(first, "delta", depth=3) != values(other, "delta", depth=3)).all()
    torch.testing.assert_close(values(first, "floor", depth=3), values(other, "floor", depth=3), rtol=0, atol=0)


def test_a_shallower_network_is_the_beginning_of_a_deeper_one() -> None:
    settings = settings_of(cell_of("delta-depth", "wide", "linear"))
    short, long = deep_network(settings, 0, 2), deep_network(settings, 0, 4)
    for name, weight in short.state_dict().items():
        assert torch.equal(weight, long.state_dict()[name])


def test_depth_rows_have_every_depth_and_all_that_is_known_at_the_ends() -> None:
    found = delta_depth(cell_of("delta-depth", "published", "linear", layers=3), Context())
    assert [m.at["depth"] for m in found if m.metric == "delta"] == [1, 2, 3]
    for metric in ("floor", "energy", "delta_centred", "channels_lost"):
        assert [m.at["depth"] for m in found if m.metric == metric] == [1, 3]
    assert values(found, "channels_lost", depth=3).tolist() == [1.0]
    assert len(values(found, "delta", depth=2)) == 2
    assert {m.at["data_name"] for m in found} == {f"photographs; 2 used, {SIDE}x{SIDE}"}


def test_downscale_rows_carry_the_pixels_left() -> None:
    found = delta_downscale(cell_of("delta-downscale", "wide", "linear", largest_downscale=8.0), Context())
    pixels = {round(float(m.at["downscale"]), 3): m.at["pixels"] for m in found if m.metric == "delta"}
    assert pixels == {1.414: 34, 2.0: 24, 2.828: 17, 4.0: 12, 5.657: 8, 8.0: 6}
    assert [values(found, "channels_lost", pixels=p).item() for p in pixels.values()] == [1, 2, 3, 4, 5, 6]


def test_the_grid_ends_the_downscales() -> None:
    assert powers(2.0, 4, 64.0) == [2.0, 4.0, 8.0]
    assert powers(2.0, 4, 4.0) == [2.0, 4.0]


def test_enlarged_images_come_by_fourier() -> None:
    floors = {}
    for how in ("fourier", "lanczos"):
        small: dict[str, Scalar] = {"side": 192, "image_count": 1, "largest_downscale": 2.0}
        found = delta_downscale(cell_of("delta-downscale", "wide", "linear", **small, enlarging=how), Context())
        floors[how] = values(found, "floor", downscale=2.0).item()
    # Fourier leaves nothing above the old Nyquist frequency, where halving would find something to alias.
    assert floors["fourier"] < floors["lanczos"] / 10
    assert cell_of("delta-downscale", "wide", "linear").settings["enlarging"] == "fourier"


# --- what the paper's figure says


def test_wide_windows_are_far_better_than_the_published_ones() -> None:
    depth = {window: delta("delta-depth", window, "linear", layers=5) for window in ("published", "wide")}
    assert depth["published"] > 100 * depth["wide"]
    one = {w: delta("delta-downscale", w, "linear", largest_downscale=1.5) for w in ("published", "wide")}
    assert one["published"] > 100 * one["wide"]


def test_the_nonlinearities_stand_in_order() -> None:
    linear, relu, limited = (
        delta("delta-interscale", "wide", name, extent=1) for name in ("linear", "relu", "bandlimited")
    )
    assert linear < limited < relu


def test_an_ordinary_network_fails_in_the_same_machinery(images: Tensor) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(
        *(Layer(nn.Conv2d(width, 3, 7, padding=3, bias=False), nn.ReLU()) for width in (3, 3, 3))
    ).eval()
    points = swept(lambda f: Meter(crop=0).along(plain, f, 68 / 96), images, chunk=5)
    wide = delta("delta-depth", "wide", "relu", layers=3)
    assert float(points[-1][0].valid.median()) > max(0.1, 100 * wide)


def test_truncation_grows_with_the_extent_and_spares_the_valid_channels() -> None:
    found = {
        extent: [
            delta_interscale(
                replace(cell_of("delta-interscale", "wide", "linear", extent=extent, channels=8), seed=seed), Context()
            )
            for seed in range(6)
        ]
        for extent in (1, 2, 3, 4, 5)
    }
    everything = {k: float(torch.cat([values(f, "delta_all") for f in draws]).median()) for k, draws in found.items()}
    # Were all kernels' responses of equal energy: what the spoilt channels lack, over what the channels hold.
    for extent, expected in {2: 1 / 7, 3: 2 / 9, 4: 3 / 10, 5: 4 / 10}.items():
        assert expected / 2 < everything[extent] < expected * 2
    level = float(torch.cat([values(f, "delta") for f in found[1]]).median())
    for extent in (2, 3, 4):
        assert float(torch.cat([values(f, "delta") for f in found[extent]]).median()) < 10 * level


def test_where_no_channel_is_valid_the_rows_say_so() -> None:
    found = delta_interscale(cell_of("delta-interscale", "wide", "linear", extent=5), Context())
    assert {m.metric for m in found} == {"delta_all", "channels_lost", "floor"}
    assert values(found, "channels_lost").tolist() == [5.0]
    more = delta_interscale(cell_of("delta-interscale", "wide", "linear", extent=5, scales=9), Context())
    assert values(more, "channels_lost").tolist() == [5.0]
    assert float(values(more, "delta").median()) < 1e-4 < float(values(found, "delta_all").median())


# --- the nested nonlinearity


#: What makes a cell of a sweep short.
SHORT: dict[str, dict[str, Scalar]] = {
    "delta-depth": {"layers": 1},
    "delta-downscale": {"largest_downscale": 8.0},
    "delta-interscale": {},
}


@pytest.mark.parametrize("experiment", list(RUNS))
def test_nested_relus_list_every_size_that_is_measured(experiment: str) -> None:
    cell = cell_of(experiment, "wide", "nested", **SHORT[experiment])
    steps = (float(m.at.get("downscale", cell.settings["step"])) for m in RUNS[experiment](cell, Context()))
    assert set(sides_of(settings_of(cell))) == {SIDE, *(resampled_size(SIDE, 1 / step) for step in steps)}


DEPTHS = [pytest.param(4, SIDE, id="4 layers"), pytest.param(50, 96, marks=pytest.mark.slow, id="50 layers")]


@pytest.mark.parametrize(("layers", "side"), DEPTHS)
def test_a_deep_network_with_nested_relus_is_exact(layers: int, side: int) -> None:
    """At 96 pixels and at 68; the other two alias, at every depth."""
    names = ("linear", "relu", "bandlimited", "nested")
    found = {name: delta("delta-depth", "periodic", name, layers=layers, side=side, image_count=1) for name in names}
    assert found["nested"] < 1e-8
    assert found["nested"] < found["bandlimited"] / 100 < found["relu"] / 1000
    assert found["linear"] < 1e-9


@pytest.mark.parametrize(("layers", "side"), DEPTHS)
def test_a_deep_network_with_nested_relus_keeps_translation_by_pixels(layers: int, side: int) -> None:
    """Exactly at the larger size; not if each size is rectified on its own pixels."""
    settings = settings_of(cell_of("delta-depth", "periodic", "nested", side=side))
    image = photographs(1)[..., :side, :side]

    def moved(network: nn.Sequential) -> float:
        calibrate(network, image.float())
        with torch.no_grad():
            there, here = network.double()(image.roll(1, -1)), network(image).roll(1, -1)
        return float((there - here).square().sum() / here.square().sum())

    assert moved(deep_network(settings, 0, layers)) < 1e-20
    coarse = deep_network(settings, 0, layers)
    for layer in coarse:
        layer.nonlinearity.oversample = 1  # type: ignore[union-attr]
    assert moved(coarse) > 1e-4


# --- the plan's kernels


def test_the_kernels_are_those_of_the_plan() -> None:
    published = kernels(settings_of(cell_of("delta-depth", "published", "linear")))
    assert (len(published), published.kernel_size, published.boxes) == (9, 13, (3, 5, 7, 9, 13))
    wide = kernels(settings_of(cell_of("delta-depth", "wide", "linear")))
    assert len(wide) == 6
    assert all(box // 2 >= 4.5 * sigma for box, sigma in zip(wide.boxes, wide.grid, strict=True))


def test_published_windows_are_those_of_the_stl10_networks_on_any_number_of_scales() -> None:
    planned = [settings_of(p.cell) for key in RUNS for p in EXPERIMENTS[key].plan(Request())]
    bases = [kernels(settings) for settings in planned if settings.window == "published"]
    assert {len(basis.grid) for basis in bases} == {5, 6, 7, 8, 9, 13}
    assert all(basis.boxes[:3] == (3, 5, 7) for basis in bases)


@pytest.mark.parametrize(("setting", "value"), [("window", "narrow"), ("nonlinearity", "tanh")])
def test_unknown_words_are_named(setting: str, value: str) -> None:
    cell = cell_of("delta-depth", "wide", "linear", layers=1)
    with pytest.raises(ValueError, match=rf"`{setting}` \(='{value}'\) must be"):
        delta_depth(replace(cell, settings={**cell.settings, setting: value}), Context())


def test_images_are_read_from_the_context_s_folder(tmp_path: Path) -> None:
    cell = cell_of("delta-depth", "wide", "linear", layers=1, images="stl10")
    with pytest.raises(FileNotFoundError, match="stl10"):
        equivariance.images_of(settings_of(cell), Context(data_root=tmp_path))


def test_progress_is_told() -> None:
    told: list[float] = []
    delta_depth(
        cell_of("delta-depth", "wide", "linear", layers=2), Context(on_progress=lambda done, _: told.append(done))
    )
    assert told
    assert told == sorted(told)
