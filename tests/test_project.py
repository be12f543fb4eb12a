"""Projections: their values, the laws they obey, and what they do to Delta of maps and scores."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from measures import assert_same, put
from torch import Tensor, nn

import sesn
from sesn import GlobalPool, PartneredProjection, ScaleGrid, ScaleLift, ScaleProjection, basis_a, translate
from sesn.strategies import images
from sesn.tools import surgery
from sesn.tools.photographs import photographs

FIELDS = images(leading=st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(3, 6)))
SHIFTS = st.tuples(st.integers(-6, 6), st.integers(-6, 6))
WIDE = basis_a(ScaleGrid.geometric(1.5, math.sqrt(2), 5), "wide", 3, max_order=2)


@st.composite
def projections(draw: st.DrawFn) -> ScaleProjection:
    """Any that three scales are enough for."""
    reduce = draw(st.sampled_from(["max", "mean", "soft"]))
    leave_out = draw(st.sampled_from([(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]))
    tapers = reduce != "max" and sum(leave_out) < 2
    taper, sharpness = draw(st.integers(0, 1 if tapers else 0)), draw(st.floats(0.1, 20))
    return ScaleProjection(reduce=reduce, sharpness=sharpness, taper=taper, leave_out=leave_out)


def by_definition(project: ScaleProjection, values: list[float]) -> float:
    """The same of one pixel, slowly."""
    small, large = project.leave_out
    kept = values[small : len(values) - large]
    if project.reduce == "max":
        return max(kept)
    weights = [1.0] * len(kept)
    for place in range(project.taper):
        for end in {place, len(kept) - 1 - place}:
            weights[end] = (1 - math.cos(math.pi * (place + 1) / (project.taper + 1))) / 2
    total = sum(weights)
    if project.reduce == "mean":
        return sum(weight * value for weight, value in zip(weights, kept, strict=True)) / total
    b = project.sharpness
    return math.log(sum(w * math.exp(b * x) for w, x in zip(weights, kept, strict=True)) / total) / b


# --- the laws


@given(field=FIELDS, project=projections())
def test_a_projection_is_what_its_definition_says_of_every_pixel(device, field, project):
    made = project(put(field, device))
    assert made.shape == field.shape[:2] + field.shape[3:]
    for place in itertools.product(*([0, size - 1] for size in made.shape)):
        b, c, h, w = place
        assert float(made[place]) == pytest.approx(by_definition(project, field[b, c, :, h, w].tolist()), abs=1e-4)
    assert_same(project(put(field, device)[..., 0, 0]), made[..., 0, 0])


@given(value=st.floats(-50, 50), scales=st.integers(3, 7), project=projections())
def test_what_is_the_same_at_all_scales_is_kept(device, value, scales, project):
    made = project(torch.full((1, 2, scales, 3, 3), value, device=device))
    assert torch.allclose(made, torch.full_like(made, value), rtol=1e-5, atol=1e-6)


@given(field=FIELDS, sharpness=st.floats(0.1, 20))
def test_a_soft_maximum_lies_between_mean_and_maximum_and_rises_to_it(device, field, sharpness):
    field = put(field, device)
    mean, low, high, most = (
        ScaleProjection(reduce=how, sharpness=b)(field)
        for how, b in (("mean", 1.0), ("soft", sharpness), ("soft", 2 * sharpness), ("max", 1.0))
    )
    room = 1e-5 * (1 + field.abs().amax())
    assert bool(((mean <= low + room) & (low <= high + room) & (high <= most + room)).all())
    assert torch.allclose(ScaleProjection(reduce="soft", sharpness=1e-6)(field), mean, atol=float(10 * room))
    assert torch.allclose(ScaleProjection(reduce="soft", sharpness=1e6)(field), most, atol=float(10 * room))


@given(field=FIELDS, shift=SHIFTS, step=st.integers(1, 3), project=projections())
def test_projection_commutes_exactly_with_translation_and_decimation(device, field, shift, step, project):
    field = put(field, device)
    moved = translate(field, *shift)[..., ::step, ::step]
    assert_same(project(moved), translate(project(field), *shift)[..., ::step, ::step])


@pytest.mark.parametrize("reduce", ["max", "mean", "soft"])
@given(field=FIELDS, data=st.data())
def test_projection_does_not_see_where_on_the_scale_axis_things_are(device, reduce, field, data):
    order = data.draw(st.permutations(range(field.shape[2])))
    field = put(field, device)
    assert_same(ScaleProjection(reduce=reduce)(field[:, :, order]), ScaleProjection(reduce=reduce)(field))


@given(taper=st.integers(0, 3), more=st.integers(1, 4))
def test_a_taper_falls_to_both_ends_alike(taper, more):
    scales = 2 * taper + more
    weights = ScaleProjection(reduce="mean", taper=taper)(torch.eye(scales, dtype=torch.float64)[None])[0]
    assert_same(weights, weights.flip(0))
    assert float(weights.sum()) == pytest.approx(1)
    steps = weights.diff()[: taper + 1]
    assert bool((steps[:taper] > 0).all())
    assert bool(weights[taper : scales - taper].diff().abs().le(1e-12).all())


def test_a_soft_maximum_has_the_gradient_of_its_weights(device):
    field = torch.randn(1, 1, 4, 2, 2, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(ScaleProjection(reduce="soft", taper=1), field)


# --- the scale axis has ends


def act(field: Tensor, entering: Tensor) -> Tensor:
    """L_s on samples: every second pixel, the next scale; `entering` comes in at the large end."""
    return torch.cat([field[:, :, 1:], entering], dim=2)[..., ::2, ::2]


@given(field=images(height=st.integers(2, 8).map(lambda half: 2 * half), leading=(1, 2, 3)))
def test_projection_stays_equivariant_where_nothing_leaves_or_enters(device, field):
    field = put(field, device).abs()
    field[:, :, 0] = 0
    moved = act(field, torch.zeros_like(field[:, :, :1]))
    assert torch.equal(ScaleProjection()(moved), ScaleProjection()(field)[..., ::2, ::2])


@pytest.mark.parametrize("options", [{}, {"reduce": "mean"}, {"reduce": "soft", "taper": 1}, {"leave_out": (0, 1)}])
@given(field=images(height=st.integers(4, 8).map(lambda half: 2 * half), leading=(1, 2, 6)))
def test_over_partnered_scales_it_does_not_matter_what_leaves_and_enters(device, options, field):
    field = put(field, device)
    entering = torch.full_like(field[:, :, :1], 100.0)
    project = PartneredProjection(ScaleGrid.geometric(1.5, 2.0, 6), side=min(field.shape[-2:]), **options)
    direct, moved = project(act(field, entering)), project(field)[..., ::2, ::2]
    # Where a scale at the large end is left out everywhere, as many fewer are compared.
    assert_same(direct, moved)
    plain = ScaleProjection(**options)
    assert not torch.allclose(plain(act(field, entering)), plain(field)[..., ::2, ::2]) or "leave_out" in options


def measured(projection: nn.Module, *head: nn.Module, steps: int = 1) -> sesn.EquivarianceError:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        lift = ScaleLift(3, 4, WIDE, bias=False)
    network = nn.Sequential(lift, projection, *head).eval()
    return sesn.Meter(ends="inside").measure(network, photographs(4), WIDE.grid.ratio**-steps)


@pytest.mark.parametrize("head", [(), (GlobalPool("mean"),)], ids=["map", "score"])
def test_maps_and_scores_are_as_equivariant_as_the_field_over_partnered_scales(head):
    partnered = PartneredProjection(WIDE.grid, side=photographs(1).shape[-1], steps=2)
    for steps in (1, 2):
        assert measured(partnered, *head, steps=steps).relative.median() < 5e-3
        assert measured(ScaleProjection(), *head, steps=steps).relative.median() > 2e-2


def test_leaving_out_or_tapering_the_ends_of_a_grid_is_no_remedy():
    """A fixed choice of scales is a shorter grid: the two branches still see others of the picture's scales."""
    usual = measured(ScaleProjection()).valid.median()
    assert measured(ScaleProjection(leave_out=(1, 1))).valid.median() > usual
    assert (
        measured(ScaleProjection(reduce="mean", taper=2)).valid.median()
        > measured(ScaleProjection(reduce="mean")).valid.median()
    )


