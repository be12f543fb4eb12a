"""Which algorithm a layer runs: the policies of devices, the cost model, plans, and that plans are what runs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import slow
import torch
from hypothesis import given

from sesn import ConvolutionPlan, ScaleConv, ScaleConvTranspose, ScaleGrid, ScaleLift, UsageError, basis_a, basis_b
from sesn.algorithms import Axis, separable, spectral
from sesn.algorithms.choose import MODES, PASSES, WEIGHTS, Load, Work, convolution_cost, dense_cost
from sesn.algorithms.decide import Job, arithmetic, candidates_on, decide
from sesn.algorithms.fused import trust
from sesn.algorithms.memory import Memory, Times, remembering
from sesn.algorithms.policy import CPU, LEAST_PIECE, DevicePolicy, gpu_policy, policy_of
from sesn.basis import SteerableBasis
from sesn.errors import WrongTypeError

CUDA = torch.device("cuda", 0)
#: Made up, with numbers like those of a large card.
LARGE = SimpleNamespace(
    major=8,
    minor=0,
    multi_processor_count=108,
    clock_rate=1_410_000,
    memory_clock_rate=1_215_000,
    memory_bus_width=5120,
    total_memory=40 << 30,
)
MNIST = basis_b(ScaleGrid([1.7, 2.45, 3.54, 5.1]), 15, 7, mult=1.5)
STL10 = basis_a(ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)
WIDE = basis_a(ScaleGrid.geometric(1.5, math.sqrt(2), 3), "wide", 3, max_order=2)


@pytest.fixture(autouse=True)
def nothing_known() -> Any:
    with remembering(Memory()):
        yield


# The policies


def test_pieces_on_a_cpu_are_those_that_fit_its_caches() -> None:
    assert policy_of(torch.device("cpu")) is CPU
    assert (CPU.piece(separable.CHUNK_BYTES), CPU.piece(spectral.CHUNK_BYTES)) == (8 << 20, 24 << 20)
    assert CPU.candidates == ("dense", "separable", "spectral")
    assert not CPU.estimated


def test_the_speeds_of_a_gpu_come_from_its_properties() -> None:
    policy = gpu_policy(LARGE)
    assert policy.estimated
    assert policy.candidates == ("dense", "separable", "spectral", "fused")
    assert policy.piece(separable.CHUNK_BYTES) == (40 << 30) // 32
    assert policy.roofline.bandwidth == 1215 * 2 * 640  # bytes in a microsecond
    assert policy.roofline.rate == 108 * 1410 * 128
    assert policy.roofline.rate < policy.roofline.tensor_rate
    assert policy.roofline.double_rate == policy.roofline.rate // 2


def test_a_gpu_that_tells_little_gets_usual_numbers() -> None:
    old = SimpleNamespace(major=7, minor=5, multi_processor_count=40, total_memory=1 << 30)
    policy = gpu_policy(old)
    assert policy.piece_bytes == LEAST_PIECE
    assert policy.roofline.bandwidth == 40 * 12_000
    assert policy.roofline.tensor_rate == policy.roofline.rate == 40 * 1400 * 64


@given(
    processors=st.integers(1, 200),
    clock=st.integers(500_000, 3_000_000),
    memory=st.integers(1 << 28, 1 << 40),
    factor=st.integers(2, 4),
)
def test_a_gpu_with_more_of_everything_is_nowhere_slower(processors: int, clock: int, memory: int, factor: int) -> None:
    one = SimpleNamespace(major=9, minor=0, multi_processor_count=processors, clock_rate=clock, total_memory=memory)
    more = SimpleNamespace(**vars(one) | {"multi_processor_count": factor * processors})
    load = Load(10**9, 10**8, 5, (), 1e9)
    axis = Axis.of(28, 15, 1, 7, False)
    slower, faster = (
        Work(16, 8, 8, axis, axis, policy=gpu_policy(each)).picoseconds("dense", load) for each in (one, more)
    )
    assert faster <= slower


@pytest.mark.parametrize("kind", ["meta", "mps", "xpu"])
def test_other_devices_have_a_fallback(kind: str) -> None:
    policy = policy_of(torch.device(kind))
    assert policy == DevicePolicy(kind, piece_bytes=LEAST_PIECE, estimated=True)
    layer = ScaleLift(1, 2, STL10, device="meta")
    assert layer.plan((1, 1, 9, 9)).reason == "fallback"


def test_pieces_follow_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = ScaleLift(1, 2, WIDE, algorithm="separable")
    image, made = torch.randn(6, 1, 20, 20), []
    responses = separable.LinePasses.responses
    monkeypatch.setattr(separable.LinePasses, "responses", lambda self, x: made.append(len(x)) or responses(self, x))
    for piece, images in ((1, 1), (1 << 30, 6)):
        monkeypatch.setattr(separable, "policy_of", lambda device, piece=piece: DevicePolicy("cpu", piece_bytes=piece))
        made.clear()
        layer(image)
        assert set(made) == {images}


# The model


def job(basis: SteerableBasis = WIDE, side: int = 28, **changes: Any) -> Job:
    axis = Axis.of(side, basis.kernel_size, 1, basis.kernel_size // 2, False)
    scales = len(basis.grid)
    plain = Job(32, 32, 1, len(basis), 3, basis.boxes, (1,) * scales, axis, axis, 16, "float32", "gradients", CUDA)
    return replace(plain, **changes)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU on which the fused kernels passed their check, as far as it can be pretended."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: LARGE)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(trust, "_VERDICTS", {("cuda", 0): True})


@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_wide_windows_are_fused_and_small_ones_dense() -> None:
    assert decide(job(batch=64, dtype="float32 tf32")) == (("fused",) * 3, "model", None)
    assert decide(job(STL10, dtype="float32 tf32")).ways == ("dense",) * 3


@pytest.mark.usefixtures("gpu")
def test_fused_is_no_candidate_where_its_check_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_VERDICTS", {("cuda", 0): False})
    assert candidates_on(CUDA) == ("dense", "separable", "spectral")
    assert "fused" not in decide(job(batch=64)).ways


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_rounds_factors_is_quicker_and_one_in_double_precision_slower() -> None:
    costs = [job(batch=64, dtype=each).costs(("dense",))[2]["dense"] for each in ("float32 tf32", "float32", "float64")]
    assert costs == sorted(costs)


def test_a_cpu_never_gets_the_fused_algorithm_and_prices_it_as_impossible() -> None:
    on_cpu = job(device=torch.device("cpu"))
    assert all(each["fused"] == math.inf for each in on_cpu.costs(("fused",)))
    assert convolution_cost(on_cpu.work(0), len(WIDE), 3, 15).cheaper == "separable"


@pytest.mark.parametrize(
    ("layer", "shape", "mode", "expected"),
    [
        (ScaleLift(1, 32, MNIST), (64, 1, 28, 28), "weights", ("dense", "dense", "dense", "separable")),
        (ScaleConv(32, 63, MNIST), (64, 32, 4, 14, 14), "gradients", ("spectral",) * 4),
        (ScaleConv(64, 64, STL10), (8, 64, 3, 48, 48), "gradients", ("dense", "dense", "separable")),
        (ScaleConv(16, 16, WIDE), (2, 16, 3, 96, 96), "forward", ("separable",) * 3),
        (ScaleLift(64, 1, WIDE, stride=2), (8, 64, 40, 40), "forward", ("separable",) * 3),
    ],
)
def test_choices_at_fixed_shapes(layer: Any, shape: tuple[int, ...], mode: Any, expected: tuple[str, ...]) -> None:
    """A net: another choice has to be meant."""
    assert layer.plan(shape, mode=mode).algorithms == expected


def test_every_weight_has_its_term() -> None:
    loads = job(device=torch.device("cpu")).loads(0)
    for way, modes in WEIGHTS.items():
        assert set(modes) == set(MODES) == set(PASSES)
        assert {len(weights) for weights in modes.values()} == {len(loads[way].terms)}


@given(case=slow.cases(), mode=st.sampled_from(MODES))
def test_more_images_never_cost_less(case: slow.Case, mode: Any) -> None:
    layer = case.layer("auto")
    shape = case.field.shape
    few, many = (layer.plan((batch, *shape[1:]), mode=mode) for batch in (1, 9))
    for one, other in zip(few.candidates, many.candidates, strict=False):
        if one.algorithms == other.algorithms:
            assert one.multiply_adds < other.multiply_adds
            assert one.bytes < other.bytes
            assert one.expected < other.expected or one.expected == math.inf


@pytest.mark.parametrize("box", [3, 7])
def test_the_multiply_adds_of_dense_are_those_of_its_convolution_and_of_composing(box: int) -> None:
    """By hand, where no tap is cut off: o i h w taps, and o i n taps."""
    basis = basis_a(ScaleGrid([1.0]), box, 2)
    plan = ScaleLift(3, 5, basis, algorithm="dense").plan((2, 3, 20, 20))
    assert plan.chosen.multiply_adds == 2 * 5 * 3 * 400 * box**2 + 5 * 3 * 4 * box**2
    assert plan.chosen.bytes == 4 * (2 * 400 * (3 + 5) + 15 * box**2)


def test_the_layers_of_other_methods_ask_the_same_model() -> None:
    axis = Axis.of(14, 15, 1, 7, False)
    work = Work.on(torch.empty(16, 32, 14, 14), 32, 32, axis, axis)
    with torch.no_grad():
        forward = Work.on(torch.empty(16, 32, 14, 14), 32, 32, axis, axis)
    assert dense_cost(forward, 15, 15) < dense_cost(work, 15, 15)


# Plans


class Runs:
    """What a layer ran, scale by scale."""

    def __init__(self, layer: Any, patch: pytest.MonkeyPatch) -> None:
        self.ways: dict[int, str] = {}
        by = {name: getattr(layer, name) for name in ("_together", "_kernel_scale")}
        patch.setattr(layer, "_together", lambda way, scales, *rest: self._seen(by["_together"], way, scales, *rest))
        patch.setattr(
            layer, "_kernel_scale", lambda way, scale, *rest: self._seen(by["_kernel_scale"], way, scale, *rest)
        )

    def _seen(self, run: Any, way: str, scales: Any, *rest: Any) -> Any:
        self.ways |= dict.fromkeys(scales if isinstance(scales, list) else [scales], way)
        return run(way, scales, *rest)

    @property
    def in_order(self) -> tuple[str, ...]:
        return tuple(way for _, way in sorted(self.ways.items()))


@given(case=slow.cases(), algorithm=st.sampled_from(["auto", "dense", "separable", "spectral"]), data=st.data())
def test_a_plan_names_what_runs(case: slow.Case, algorithm: str, data: st.DataObject) -> None:
    layer = case.layer(algorithm)
    mode = data.draw(st.sampled_from(MODES))
    plan = layer.plan(case.field.shape, mode=mode)
    with pytest.MonkeyPatch.context() as patch:
        runs = Runs(layer, patch)
        with torch.set_grad_enabled(mode != "forward"):
            layer(case.field.clone().requires_grad_(mode == "gradients"))
    assert plan.algorithms == runs.in_order
    assert plan.reason == ("model" if algorithm == "auto" else "forced")
    assert plan.chosen in plan.candidates
    if algorithm == "auto":  # no mixture is priced below the choice
        assert plan.chosen.expected == min(each.expected for each in plan.candidates)


@given(case=slow.cases(), data=st.data())
def test_a_plan_names_what_runs_after_timing_as_well(case: slow.Case, data: st.DataObject) -> None:
    layer = case.layer("auto")
    ways = tuple(data.draw(st.sampled_from(["dense", "separable", "spectral"])) for _ in layer._windows())
    batch = case.field.shape[0]
    with remembering(Memory()) as memory, pytest.MonkeyPatch.context() as patch:
        rows, columns = layer._placed(case.field.shape[-2:])
        told = layer._job(torch.device("cpu"), "float64", "weights", batch, rows, columns)
        memory.add(layer.plan(case.field.shape).device, told.key, batch, Times(ways, {"dense": 1.0}))
        plan = layer.plan(case.field.shape, mode="weights")
        assert (plan.algorithms, plan.reason) == (ways, "measured")
        assert layer.plan(case.field.shape, mode="forward").reason == "model"
        runs = Runs(layer, patch)
        layer(case.field)
    assert runs.in_order == ways


def test_a_plan_reads_as_a_table() -> None:
    text = str(ScaleConv(4, 8, STL10, algorithm="separable").plan((2, 4, 3, 16, 16)))
    assert text.splitlines()[0] == "separable, because the layer was told to"
    assert "input 2 x 4 x 3 x 16 x 16, float32" in text
    assert "separable (7 x 7 pixels)" in text
    starred = [line for line in text.splitlines() if line.startswith("*")]
    assert len(starred) == 1
    assert "separable" in starred[0]


def test_the_transposed_layer_has_a_plan_of_its_one_algorithm() -> None:
    layer = ScaleConvTranspose(4, 8, STL10, stride=2)
    plan = layer.plan((2, 4, 3, 8, 8))
    assert isinstance(plan, ConvolutionPlan)
    assert (set(plan.algorithms), plan.reason) == ({"dense"}, "forced")
    composing = 4 * 8 * len(STL10) * sum(box**2 for box in STL10.boxes)
    assert plan.chosen.multiply_adds == layer.multiply_adds((2, 4, 3, 8, 8)) + composing


def test_mirrored_borders_are_part_of_the_plan() -> None:
    zeros, mirrored = (ScaleLift(4, 8, STL10, padding_mode=each).plan((1, 4, 20, 20)) for each in ("zeros", "reflect"))
    assert mirrored.candidates[1].multiply_adds > zeros.candidates[1].multiply_adds  # more pixels for the passes


def test_the_default_mode_is_that_of_the_moment() -> None:
    layer = ScaleLift(1, 2, STL10)
    assert layer.plan((1, 1, 9, 9)).mode == "gradients"
    with torch.no_grad():
        assert layer.plan((1, 1, 9, 9)).mode == "forward"
    assert layer.requires_grad_(False).plan((1, 1, 9, 9)).mode == "forward"


@pytest.mark.parametrize(
    ("shape", "options", "error", "told"),
    [
        ((1, 2, 9, 9), {}, UsageError, "in_channels"),
        ((1, 1, 9), {}, UsageError, "4-dimensional"),
        ((1, 1, 9, 0), {}, UsageError, r"`shape\[3\]` \(=0\) must be at least 1"),
        ((1, 1, 9, 9.5), {}, WrongTypeError, r"`shape\[3\]`"),
        (9, {}, WrongTypeError, r"`shape` .* the sides of an input, such as"),
        (torch.ones(1, 1, 9, 9), {}, WrongTypeError, r"`shape` \(='Tensor'\) .* x.shape"),
        ((1, 1, 9, 9), {"mode": "backward"}, UsageError, r"`mode` \(='backward'\) must be one of 'forward'"),
    ],
)
def test_a_plan_of_what_the_layer_does_not_take_is_refused(shape: Any, options: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        ScaleLift(1, 2, STL10).plan(shape, **options)


def test_the_arithmetic_is_that_of_autocast() -> None:
    x = torch.empty(1)
    assert arithmetic(x) == "float32"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert arithmetic(x) == "bfloat16"
        plan = ScaleLift(8, 8, WIDE).plan((4, 8, 14, 14))
    assert plan.dtype == "bfloat16"
    assert "spectral" not in {each.name for each in plan.candidates}
