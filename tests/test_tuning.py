"""Timing the algorithms where they are used: what is remembered for what, and what timing must leave alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import slow
import torch
from hypothesis import given
from small_layers import BASIS, SHAPE, conv, field
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import sesn
from sesn import ScaleConv, ScaleGrid, ScaleLift, UsageError, WrongTypeError, basis_a
from sesn.algorithms import timing, tuning
from sesn.algorithms.memory import Memory, Times, remembering


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(timing, "MOST", 0)  # with real times, but in haste
    with remembering(Memory()) as fresh:
        yield fresh


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for each layer and shape that is timed, with a clock that makes the last candidate the quickest."""
    counted: list[int] = []

    def pretended(steps: Any, device: torch.device) -> dict[Any, float]:
        counted.append(len(steps))
        return {name: 9.0 - place for place, name in enumerate(steps)}

    monkeypatch.setattr(tuning, "least_milliseconds", pretended)
    return counted


# What is remembered


def test_nothing_is_timed_unless_asked(timings: list[int], memory: Memory) -> None:
    conv()(field())
    with sesn.tuning(False):
        conv()(field())
    assert not timings
    assert not len(memory)


def test_the_quickest_is_used_from_then_on(timings: list[int], memory: Memory) -> None:
    layer = conv()
    with sesn.tuning():
        layer(field())
        times, plan = len(timings), layer.plan(SHAPE)
        conv()(field())  # another layer of the same sizes
    layer(field())
    assert times == len(timings) > 0
    assert len(memory) == 1
    assert plan.reason == "measured"
    assert plan.chosen.milliseconds == min(each.milliseconds for each in plan.candidates if each.milliseconds)
    assert layer.plan(SHAPE) == plan
    sesn.tuning.forget()
    assert layer.plan(SHAPE).reason == "model"


def test_it_is_a_setting_and_a_context(timings: list[int]) -> None:
    with sesn.tuning():
        with sesn.tuning(False):
            conv()(field())
        assert not timings
        sesn.tuning(False)
        conv()(field())
        assert not timings
        sesn.tuning()
        conv()(field())
        assert timings
    timings.clear()
    conv()(field(3, *SHAPE[1:]))
    assert not timings  # as before the outer block


