"""What a GPU is, and whether the library is right on it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import torch
from torch import Tensor, nn

from harness.experiment import Context, Skip
from harness.records import Measurement, Scalar
from sesn import ScaleConv, ScaleGrid, SteerableBasis, basis_a
from sesn.algorithms import ALGORITHMS, DEVICE_ALGORITHMS
from sesn.algorithms.fused import trust
from sesn.algorithms.fused.available import installed

#: Every algorithm that can be asked for by name, and the choice among them.
WAYS = (*ALGORITHMS, *DEVICE_ALGORITHMS)
TESTS = Path(__file__).parents[2] / "tests"
NO_TRITON = "Triton, which the fused kernels need, is not installed (extra `gpu`)"
MEGABYTE = 1e6


def require_fused(device: torch.device) -> None:
    """Leave out what needs the fused kernels where they cannot run."""
    if not installed():
        raise Skip(NO_TRITON)
    if device.type != "cuda":
        raise Skip("the fused kernels need a GPU")


def machine(context: Context) -> list[Measurement]:
    """The device's memory, and beside it what else is known of it."""
    device = torch.device(context.device)
    told: dict[str, Scalar] = {"triton": metadata.version("triton") if installed() else "not installed"}
    if device.type != "cuda":
        pages = Path("/proc/meminfo")
        found = re.search(r"MemTotal:\s+(\d+)", pages.read_text("utf-8")) if pages.exists() else None
        return [Measurement("device_memory", (float(found[1]) / 1e3 if found else 0.0,), told)]
    found_here = torch.cuda.get_device_properties(device)
    told |= {
        "capability": f"{found_here.major}.{found_here.minor}",
        "processors": found_here.multi_processor_count,
        "cuda": str(torch.version.cuda or torch.version.hip),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
    }
    return [Measurement("device_memory", (found_here.total_memory / MEGABYTE,), told)]


# --- the tests of the clone


def device_tests(context: Context, *, short: bool) -> list[Measurement]:
    """Run the tests that take a device, on this one; a rehearsal or a short run takes a few of them."""
    if not (TESTS / "conftest.py").is_file():
        raise Skip("the tests come with a clone of the repository, and this is none")
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("hypothesis") is None:
        raise Skip("the tests need pytest and hypothesis, which are not installed (extra `test`)")
    on_gpu = torch.device(context.device).type == "cuda"
    chosen = ["tests/test_devices.py", "-k", "constants"] if short or not on_gpu else ["tests"]
    chosen += ["-m", "gpu and not slow"] if on_gpu else []
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "tests.xml"
        status = _pytest([*chosen, f"--junitxml={listed}"], context)
        suite = ElementTree.parse(listed).getroot().find("testsuite") if listed.exists() else None
    if suite is None:
        raise RuntimeError(f"pytest ended with status {status} and left no list of tests")
    count, bad, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "skipped"))
    bad += int(suite.get("errors", 0))
    if bad or status:
        names = [
            case.get("name", "") for case in suite if case.find("failure") is not None or case.find("error") is not None
        ]
        raise RuntimeError(f"{bad} of {count} tests failed, among them {', '.join(names[:3]) or 'none that was named'}")
    return [Measurement("tests_passed", (float(count - skipped),), {"skipped": skipped})]


