"""How fast layers and networks are on a device, and whether they can be captured and compiled there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from harness.bench.layers import CASES, WIDE_CASES, LayerCase, Textbook, step_of
from harness.experiment import Context
from harness.experiments.gpu_checks import WAYS, relative_error, require_fused, with_gradients
from harness.records import Measurement
from harness.stopwatch import interleave, peak_bytes, time_training
from sesn import ScaleBatchNorm, ScaleConv, ScaleGrid, ScaleLift, ScaleProjection, basis_a
from sesn.algorithms import DEVICE_ALGORITHMS
from sesn.methods import PLAIN, method
from sesn.methods.steerable import SESN_VECTOR
from sesn.networks.skeleton import known_recipe

#: What is timed of each layer: every algorithm, and the obvious form; each beside the dense algorithm.
CONTESTANTS = (*WAYS, "textbook")
BESIDE = "dense"
#: Replayed and compiled results may differ by the order of sums.
BOUND = 1e-3
MEGABYTE = 1e6


def cases(*, few: bool) -> list[str]:
    """The names of the layers that are timed: all, or the first of each kind."""
    every = [*CASES, *WIDE_CASES]
    groups = {case.group: case for case in reversed(every)}
    return [case.name for case in every if not few or groups[case.group] is case]


def networks(*, few: bool) -> list[str]:
    """What is captured and compiled: all, or what is quickly compiled."""
    return [name for name in NETWORKS if not few or name.startswith("two layers")]


def layer(subject: str, algorithm: str, rounds: int, batch: int | None, context: Context) -> list[Measurement]:
    """Forward and backward of a layer, in turn with the dense algorithm."""
    device = torch.device(context.device)
    if algorithm in DEVICE_ALGORITHMS:
        require_fused(device)
    (case,) = (case for case in (*CASES, *WIDE_CASES) if case.name == subject)
    if batch is not None:
        case = replace(case, batch=batch)
    x = case.inputs(device)
    steps = {name: step_of(_contestant(case, name, device), x) for name in dict.fromkeys((BESIDE, algorithm))}
    times = interleave(steps, rounds, device, on_round=lambda done: context.on_progress(done, "rounds"))
    own, base = times[algorithm], times[BESIDE]
    return [
        Measurement("step_time", tuple(own), {"batch_size": case.batch}),
        Measurement("time_ratio", tuple(mine / other for mine, other in zip(own, base, strict=True))),
        Measurement("peak_memory", (peak_bytes(steps[algorithm], device) / MEGABYTE,)),
    ]


def _contestant(case: LayerCase, name: str, device: torch.device) -> nn.Module:
    return Textbook(case.layer(BESIDE, device)).to(device) if name == "textbook" else case.layer(name, device)


def method_step(key: str, resolution: int, batch: int, rounds: int, context: Context) -> list[Measurement]:
    """Training steps of a method's MNIST-scale network, in turn with the plain network."""
    device, reference = torch.device(context.device), PLAIN["mnist"]
    drawn = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 1, 28, 28, generator=drawn).to(device)
    labels = torch.randint(0, 10, (batch,), generator=drawn).to(device)
    networks = {
        name: method(name).build("mnist", known_recipe("paper"), resolution=resolution).to(device)
        for name in dict.fromkeys((reference, key))
    }
    on_part = lambda done: context.on_progress(done, "rounds")  # noqa: E731
    times = time_training(networks, [(images, labels)], device, rounds, on_part=on_part)
    own, base = times[key].milliseconds, times[reference].milliseconds
    return [
        Measurement("step_time", tuple(own)),
        Measurement("time_ratio", tuple(mine / other for mine, other in zip(own, base, strict=True))),
        Measurement("images_per_second", tuple(batch / one * 1e3 for one in own)),
        Measurement("peak_memory", (times[key].memory / MEGABYTE,)),
    ]


# --- graphs and compilers


def _two_layers() -> nn.Module:
    basis = basis_a(ScaleGrid([1.0, 1.4]), 9, 3)
    lift, conv = ScaleLift(1, 8, basis), ScaleConv(8, 8, basis, interscale=2)
    return nn.Sequential(lift, ScaleBatchNorm(8), nn.ReLU(), conv, ScaleProjection(reduce="mean"))


#: What is captured and compiled: two layers in eval mode and in training, and the paper's network in training.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "two layers, evaluation": (_two_layers, False),
    "two layers, training": (_two_layers, True),
    "MNIST-scale network, training": (lambda: SESN_VECTOR.build("mnist", "paper", resolution=28), True),
}


def _prepared(subject: str, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """The module, and two inputs."""
    make, training = NETWORKS[subject]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = make().train(training).to(device)
        first, second = torch.randn(2, 4, 1, 28, 28).to(device)
    for part in module.modules():
        if isinstance(part, nn.Dropout):  # its draws differ from call to call
            part.p = 0.0
    return module, first, second


def graph(subject: str, rounds: int, context: Context) -> list[Measurement]:
    """Capture a module's calls in a CUDA graph, replay it on another input, and compare with the module itself."""
    device = torch.device(context.device)
    module, first, second = _prepared(subject, device)
    static, results = first.clone(), {}

    def step() -> None:
        results.update(with_outputs(module, static))

    replay = captured(step, device)
    static.copy_(second)
    replay()
    found = {name: value.clone() for name, value in results.items()}
    expected = with_outputs(module, second)
    times = interleave({"eager": step_alone(module, static), "graph": replay}, rounds, device)
    return [*_compared(found, expected), *_timed(times)]


def with_outputs(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The output, and where it is trained the gradients."""
    if module.training:
        return with_gradients(module, x)
    with torch.no_grad():
        return {"output": module(x)}


def step_alone(module: nn.Module, x: Tensor) -> Callable[[], None]:
    """The same as a step to be timed."""
    return lambda: (with_outputs(module, x), None)[1]


def captured(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """What replays a step that was captured after a warm-up. On the processor, for a rehearsal, the step itself."""
    if device.type != "cuda":
        for _ in range(4):
            step()
        return step
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        step()
    return made.replay


def compiled(subject: str, rounds: int, context: Context) -> list[Measurement]:
    """Compile a module without a graph break, and compare with the module itself; a rehearsal makes no code."""
    device = torch.device(context.device)
    module, first, second = _prepared(subject, device)
    backend = "inductor" if device.type == "cuda" else "aot_eager"
    context.on_progress(0.1, "compiling")
    expected = with_outputs(module, second)
    fast: Any = torch.compile(module, fullgraph=True, backend=backend)
    with_outputs(fast, first)
    found = {name.replace("_orig_mod.", ""): value for name, value in with_outputs(fast, second).items()}
    times = interleave({"eager": step_alone(module, second), backend: step_alone(fast, second)}, rounds, device)
    return [*_compared(found, expected), *_timed(times)]


def _compared(found: dict[str, Tensor], expected: dict[str, Tensor]) -> Iterator[Measurement]:
    """The error of the output, and of all gradients together: that of a bias before a norm is nothing but rounding."""
    gradients = [name for name in expected if name != "output"]
    for of, names in (("output", ["output"]), ("gradients", gradients)):
        if names:
            mine, other = (torch.cat([each[name].flatten() for name in names]) for each in (found, expected))
            yield Measurement("relative_error", (relative_error(mine, other),), {"of": of, "bound": BOUND})


def _timed(times: dict[str, list[float]]) -> Iterator[Measurement]:
    for how, milliseconds in times.items():
        yield Measurement("step_time", tuple(milliseconds), {"how": how})
