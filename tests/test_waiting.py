"""Nothing in `forward` or `backward` waits for the device, and what would is seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_devices import FIELD, IMAGE, NARROW, OTHERS, STEERABLE
from torch import Tensor, nn
from waiting import host_constants, run_without_waiting

from sesn import ScaleConv
from sesn.algorithms.fused import launch
from sesn.algorithms.fused.geometry import Geometry, make_tables, terms_of
from sesn.methods import METHODS, methods_on


@pytest.fixture(autouse=True)
def no_synchronisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting by name is refused, too."""
    for owner, name in ((torch.cuda, "synchronize"), (torch.cuda.Event, "synchronize"), (torch.cuda.Stream, "query")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("it waits for the device"))


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "fused", "auto"])
@pytest.mark.parametrize("name", STEERABLE)
def test_steerable_layers_do_not_wait(name: str, algorithm: str) -> None:
    make, shape = STEERABLE[name]
    assert run_without_waiting(make(algorithm=algorithm, device="meta"), shape).operations > 10


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_do_not_wait(name: str) -> None:
    make, shape = OTHERS[name]
    assert run_without_waiting(make(device="meta"), shape).operations > 0


@pytest.mark.parametrize("key", METHODS)
def test_networks_do_not_wait(key: str) -> None:
    size = "mnist" if METHODS[key] in methods_on("mnist") else "stl10"
    options: dict[str, Any] = {"resolution": 28} if size == "mnist" else {"depth": 10, "width": 1, "resolution": 48}
    channels, side = (1, 28) if size == "mnist" else (3, 48)
    network = METHODS[key].build(size, **options).to("meta")
    assert run_without_waiting(network, (2, channels, side, side)).operations > 10


# Compiled modules, on the device of which the host's numbers would arrive at every call


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "fused"])
@pytest.mark.parametrize("name", STEERABLE)
def test_compiled_steerable_layers_take_nothing_from_the_host(name: str, algorithm: str) -> None:
    make, shape = STEERABLE[name]
    assert host_constants(make(algorithm=algorithm, device="meta"), shape) == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_compiled_layers_take_nothing_from_the_host(name: str) -> None:
    make, shape = OTHERS[name]
    assert host_constants(make(device="meta"), shape) == []


HOST: dict[str, Callable[[Tensor], Any]] = {
    "numbers": lambda x: x * torch.tensor([1.0, 2.0]).to(x.device)[:, None, None],
    "a list": lambda x: x + torch.ones(3, 9, 8, device=x.device)[[0, 2]],
    "a kernel of the host": lambda x: nn.functional.conv2d(x, torch.ones(2, 2, 1, 1, device="cpu")),
}


