"""What layers keep: one store for several threads, bounded, empty in copies; kernels of one's own weights only."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from sesn import BandlimitedReLU, ScaleConv, ScaleConv1x1, ScaleGrid, ScaleLift, basis_a
from sesn._torch import may_keep
from sesn.layers.store import Store

BASIS = basis_a(ScaleGrid.geometric(1.5, 1.41, 3), 7, 3)


LIKE = torch.zeros(1)


@given(keys=st.lists(st.integers(0, 9), max_size=40), most=st.integers(1, 5))
def test_a_store_gives_what_was_made_for_the_key_and_stays_small(keys: list[int], most: int) -> None:
    store = Store(most)
    assert [store.get(key, LIKE, lambda key=key: str(key)) for key in keys] == [str(key) for key in keys]  # type: ignore[misc]
    assert len(store) <= most


def test_a_store_makes_once_for_each_dtype() -> None:
    store = Store(2)
    made = store.get("a", LIKE, object)
    assert store.get("a", LIKE, object) is made
    assert store.get("a", LIKE.double(), object) is not made
    store.clear()
    assert store.get("a", LIKE, object) is not made


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])
def test_copies_of_a_store_start_empty(duplicate: Callable[[Store], Store]) -> None:
    store = Store(3)
    store.get("a", LIKE, object)
    copied = duplicate(store)
    assert len(copied) == 0
    assert [copied.get(key, LIKE, lambda: 1) for key in range(4)] == [1] * 4
    assert len(copied) == 1


def test_a_store_cleared_while_making_still_answers() -> None:
    """As another thread would."""
    store = Store(1)

    def meddling() -> str:
        store.get("other", LIKE, object)
        store.clear()
        return "mine"

    assert store.get("key", LIKE, meddling) == "mine"


class Special(Tensor):
    """A tensor of another kind than torch's own."""


def asked_in(state: str) -> bool:
    """What `may_keep` answers in a state of torch."""
    if state == "compile":
        return bool(torch.compile(lambda x: x + int(may_keep(x)), backend="eager", fullgraph=True)(LIKE))
    if state == "export":
        return bool(torch.export.export(Asking(), (LIKE,)).module()(LIKE))
    if state == "trace":
        return bool(torch.jit.trace(lambda x: x + int(may_keep(x)), LIKE, check_trace=False)(LIKE))
    if state == "torch.func":
        return bool(torch.func.vmap(lambda x: x + int(may_keep(x)))(LIKE))
    if state == "forward mode":
        with forward_ad.dual_level():
            return may_keep(LIKE)
    if state == "fake":
        with FakeTensorMode():
            return may_keep(LIKE)
    with torch.inference_mode(state == "inference"):
        return may_keep(LIKE.as_subclass(Special) if state == "another kind" else LIKE + 1)


class Asking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + int(may_keep(x))


STATES = {"plain": True, "inference": True}
STATES |= dict.fromkeys(["compile", "export", "trace", "torch.func", "forward mode", "fake", "another kind"], False)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:Converting a tensor")
@pytest.mark.parametrize(("state", "wanted"), STATES.items())
def test_what_may_be_kept_when(state: str, wanted: bool) -> None:
    assert asked_in(state) == wanted


def test_a_layer_made_and_copied_in_inference_mode_keeps_its_constants_and_no_kernels() -> None:
    with torch.inference_mode():
        layer = copy.deepcopy(ScaleLift(1, 2, BASIS, algorithm="dense")).eval()
        layer(torch.ones(1, 1, 9, 9))
        assert len(layer._store) == 3
        assert layer._store._composed is None  # nobody counts the writes to its weight
    plain = ScaleLift(1, 2, BASIS, algorithm="dense")
    plain._store = layer._store
    plain(torch.ones(1, 1, 9, 9)).sum().backward()  # what was kept can be trained with


def test_a_store_used_for_another_weight_meanwhile_gives_each_its_own() -> None:
    """As replicas of a layer in other threads do."""
    store, mine, theirs = Store(), torch.ones(2), torch.zeros(2)

    def composed() -> Tensor:
        assert torch.equal(store.kernel("key", theirs, lambda: theirs + 1), theirs + 1)
        return mine + 1

    assert torch.equal(store.kernel("key", mine, composed), mine + 1)
    assert torch.equal(store.kernel("key", theirs, lambda: theirs + 1), theirs + 1)
    assert torch.equal(store.kernel("key", mine, lambda: mine + 1), mine + 1)


def test_replicas_with_their_own_weights_do_not_mix_in_threads() -> None:
    layer = ScaleLift(1, 2, BASIS, algorithm="dense").eval()
    replicas = [layer, layer._replicate_for_data_parallel()]  # type: ignore[no-untyped-call]
    replicas[1]._parameters = dict(layer._parameters) | {"weight": nn.Parameter(2 * layer.weight.detach())}
    images = torch.arange(81.0).reshape(1, 1, 9, 9)
    with torch.no_grad():
        wanted = [copy.deepcopy(layer)(images), 2 * copy.deepcopy(layer)(images)]
    wrong = []

    def work(index: int) -> None:
        for _ in range(100):
            with torch.no_grad():
                wrong.append(not torch.allclose(replicas[index](images), wanted[index], rtol=1e-4, atol=1e-3))

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 200
    assert not any(wrong)


def test_a_rectifier_of_many_sizes_keeps_few() -> None:
    layer = BandlimitedReLU()
    for side in range(2, 100):
        layer(torch.zeros(1, 1, side, 2))
    assert len(layer._store) < 98


class Counted(nn.Module):
    """A parametrisation that counts how often it is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def forward(self, weight: Tensor) -> Tensor:
        self.times += 1
        return 1.0 * weight


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("algorithm", ["dense", "separable", "spectral", "auto"])
def test_a_parametrised_weight_is_computed_once_a_call(algorithm: str, training: bool) -> None:
    layers = [
        ScaleConv(2, 2, BASIS, interscale=2, algorithm=algorithm),  # type: ignore[arg-type]
        ScaleConv1x1(2, 2),
    ]
    for layer in layers:
        plain = copy.deepcopy(layer)
        counted = Counted()
        parametrize.register_parametrization(layer, "weight", counted)
        layer.train(training)
        counted.times = 0
        field = torch.ones(1, 2, 3, 9, 9)
        with torch.set_grad_enabled(training):
            torch.testing.assert_close(layer(field), plain(field))
        assert counted.times == 1