def _pytest(chosen: list[str], context: Context) -> int:
    """Run pytest, telling how far it is; what it prints goes to the worker's log."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *chosen]
    with subprocess.Popen(
        command, cwd=TESTS.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            sys.stdout.write(line)
            if done := re.search(r"\[ *(\d+)%\]", line):
                context.on_progress(int(done[1]) / 100, "tests")
    return run.returncode


# --- the fused kernels' own check


def self_check(context: Context) -> list[Measurement]:
    """Values and gradients of the fused kernels against float64, as at their first use."""
    device = torch.device(context.device)
    require_fused(device)
    bound = trust.tolerance(device)
    return [
        Measurement("relative_error", (difference,), {"of": name, "where": where, "bound": bound})
        for name, where, difference in trust.differences(device)
    ]


# --- numerics


class Precision(NamedTuple):
    """A way to compute, and how far results may lie from float64, relative to the largest."""

    bound: float
    tf32: bool = False
    cast: torch.dtype | None = None


#: The bounds are a few tens of the roundings of the factors: of 24, 11, 11 and 8 bits.
PRECISIONS = {
    "fp32": Precision(1e-4),
    "tf32": Precision(1e-2, tf32=True),
    "fp16": Precision(1e-2, cast=torch.float16),
    "bf16": Precision(8e-2, cast=torch.bfloat16),
}
PROBLEMS: dict[str, Callable[[], tuple[SteerableBasis, int]]] = {
    "published window": lambda: (basis_a(ScaleGrid([1.0, 1.4]), 9, 3), 2),
    "wide window": lambda: (basis_a(ScaleGrid([1.0, 1.4]), "wide", 3, max_order=2), 1),
}


def numerics(precision: str, algorithm: str, context: Context) -> list[Measurement]:
    """Output and gradients of a layer against the dense algorithm in float64, at published and wide windows."""
    device, chosen = torch.device(context.device), PRECISIONS[precision]
    if algorithm in DEVICE_ALGORITHMS:
        require_fused(device)
    if chosen.tf32 and device.type != "cuda":
        raise Skip("TF32 is a way to multiply of NVIDIA's GPUs")
    found = []
    for place, (name, make) in enumerate(PROBLEMS.items()):
        context.on_progress(place / len(PROBLEMS), name)
        for what, error in _errors(*make(), algorithm, chosen, device).items():
            found.append(Measurement("relative_error", (error,), {"of": what, "where": name, "bound": chosen.bound}))
    return found


def _errors(
    basis: SteerableBasis, interscale: int, algorithm: str, precision: Precision, device: torch.device
) -> dict[str, float]:
    drawn = torch.Generator("cpu").manual_seed(0)
    field = torch.randn(2, 8, len(basis.grid), 24, 20, generator=drawn, dtype=torch.float64)
    exact = ScaleConv(8, 8, basis, interscale=interscale, algorithm="dense", dtype=torch.float64)
    with torch.no_grad():
        exact.weight.copy_(torch.randn(exact.weight.shape, generator=drawn, dtype=torch.float64) / 8)
    layer = ScaleConv(8, 8, basis, interscale=interscale, algorithm=algorithm, device=device)  # type: ignore[arg-type]
    layer.load_state_dict(exact.state_dict())
    expected = with_gradients(exact, field)
    with multiplying(tf32=precision.tf32), autocast(device, precision.cast):
        found = with_gradients(layer, field.to(device, torch.float32))
    return {name: relative_error(found[name], expected[name]) for name in expected}


def with_gradients(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The output, and the gradients of the input and of all weights, of a fixed slope."""
    x, weights = x.detach().clone().requires_grad_(), dict(module.named_parameters())
    out = module(x)
    slope = torch.linspace(-1, 1, out.numel(), device="cpu", dtype=torch.float64).reshape(out.shape).to(out)
    grads = torch.autograd.grad(out, [x, *weights.values()], slope)
    names = ("output", "gradient of the input", *(f"gradient of {name}" for name in weights))
    return dict(zip(names, (out.detach(), *grads), strict=True))


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value; what is not finite is an error of its own."""
    difference = (found.cpu().double() - expected.cpu().double()).abs().max() / expected.abs().max().cpu().double()
    if not bool(difference.isfinite()):
        raise ArithmeticError("a result has numbers that are not finite")
    return float(difference)


@contextmanager
def multiplying(*, tf32: bool) -> Iterator[None]:
    """Whether NVIDIA's GPUs may shorten the factors of products to 11 bits."""
    switches: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = tf32
    try:
        yield
    finally:
        for switch, was in zip(switches, before, strict=True):
            switch.allow_tf32 = was


def autocast(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Where operations are computed in a shorter type, if one is given."""
    return torch.autocast(device.type, dtype) if dtype is not None else nullcontext()