@pytest.mark.parametrize("way", HOST)
def test_what_compiled_modules_take_from_the_host_is_seen(way: str) -> None:
    class Takes(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return HOST[way](x)

    try:
        assert host_constants(Takes(), IMAGE)
    except torch._dynamo.exc.TorchRuntimeError as error:
        assert "meta" in str(error)  # noqa: PT017  (the compiler may refuse it first)


# The launches of the fused kernels, whose insides the meta device does not run


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched; none computes anything."""
    names: list[str] = []

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: Any) -> Callable[..., None]:
            assert all(isinstance(each, int) for each in grid)
            return lambda *_args, **_options: names.append(self.name)

    language = SimpleNamespace(float32="float32", float64="float64")
    kernels = SimpleNamespace(mix=Kernel("mix"), weigh=Kernel("weigh"), tl=language)
    monkeypatch.setattr(launch, "kernels", lambda: kernels)
    return names


class Launches(nn.Module):
    """All launches of a layer's convolution, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ScaleConv(2, 3, NARROW, interscale=2, device="meta")
        samples, pairs = [self.layer._samples(k) for k in range(2)], NARROW.pairs
        assert pairs is not None
        self.tables = make_tables(samples, pairs)
        rows, columns = self.layer._axes(FIELD[-2:], (2, 2))
        terms = terms_of(self.layer._windows(), range(2), NARROW.boxes)
        self.geometry = Geometry(rows, columns, 1, 2, 2, 2, terms)

    def forward(self, field: Tensor) -> Tensor:
        tables = self.tables.down, self.tables.across
        weight = self.tables.packed(self.layer.weight)
        out, _ = launch.mix(field, weight, self.layer.bias, *tables, self.geometry, relu=True, project=False)
        launch.mix(field, weight, None, *tables, self.geometry, project=True)
        back, _ = launch.mix(out, weight, None, *tables, self.geometry, adjoint=True)
        return back.sum() + launch.weigh(field, out, *tables, self.geometry).sum() + field


def test_launches_do_not_wait(launched: list[str]) -> None:
    run_without_waiting(Launches(), FIELD)
    assert {"mix", "weigh"} == set(launched)


# The check itself sees every way of waiting


def _put(x: Tensor) -> Tensor:
    copied = x.clone()
    copied[copied > 0] = x.flatten()[:3]
    return copied


WAYS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "int": lambda x: range(int(x.sum())),
    "bool": lambda x: bool(x.sum() > 0),
    "if": lambda x: 1 if x.sum() > 0 else 2,
    "tolist": lambda x: x.sum().tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu", non_blocking=False),
    "numpy": lambda x: x.detach().numpy(force=True),
    "copy": lambda x: torch.ones(x.shape, device="cpu").copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "masked put": _put,
    "masked_select": lambda x: x.masked_select(x > 0),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "unique": lambda x: x.unique(),
    "repeats": lambda x: torch.repeat_interleave(x, x[0, 0, 0].long(), dim=-1),
    "a number": lambda x: x * torch.tensor(2.0, device=x.device),
    "numbers": lambda x: x.new_tensor([1.0, 2.0]),
    "a list": lambda x: x[:, [0, 1]],
    "a kernel of the host": lambda x: nn.functional.conv2d(x, torch.ones(1, 2, 3, 3, device="cpu")),
    "synchronize": lambda x: torch.cuda.synchronize(),
}


class Forward(nn.Module):
    """Waits in `forward`, where it is not being warmed up."""

    def __init__(self, way: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.way, self.calls = way, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 4:  # those of the warm-up
            self.way(x)
        return 2 * x


class Backward(nn.Module):
    """Waits for the gradient."""

    def __init__(self, way: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        out = 2 * x
        if out.requires_grad:
            out.register_hook(self._wait)
        return out

    def _wait(self, grad: Tensor) -> None:
        self.way(grad)


@pytest.mark.parametrize("where", [Forward, Backward])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_waiting_is_seen(way: str, where: type[Any]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception), match="wait"):
        run_without_waiting(where(WAYS[way]), IMAGE)


def test_what_does_not_wait_passes() -> None:
    """Masks that choose and do not select, sizes, and constants of the device."""

    class Quiet(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            ramp = torch.arange(x.shape[-1], device=x.device)
            chosen = torch.where(x > 0, x, -x).masked_fill(x > 1, 0.0)
            return chosen * ramp + x.new_zeros(x.shape) + x[:, :1, :, ::2].sum()

    assert run_without_waiting(Quiet(), IMAGE).operations > 5


# On a GPU torch itself tells


@contextmanager
def refusing_to_wait() -> Any:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "auto"])
@pytest.mark.parametrize("name", STEERABLE)
def test_steerable_layers_do_not_wait_for_a_gpu(name: str, algorithm: str) -> None:
    make, shape = STEERABLE[name]
    layer, x = make(algorithm=algorithm, device="cuda"), torch.ones(shape, device="cuda", requires_grad=True)
    for training in (True, False):
        layer.train(training)(x).sum().backward()
        with refusing_to_wait():
            layer(x).sum().backward()