Change = tuple[str, Any, Any]
CHANGES: dict[str, Any] = {
    "dtype": lambda: conv(dtype=torch.float64)(field(dtype=torch.float64)),
    "batch": lambda: conv()(field(3, *SHAPE[1:])),
    "side": lambda: conv()(field(*SHAPE[:-1], 13)),
    "mode": lambda: conv()(field(gradient=False)),
    "no gradient": lambda: torch.no_grad()(conv())(field()),
    "stride": lambda: conv(stride=2)(field()),
    "border": lambda: conv(padding_mode="circular")(field()),
    "padding": lambda: conv(padding="valid")(field()),
    "scale padding": lambda: conv(scale_padding="replicate")(field()),
    "groups": lambda: ScaleConv(2, 2, BASIS, groups=2)(field()),
    "channels": lambda: ScaleConv(2, 5, BASIS, interscale=2)(field()),
    "lift": lambda: ScaleLift(2, 3, BASIS)(field(2, 2, 12, 12)),
    "basis": lambda: ScaleConv(2, 3, basis_a(ScaleGrid([0.9, 1.3]), 7, 2), interscale=2)(field()),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16)(conv())(field()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_sizes_types_and_modes_are_timed_for_themselves(change: str, timings: list[int], memory: Memory) -> None:
    with sesn.tuning():
        conv()(field())
        before = len(timings)
        CHANGES[change]()
        assert len(timings) > before
        assert len(memory) == 2
        after = len(timings)
        CHANGES[change]()
    assert len(timings) == after
    assert len(memory) == 2


def test_what_does_not_matter_is_not_timed_again(timings: list[int], memory: Memory) -> None:
    with sesn.tuning():
        conv()(field())
        before = len(timings)
        conv()(field().detach().mul(3).requires_grad_())
        conv().eval()(field())
    assert (len(timings), len(memory)) == (before, 1)


def test_other_numbers_of_threads_are_timed_for_themselves(timings: list[int], memory: Memory) -> None:
    threads = torch.get_num_threads()
    try:
        with sesn.tuning():
            conv()(field())
            torch.set_num_threads(threads + 1)
            conv()(field())
    finally:
        torch.set_num_threads(threads)
    assert len(memory) == 2


def test_a_layer_that_was_told_its_algorithm_is_not_timed(timings: list[int]) -> None:
    with sesn.tuning():
        conv(algorithm="dense")(field())
    assert not timings


# What timing leaves alone


@given(case=slow.cases())
def test_a_tuned_layer_gives_the_papers_sum(case: slow.Case) -> None:
    layer = case.layer("auto")
    with remembering(Memory()), sesn.tuning():
        for _ in range(2):
            out = layer(case.field)
            torch.testing.assert_close(out.detach(), case.answer(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("gradient", [False, True])
def test_gradients_and_random_numbers_are_left_alone(gradient: bool) -> None:
    results = []
    for setting in (False, True):
        layer, x = conv(algorithm="auto"), field(gradient=gradient)
        hooked: list[int] = []
        layer.weight.register_hook(lambda grad, hooked=hooked: hooked.append(1))
        torch.manual_seed(5)
        with sesn.tuning(setting):
            out = layer(x)
        assert not hooked
        assert layer.weight.grad is None
        assert x.grad is None
        drawn = torch.rand(3)
        out.square().sum().backward()
        results.append([out.detach(), drawn, layer.weight.grad, layer.bias.grad, *([x.grad] if gradient else [])])
        assert hooked == [1]
    for plain, tuned in zip(*results, strict=True):
        torch.testing.assert_close(tuned, plain, rtol=1e-4, atol=1e-5)
    assert torch.equal(results[0][1], results[1][1])


def test_checkpoints_do_not_notice() -> None:
    layer, x = conv(), field()
    with sesn.tuning():
        checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_forward_passes_are_timed_without_gradients(mode: Any, memory: Memory) -> None:
    layer = conv().eval()
    with sesn.tuning(), mode():
        layer(field())
        assert layer.plan(SHAPE).reason == "measured"
    assert len(memory) == 1


def test_threads_time_a_shape_once(timings: list[int], memory: Memory) -> None:
    layer = conv()
    gate = threading.Barrier(4)

    def run() -> None:
        gate.wait()
        layer(field())

    with sesn.tuning():
        threads = [threading.Thread(target=run) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(memory) == 1
    assert len(timings) <= 2  # the uniform candidates, and mixtures


def test_a_candidate_without_memory_enough_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, by = conv(), ScaleConv._by

    def small(self: Any, ways: Any, *rest: Any) -> Any:
        if "dense" in ways:
            raise torch.OutOfMemoryError
        return by(self, ways, *rest)

    monkeypatch.setattr(ScaleConv, "_by", small)
    with sesn.tuning():
        layer(field())
    assert "dense" not in layer.plan(SHAPE).algorithms


def test_without_memory_to_time_anything_the_model_chooses(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    layer = conv()
    expected = layer(field())
    monkeypatch.setattr(tuning, "_fits", lambda _: False)
    with sesn.tuning(), pytest.warns(RuntimeWarning, match="not enough memory to time"):
        assert torch.equal(layer(field()), expected)
    assert not len(memory)
    assert layer.plan(SHAPE).reason == "model"


# When nothing may be timed


def compiled(layer: Any, x: torch.Tensor) -> Any:
    torch._dynamo.reset()
    return torch.compile(layer, fullgraph=True, backend="aot_eager")(x)


RECORDERS: dict[str, Any] = {
    "compile": compiled,
    "export": lambda layer, x: torch.export.export(layer, (x.detach(),)).module()(x.detach()),
    "func": lambda layer, x: torch.func.vmap(layer)(x.detach()[None]),
    "meta": lambda layer, x: layer.to("meta")(x.to("meta")),
    "empty": lambda layer, x: layer(x[:0]),
}


@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch.func's own use
def test_nothing_is_timed_while_a_graph_is_recorded(recorder: str, timings: list[int], memory: Memory) -> None:
    with sesn.tuning():
        RECORDERS[recorder](conv(), field())
    assert not timings
    assert not len(memory)


def test_nothing_is_timed_while_a_cuda_graph_is_captured(timings: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "capturing", lambda device: True)
    with sesn.tuning():
        conv()(field())
    assert not timings


def test_nothing_is_timed_while_operations_are_counted(timings: list[int]) -> None:
    with sesn.tuning(), FlopCounterMode(display=False) as counter:
        conv()(field())
    assert not timings
    assert counter.get_total_flops() > 0


@pytest.mark.parametrize("way", ["dense", "separable"])
def test_a_compiled_layer_uses_what_is_known(way: Any, memory: Memory) -> None:
    layer, x = conv(), field()
    job = layer._job(x.device, "float32", "gradients", 7, *layer._placed(SHAPE[-2:]))
    memory.add(layer.plan(SHAPE).device, job.key, 7, Times((way,) * 2, {way: 1.0}))
    seen: list[str] = []
    torch._dynamo.reset()

    def backend(graph: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compile(layer, fullgraph=True, backend=backend)(x)
    assert any("conv2d" in name for name in seen) == (way == "dense")


def test_a_graph_takes_what_is_known_of_the_batch_nearest_to_the_usual(memory: Memory) -> None:
    for batch in (1, 12, 512):
        memory.add("cpu", "layer", batch, Times(("dense",), {"dense": float(batch)}))
    assert memory.get("cpu", "layer", None, 16).milliseconds == {"dense": 12.0}
    assert memory.get("cpu", "layer", 13, 16) is None
    assert memory.get("gpu", "layer", 12, 16) is None


# Arguments and the clock


@pytest.mark.parametrize(
    ("arguments", "options", "error", "told"),
    [
        (("yes",), {}, WrongTypeError, r"`enabled` \(='yes'\) must be True or False"),
        ((), {"file": 3}, WrongTypeError, r"`file` \(=3\) must be a path or None"),
        ((False,), {"file": "no/such.json"}, UsageError, r"`file` \(='no.such.json'\) must be a file that exists"),
        ((), {"file": "."}, UsageError, r"`file` \(='\.'\) cannot be read"),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(arguments: Any, options: Any, error: Any, told: str) -> None:
    before = tuning._SETTING
    with pytest.raises(error, match=told):
        sesn.tuning(*arguments, **options)
    assert tuning._SETTING is before


def test_hopeless_steps_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    speeds = {"quick": 1.0, "close": 1.5, "slow": 9.0}

    def clock(step: Any, device: torch.device) -> float:
        runs.append(name := step())
        return speeds[name] + (len(runs) < 4)  # busy at first

    monkeypatch.setattr(timing, "milliseconds", clock)
    monkeypatch.setattr(timing, "MOST", 15)
    least = timing.least_milliseconds({name: lambda name=name: name for name in speeds}, torch.device("cpu"))
    assert least == {"quick": 1.0, "close": 1.5, "slow": 10.0}
    assert runs.count("slow") == 1
    assert runs.count("quick") == runs.count("close") > timing.LEAST


def test_the_clock_tells_milliseconds() -> None:
    assert timing.milliseconds(lambda: threading.Event().wait(0.02), torch.device("cpu")) >= 20
