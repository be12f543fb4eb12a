"""Table 1, measured: the probes see what they should, and the marks follow from the rows by the declared rule."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import ROUNDING, gaussian_blob
from torch import Tensor, nn

from harness.experiment import Context
from harness.experiments.properties import (
    FAMILIES,
    OCTAVE,
    SHIFTS,
    SIDE,
    drawn,
    interscale_reach,
    layer_error,
    middle_crop,
    one_scale_each,
    own_factor,
    properties,
)
from harness.paper import FOLDER
from harness.records import Cell, Measurement
from harness.report.table_1 import (
    FAMILIES as WORDS,
)
from harness.report.table_1 import (
    QUESTIONS,
    SMALL,
    admissible,
    left_out,
    property_frame,
)
from sesn import ScaleConv, ScaleGrid, basis_a
from sesn.meter.compare import middle
from sesn.methods import METHODS, scales_of, vector_angles
from sesn.methods._layer import odd_side
from sesn.methods._vectors import ScalesToVectors, VectorsToScales
from sesn.methods.cnn import plain
from sesn.methods.method import COLOURS, HIDDEN_SCALES, Method
from sesn.methods.sevf import SEVFLift, sevf_angles, sevf_scales
from sesn.strategies import scale_grids
from sesn.tools.photographs import photographs

# The families and what is compared


def test_factors_stand_in_the_narrowest_family_they_belong_to() -> None:
    def whole(value: float) -> bool:
        return math.isclose(value, round(value), rel_tol=1e-12)

    assert all(whole(factor) and whole(SIDE / factor) for factor in FAMILIES["integer"])
    assert all(not whole(factor) and whole(SIDE / factor) for factor in FAMILIES["grid"])
    assert not any(whole(SIDE / factor) for factor in FAMILIES["any"])
    assert list(FAMILIES) == list(WORDS)


@given(grid=scale_grids(ratio=st.floats(1.1, 4)))
def test_the_own_factor_is_the_power_of_the_step_nearest_to_an_octave(grid: ScaleGrid) -> None:
    factor = own_factor(grid)
    if len(grid) == 1:
        assert factor == OCTAVE
        return
    assert grid.match(1 / factor).on_grid
    others = [grid.ratio**steps for steps in range(1, len(grid))]
    assert math.isclose(factor, min(others, key=lambda other: abs(math.log(other / OCTAVE))), rel_tol=1e-9)


@given(side=st.integers(48, 256), downscale=st.floats(1.1, 4))
def test_the_middle_that_is_compared(side: int, downscale: float) -> None:
    small, crop = round(side / downscale), middle_crop(side, downscale)
    assert 0 < 2 * crop < small
    assert (small - 2 * crop - 1) / small <= 1 / max(OCTAVE, downscale)


# The layers


def test_a_method_without_a_layer_says_so() -> None:
    with pytest.raises(ValueError, match=r"`step` .=2. needs a `layer` of the method 'x'"):
        Method("x", "X", networks=METHODS["cnn"].networks).at_step(2.0)


@pytest.mark.parametrize("downscale", sorted(factor for factors in FAMILIES.values() for factor in factors))
@pytest.mark.parametrize("key", METHODS)
def test_the_step_of_a_layer_is_the_factor_or_it_refuses(key: str, downscale: float) -> None:
    """SS-CNN's sides are whole and odd, so its steps are near; it hands on no scales that would have to partner.

    A layer without scales, though it is not plain, is one layer for all factors.
    """
    try:
        grid = scales_of(METHODS[key].at_step(downscale))
    except (TypeError, ValueError):
        plainly = METHODS[key].source.approach == "none"
        assert plainly or (key.startswith("dss") and downscale not in FAMILIES["integer"])
        return
    if grid is None:
        shapes = [[p.shape for p in METHODS[key].at_step(step).parameters()] for step in (2.0, downscale)]
        assert METHODS[key].between is None
        assert shapes[0] == shapes[1]
        return
    tolerance = 2 / odd_side(11 / downscale) if key == "ss-cnn" else 1e-9
    assert grid.ratio == pytest.approx(downscale, rel=tolerance)


def test_hidden_layers_have_the_scales_of_the_probe() -> None:
    for key, layers in METHODS.items():
        if layers.between is not None:
            grid = scales_of(layers.between())
            assert grid is not None
            assert len(grid) == HIDDEN_SCALES, key


def test_biases_are_zero_and_the_seed_draws_the_weights() -> None:
    layers = [drawn(lambda: METHODS["si-convnet"].first_layer(3, 2), seed) for seed in (0, 0, 1)]
    first, again, other = (dict(layer.named_parameters()) for layer in layers)
    assert not any(first["bias"].tolist())
    assert torch.equal(first["weight"], again["weight"])
    assert not torch.equal(first["weight"], other["weight"])


# The probes


class Blend(nn.Module):
    """Scale k of the output is a sum of scales k + i, i in `offsets`; nothing past the ends."""

    def __init__(self, *offsets: int) -> None:
        super().__init__()
        self.offsets = offsets

    def forward(self, field: Tensor) -> Tensor:
        count = field.shape[2]
        zero = torch.zeros_like(field[:, :, 0])
        seen = [[k + i for i in self.offsets if 0 <= k + i < count] for k in range(count)]
        return torch.stack([sum((field[:, :, j] for j in scales), zero) for scales in seen], dim=2)


@pytest.mark.parametrize(("offsets", "reach"), [((0,), 0), ((0, 1), 1), ((-1, 0, 1), 2), ((1,), 1), ((-2, 0, 1), 2)])
def test_interscale_reach_counts_the_other_scales(offsets: tuple[int, ...], reach: int) -> None:
    assert interscale_reach(Blend(*offsets), torch.rand(1, 2, 4, 5, 5)) == reach


@pytest.mark.parametrize("extent", [1, 2, 3])
def test_interscale_reach_of_sesn_is_its_extent_less_one(extent: int) -> None:
    layer = ScaleConv(2, 2, basis_a(ScaleGrid.geometric(1.0, 1.5, 3), 7, 3), interscale=extent)
    assert interscale_reach(layer, torch.rand(1, 2, 3, 9, 9)) == extent - 1


def test_vectors_that_no_filter_touches_see_no_other_scale() -> None:
    """What a vector is made of is no interaction; a filter over several positions is."""
    angles = sevf_angles(HIDDEN_SCALES)
    untouched = nn.Sequential(ScalesToVectors(angles), VectorsToScales(angles))
    between = METHODS["sevf-vector"].between
    assert between is not None
    filtered = drawn(between, 0).double()
    assert [interscale_reach(module, one_scale_each(0)) for module in (untouched, filtered)] == [0, HIDDEN_SCALES - 1]


class Pointing(SEVFLift):
    """The image as the length of vectors that turn by `direction` scales with every halving of its size."""

    def __init__(self, direction: int, start: int = 2) -> None:
        super().__init__(1, 1, 7, sevf_scales(5, 2.0), sevf_angles(5))
        self.direction, self.start = direction, start

    def forward(self, image: Tensor) -> Tensor:
        halvings = round(math.log2(SIDE / image.shape[-1]))
        angle = self.angles[self.start + self.direction * halvings]
        return torch.stack([image * math.cos(angle), image * math.sin(angle)], dim=2)


@pytest.mark.parametrize("downscale", [2.0, 4.0])
def test_vectors_turn_with_the_scale(downscale: float) -> None:
    bright = gaussian_blob(SIDE, 12.0)
    right, wrong = (layer_error(Pointing(direction).double(), bright, downscale) for direction in (1, -1))
    assert right.kind == "vectors"
    assert right.all.item() < ROUNDING
    assert right.valid.item() < ROUNDING
    assert wrong.all.item() > 0.1
    assert vector_angles(nn.Sequential(nn.Identity())) is None


@pytest.mark.parametrize("start", [0, 4])
def test_vectors_without_a_partner_are_left_out(start: int) -> None:
    """Vectors at the largest scale have nothing to turn to, and those at the smallest nothing to come from."""
    error = layer_error(Pointing(0, start).double(), gaussian_blob(SIDE, 12.0), 2.0)
    assert error.valid.isnan().all()
    assert error.all.item() > 0.01


def test_sevf_turns_the_right_way() -> None:
    """With its angles in another order the same layer is farther from equivariant, on every photograph."""
    images, scales, angles = photographs(3), sevf_scales(3, 2.0), sevf_angles(3)
    orders = angles, (angles[1], angles[2], angles[0])
    layers = [drawn(partial(SEVFLift, COLOURS, 4, 7, scales, order), 0) for order in orders]
    good, bad = (layer_error(layer, images, 2.0).valid for layer in layers)
    assert (good < bad).all()


@pytest.mark.parametrize("key", ["dss-vector", "sesn-vector"])
def test_equivariant_layers_are_far_below_a_plain_one_and_broken_ones_are_not(key: str) -> None:
    images = photographs(4)
    layer = drawn(lambda: METHODS[key].at_step(2.0), 0)
    unlike = nn.Sequential(layer, Backwards())
    unlike.grid = scales_of(layer)
    good, bad, reference = (
        middle(layer_error(module, images, 2.0).valid) for module in (layer, unlike, drawn(lambda: plain(7), 0))
    )
    assert good < SMALL * reference
    assert bad > SMALL * reference


class Backwards(nn.Module):
    """The scale axis reversed."""

    def forward(self, field: Tensor) -> Tensor:
        return field.flip(2)


# From a cell to rows


def cell(key: str, seed: int = 0, images: int = 2) -> Cell:
    return Cell("properties", 1, "smoke", key, {"images": "embedded", "image_count": images, "recipe": "paper"}, seed)


def rows_of(key: str, measurements: list[Measurement], seed: int = 0) -> list[dict[str, Any]]:
    return [
        {"method": key, "seed": seed, "metric": m.metric, "value": value, "repeat": i, **m.at}
        for m in measurements
        for i, value in enumerate(m.values)
    ]


QUICK = ("cnn", "dss-vector", "sesn-a")


@pytest.fixture(scope="module")
def measured() -> Any:
    return pd.DataFrame([row for key in QUICK for row in rows_of(key, properties(cell(key), Context()))])


@pytest.fixture(scope="module")
def marks() -> Any:
    return pd.read_csv(FOLDER / "properties.csv")


def assert_whole(rows: Any) -> None:
    """Every family and shift is there, with a value per image or a refusal."""
    delta = rows[rows["metric"] == "delta"]
    for family, factors in FAMILIES.items():
        found = delta[delta["family"] == family]
        assert set(found["downscale"]) == set(factors)
        assert (found["value"].notna() | found["refused"].notna()).all()
    assert len(delta[delta["family"] == "own"]) == 2
    shifted = rows[rows["metric"] == "translation_error"]
    assert set(zip(shifted["down"], shifted["right"], strict=True)) == set(SHIFTS)
    assert len(rows[rows["metric"] == "interscale_reach"]) == 1
    assert (rows[rows["metric"] == "delta_cnn"]["value"] > 0).all()


@pytest.mark.parametrize("key", QUICK)
def test_a_cell_measures_everything(key: str, measured: Any) -> None:
    assert_whole(measured[measured["method"] == key].reindex(columns=[*measured.columns]))


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in METHODS if key not in QUICK])
def test_so_do_the_cells_of_all_others(key: str) -> None:
    rows = pd.DataFrame(rows_of(key, properties(cell(key), Context())))
    assert_whole(rows.reindex(columns=[*dict.fromkeys([*rows.columns, "refused"])]))


def test_the_seed_decides_the_numbers_and_progress_is_told() -> None:
    told: list[float] = []
    context = Context(on_progress=lambda fraction, _doing: told.append(fraction))
    first, again, other = (properties(cell("wrn", seed), context) for seed in (0, 0, 1))
    # The wide ResNet's layer cannot be built for a step, so some values are NaN, which equals nothing.
    assert [repr(m) for m in first] == [repr(m) for m in again]
    assert [repr(m) for m in first] != [repr(m) for m in other]
    assert told[-1] == 1.0
    assert all(0 < fraction <= 1 for fraction in told)


def test_a_cell_refuses_unknown_methods_recipes_and_images() -> None:
    with pytest.raises(ValueError, match="`method`"):
        properties(cell("sesn"), Context())
    with pytest.raises(ValueError, match=r"`recipe` \(='papre'\)"):
        properties(
            Cell("properties", 1, "smoke", "cnn", {"images": "embedded", "image_count": 1, "recipe": "papre"}),
            Context(),
        )
    with pytest.raises(ValueError, match="`images`"):
        properties(Cell("properties", 1, "smoke", "cnn", {"images": "nowhere", "image_count": 1}), Context())


def test_dss_says_why_it_takes_whole_numbers_only(measured: Any) -> None:
    refused = measured[(measured["method"] == "dss-vector") & measured["refused"].notna()]
    assert set(refused["family"]) == {"grid", "any"}
    assert refused["refused"].str.contains("`base` .* must be a whole number").all()
    assert refused["value"].isna().all()


# From rows to marks


def made_up(ratios: dict[str, float], reach: int = 0, key: str = "sesn-vector") -> Any:
    """Rows of a method whose Delta is so many times the plain one's; NaN is refused."""
    rows: list[dict[str, Any]] = []
    for family, ratio in ratios.items():
        for downscale in FAMILIES.get(family, (2.0,)):
            at = {"method": key, "seed": 0, "repeat": 0, "family": family, "downscale": downscale}
            words = "no such factor" if math.isnan(ratio) else None
            rows += [{**at, "metric": "delta", "value": ratio * 0.4, "refused": words}]
            rows += [{**at, "metric": "delta_cnn", "value": 0.4}]
    rows.append({"method": key, "metric": "interscale_reach", "value": float(reach), "seed": 0, "repeat": 0})
    rows.append({"method": key, "metric": "translation_error", "value": 0.0, "seed": 0, "repeat": 0})
    return pd.DataFrame(rows)


