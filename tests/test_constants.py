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
from torch.nn.utils import parametrize

from sesn import BandlimitedReLU, ScaleConv, ScaleConv1x1, ScaleGrid, ScaleLift, basis_a
from sesn._memo import Memo
from sesn.layers.store import KernelCache

BASIS = basis_a(ScaleGrid.geometric(1.5, 1.41, 3), 7, 3)


@given(keys=st.lists(st.integers(0, 9), max_size=40), most=st.integers(1, 5))
def test_a_memo_gives_what_was_made_for_the_key_and_stays_small(keys: list[int], most: int) -> None:
    memo = Memo(most)
    assert [memo.get(key, lambda key=key: str(key)) for key in keys] == [str(key) for key in keys]  # type: ignore[misc]
    assert len(memo) <= most


def test_a_memo_makes_once() -> None:
    memo = Memo(2)
    made = memo.get("a", object)
    assert memo.get("a", object) is made
    memo.clear()
    assert memo.get("a", object) is not made


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda memo: pickle.loads(pickle.dumps(memo))])
def test_copies_of_a_memo_start_empty(duplicate: Callable[[Memo], Memo]) -> None:
    memo = Memo(3)
    memo.get("a", object)
    copied = duplicate(memo)
    assert len(copied) == 0
    assert [copied.get(key, lambda: 1) for key in range(4)] == [1] * 4
    assert len(copied) == 1


def test_a_memo_cleared_while_making_still_answers() -> None:
    """As another thread would."""
    memo = Memo(1)

    def meddling() -> str:
        memo.get("other", object)
        memo.clear()
        return "mine"

    assert memo.get("key", meddling) == "mine"


def test_a_kernel_cache_used_for_another_weight_meanwhile_gives_each_its_own() -> None:
    """As replicas of a layer in other threads do."""
    cache, mine, theirs = KernelCache(), torch.ones(2), torch.zeros(2)

    def composed() -> Tensor:
        assert torch.equal(cache.get("key", theirs, lambda: theirs + 1), theirs + 1)
        return mine + 1

    assert torch.equal(cache.get("key", mine, composed), mine + 1)
    assert torch.equal(cache.get("key", theirs, lambda: theirs + 1), theirs + 1)
    assert torch.equal(cache.get("key", mine, lambda: mine + 1), mine + 1)


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
    assert len(layer._kept) < 98


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