# --- what is said


def test_the_diagnosis_says_how_to_project_and_is_silent_once_it_is_done():
    def findings(projection: nn.Module) -> list[sesn.Finding]:
        network = nn.Sequential(ScaleLift(3, 2, WIDE, bias=False), projection).eval()
        error = sesn.equivariance_error(network, photographs(2), WIDE.grid.ratio**-2)
        return [one for one in sesn.diagnose(network, photographs(2), error) if "scale axis" in one.cause]

    (finding,) = findings(ScaleProjection())
    side = photographs(1).shape[-1]
    assert f"PartneredProjection(layer.grid, side={side}, steps=2)" in finding.remedy
    assert findings(PartneredProjection(WIDE.grid, side=side, steps=2)) == []


def test_the_causes_of_delta_restrict_a_projection_and_keep_what_it_does():
    lift = ScaleLift(3, 2, WIDE, bias=False)
    restricted = surgery.partnered(
        nn.Sequential(lift, ScaleProjection(reduce="soft", sharpness=2.0)), WIDE.grid.ratio**-1, 0
    )
    assert isinstance(restricted, nn.Sequential)
    field = torch.randn(1, 2, 5, 4, 4)
    assert_same(restricted[1](field), ScaleProjection(reduce="soft", sharpness=2.0)(field[:, :, 1:]))
    # One that is over partnered scales already stays, and so does one that has too few of them.
    for projection in (PartneredProjection(WIDE.grid, side=96), ScaleProjection(leave_out=(2, 2))):
        assert surgery.partnered(nn.Sequential(lift, projection), WIDE.grid.ratio**-1, 0) is None