NAN = math.nan


@pytest.mark.parametrize(
    ("integer", "grid", "anything", "mark"),
    [
        (0.1, 0.1, 0.1, "Any"),
        (0.1, 0.1, 0.3, "Grid"),
        (0.1, 0.3, 0.1, "Integer"),  # what is within a family must hold as well
        (0.1, NAN, NAN, "Integer"),
        (0.3, 0.1, 0.1, "none"),
        (0.3, 0.3, 0.3, "(Any)"),
        (0.3, NAN, NAN, "(Integer)"),
        (NAN, NAN, NAN, "none"),
        (SMALL, SMALL, SMALL, "Any"),
    ],
)
def test_the_mark_of_admissible_scales(integer: float, grid: float, anything: float, mark: str) -> None:
    ratios = dict(zip(WORDS, (integer, grid, anything), strict=True))
    assert admissible(ratios, {family: not math.isnan(ratio) for family, ratio in ratios.items()}) == mark


@pytest.mark.parametrize("ratio", [0.1, 0.3])
@pytest.mark.parametrize("reach", [0, 2])
def test_agreement_is_computed(ratio: float, reach: int, marks: Any) -> None:
    rows = made_up({"own": ratio, "integer": ratio, "grid": ratio, "any": ratio}, reach)
    line = property_frame(rows, marks).iloc[0]
    assert line["equivariance_measured"] == line["equivariance_agree"] == ("yes" if ratio <= SMALL else "no")
    assert line["interscale_measured"] == line["interscale_agree"] == ("yes" if reach else "no")
    flipped = marks.assign(equivariance=marks["equivariance"].map({"yes": "no", "no": "yes"}))
    assert property_frame(rows, flipped).iloc[0]["equivariance_agree"] != line["equivariance_agree"]


