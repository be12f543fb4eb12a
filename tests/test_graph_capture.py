"""What CUDA graphs need, as far as the CPU can show it: constants stay where they are from the warm-up on.

A captured graph reads memory by its address. Whatever a layer keeps must therefore be made before the capture, must not
move between calls, and must not be freed while a graph may read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_devices import FIELD, IMAGE, NARROW, OTHERS, STEERABLE
from torch import Tensor, nn

import sesn._torch
from sesn import ScaleConv, ScaleLift, UsageError
from sesn.algorithms import spectral
from sesn.layers import store

#: The sizes of other maps, more than a layer keeps constants of.
OTHER_SIDES = range(7, 7 + store.KEPT)


def tensors_in(what: Any) -> Iterator[Tensor]:
    """Every tensor of a store or of what it holds."""
    if isinstance(what, Tensor):
        yield what
    elif isinstance(what, dict):
        for one in what.values():
            yield from tensors_in(one)
    elif isinstance(what, tuple | list):
        for one in what:
            yield from tensors_in(one)
    elif hasattr(what, "__dict__"):
        yield from tensors_in(vars(what))


def places(module: nn.Module) -> list[int]:
    """Where the constants of a layer lie: its buffers, and all that it keeps."""
    kept = vars(module).get("_store", store.Store())._kept
    return [one.data_ptr() for one in [*module.buffers(), *tensors_in(kept)]]


def call_twice(module: nn.Module, x: Tensor) -> Tensor:
    """Train and evaluate; the output of the latter."""
    for training in (True, False):
        module.train(training)(x)
        with torch.no_grad():
            out = module(x)
    return out  # type: ignore[no-any-return]


CASES = [(name, algorithm) for name in STEERABLE for algorithm in ("dense", "separable", "spectral", "auto")]


@pytest.mark.parametrize(("name", "algorithm"), [*CASES, *((name, "") for name in OTHERS)])
def test_constants_stay_where_they_are(name: str, algorithm: str) -> None:
    make, shape = (STEERABLE | OTHERS)[name]
    layer = make(algorithm=algorithm) if algorithm else make()
    x = torch.rand(shape)
    first = call_twice(layer, x)
    before = places(layer)
    assert algorithm not in ("dense", "separable") or len(before) > len(list(layer.buffers()))
    # Elsewhere memory is asked for and given back, as by other layers.
    others = [torch.rand(shape) for _ in range(20)]
    call_twice(layer, x)
    assert places(layer) == before
    layer.double().float()
    if name != "dropout" and "norm" not in name:
        torch.testing.assert_close(call_twice(layer, x), first)
    again = places(layer)
    call_twice(layer, x)
    assert places(layer) == again
    assert len(others) == 20


def test_a_constant_that_moves_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "may_keep", lambda like: False)
    layer = ScaleConv(2, 3, NARROW, algorithm="dense")
    call_twice(layer, torch.rand(FIELD))
    assert not len(layer._store)


def test_transforms_stay_where_they_are() -> None:
    layer, x = ScaleLift(2, 3, NARROW, algorithm="spectral"), torch.rand(IMAGE)
    call_twice(layer, x)
    before = spectral._kept_transforms.cache_info()
    call_twice(layer, x)
    after = spectral._kept_transforms.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits


# While a graph is captured, which is only pretended here


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Switches on what a layer sees while a graph is captured."""

    def pretend(wanted: bool = True) -> None:
        for module in (sesn._torch, store):
            monkeypatch.setattr(module, "capturing", lambda device: wanted)

    monkeypatch.setattr(sesn._torch, "_READ_BY_GRAPHS", {})
    return pretend


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
def test_without_a_warm_up_the_remedy_is_named(algorithm: Any, capture: Any) -> None:
    spectral._kept_transforms.cache_clear()
    layer = ScaleConv(2, 3, NARROW, algorithm=algorithm)
    capture()
    with pytest.raises(UsageError, match="run the module once or twice on an input of the same shape"):
        layer(torch.rand(FIELD))


@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral"])
def test_what_a_graph_reads_outlives_the_store(algorithm: Any, capture: Any) -> None:
    layer, field = ScaleConv(2, 3, NARROW, algorithm=algorithm), torch.rand(FIELD)
    call_twice(layer, field)
    capture()
    call_twice(layer, field)
    capture(False)
    kept = set(places(layer)) - {one.data_ptr() for one in layer.buffers()}
    for side in OTHER_SIDES:
        layer(torch.rand(1, 2, 2, side, side))
    assert not kept & set(places(layer))
    assert kept <= {one.data_ptr() for one in tensors_in(sesn._torch._READ_BY_GRAPHS)}


def test_a_captured_kernel_follows_the_weight(capture: Any) -> None:
    layer, image = ScaleLift(2, 3, NARROW, bias=False, algorithm="dense").eval(), torch.rand(IMAGE)
    with torch.no_grad():
        first = layer(image)
        capture()
        composed = []
        compose = layer._store.kernel(("any",), layer.weight, lambda: composed.append(1) or layer.weight)
        again = layer._store.kernel(("any",), layer.weight, lambda: composed.append(1) or layer.weight)
        assert len(composed) == 2
        assert compose is again
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(image), 2 * first)
    assert layer._store._composed is None or ("any",) not in layer._store._composed.kernels


# On a GPU, the real thing


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "auto"])
def test_a_captured_graph_gives_what_the_layer_gives(algorithm: Any) -> None:
    layer = ScaleConv(2, 3, NARROW, interscale=2, algorithm=algorithm, device="cuda").eval()
    field = torch.rand(FIELD, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            layer(field)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = layer(field)
    field.copy_(torch.rand(FIELD))
    graph.replay()
    with torch.no_grad():
        torch.testing.assert_close(out, layer(field))