def test_a_projection_says_what_it_does():
    assert str(ScaleProjection()) == "ScaleProjection(reduce='max')"
    assert str(ScaleProjection(reduce="mean", leave_out=(0, 2))) == "ScaleProjection(reduce='mean', leave_out=(0, 2))"
    partnered = PartneredProjection(WIDE.grid, side=96, steps=2, reduce="soft", sharpness=2)
    assert str(partnered) == "PartneredProjection(side=96, steps=2 of 1.414, reduce='soft', sharpness=2.0)"
    assert [*partnered.state_dict()] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reduce": "median"}, "`reduce` (='median') must be one of 'max', 'mean', 'soft'"),
        ({"reduce": "soft", "sharpness": 0}, "`sharpness` (=0) must be a positive, finite number"),
        ({"reduce": "mean", "taper": -1}, "`taper` (=-1) must be at least 0"),
        ({"taper": 1}, "`taper` (=1) must be 0 for a maximum; use reduce='soft'"),
        ({"leave_out": 1}, "`leave_out` (=1) must be two whole numbers"),
        ({"leave_out": (0, -1)}, "`leave_out[1]` (=-1) must be at least 0"),
        ({"leave_out": (2, 2)}, "`field.shape[2]` (=4) must be at least 5 scales"),
        ({"reduce": "mean", "taper": 3}, "`field.shape[2]` (=4) must be at least 6 scales"),
    ],
)
def test_bad_arguments(options: dict[str, Any], words: str):
    with pytest.raises(sesn.UsageError) as raised:
        ScaleProjection(**options)(torch.zeros(1, 1, 4, 8, 8))
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("grid", "sizes", "words"),
    [
        ([1.0, 2.0], {"side": 8}, "`grid` (=[1.0, 2.0]) must be a ScaleGrid"),
        (WIDE.grid, {"side": 0}, "`side` (=0) must be at least 1"),
        (WIDE.grid, {"side": 8, "steps": 5}, "`steps` (=5) must be less than the number of scales (5)"),
        (WIDE.grid, {"side": 6, "steps": 1}, "`side of the field` (=8) must be within 1 step(s) of 1.414 below 6"),
        (WIDE.grid, {"side": 32, "steps": 1}, "`side of the field` (=8) must be within 1 step(s) of 1.414 below 32"),
    ],
)
def test_bad_sizes(grid: Any, sizes: dict[str, int], words: str):
    with pytest.raises(sesn.UsageError) as raised:
        PartneredProjection(grid, **sizes)(torch.zeros(1, 1, 5, 8, 8))
    assert words in str(raised.value)