def test_a_method_that_the_paper_does_not_list_has_no_verdict(marks: Any) -> None:
    rows = made_up({"own": 0.1, "integer": 0.1, "grid": 0.1, "any": NAN}, key="sesn-c")
    line = property_frame(rows, marks).iloc[0]
    assert [line[f"{question}_agree"] for question in QUESTIONS] == ["", "", ""]
    assert line["admissible_measured"] == "Grid"
    assert list(property_frame(rows, marks)["refused"]) == ["no such factor"]


@pytest.mark.parametrize("whole", [0.04, 0.3])
def test_what_delta_leaves_out_is_told_where_it_matters(whole: float, marks: Any) -> None:
    rows = made_up({"own": 0.1, "integer": 0.1, "grid": 0.1, "any": 0.1}, key="sevf-vector")
    own = rows[(rows["family"] == "own") & (rows["metric"] == "delta")]
    frame = property_frame(pd.concat([rows, own.assign(metric="delta_all", value=whole)]), marks)
    told = [note for note in left_out(frame) if note.startswith("SEVF Vector: Δ leaves out")]
    assert len(told) == (whole > 0.04)
    assert all("0.3 instead of 0.04" in note for note in told)


def test_the_table_of_measured_rows(measured: Any, marks: Any) -> None:
    frame = property_frame(measured, marks)
    assert list(frame["method"]) == sorted(QUICK, key=list(METHODS).index)
    dss = frame.set_index("method").loc["dss-vector"]
    assert [dss[f"{question}_agree"] for question in QUESTIONS] == ["yes", "yes", "yes"]
    cnn = frame.set_index("method").loc["cnn"]
    assert (cnn["ratio"], cnn["admissible_measured"], cnn["reach"]) == (1.0, "none", 0)
    assert "must be a whole number" in dss["refused"]
