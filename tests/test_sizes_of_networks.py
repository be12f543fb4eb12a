"""`sesn.build` with other classes and input channels than those of the paper's data."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sesn
from sesn.networks import NETWORKS

SMALL: dict[str, dict[str, Any]] = {
    "mnist": {"channels": (2, 2, 2)},
    "stl10": {"depth": 10, "width": 1, "resolution": 16},
}
EVERY = [(key, network) for network in SMALL for key in sesn.list_methods(network)]


def image(network: str, channels: int) -> Tensor:
    side = SMALL[network].get("resolution", NETWORKS[network].image[1])
    return torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize(("key", "network"), EVERY)
def test_every_network_takes_any_classes_and_channels(key: str, network: str, recipe: Any) -> None:
    if sesn.methods.METHODS[key].lacks(network, recipe):
        pytest.skip("the method has no released network")
    for classes, channels in ((1, 4), (7, 2)):
        built = sesn.build(
            key, network, recipe=recipe, num_classes=classes, in_channels=channels, **SMALL[network]
        ).eval()
        scores = built(image(network, channels))
        assert scores.shape == (2, classes)
        assert scores.isfinite().all()
        assert f"{channels}x" in built.extra_repr()
        assert f"-> {classes}," in built.extra_repr()


@pytest.mark.parametrize("network", SMALL)
def test_the_usual_sizes_may_be_named(network: str) -> None:
    task, states = NETWORKS[network], []
    for sizes in ({}, {"num_classes": task.classes, "in_channels": task.image[0]}):
        torch.manual_seed(0)
        states.append(sesn.build("sesn-a" if network == "stl10" else "sesn-vector", network, **sizes, **SMALL[network]))
    assert all(torch.equal(a, b) for a, b in zip(*(one.parameters() for one in states), strict=True))


@pytest.mark.parametrize("network", SMALL)
def test_images_of_other_channels_are_refused_with_the_remedy(network: str) -> None:
    key = sesn.list_methods(network)[0]
    with pytest.raises(sesn.UsageError, match=r"`image.shape\[1\]` \(=2\).*build the network with in_channels="):
        sesn.build(key, network, **SMALL[network])(image(network, 2))


@pytest.mark.parametrize("network", SMALL)
@pytest.mark.parametrize("name", ["num_classes", "in_channels"])
@pytest.mark.parametrize("value", [0, -1, 2.5, "3"])
def test_sizes_are_whole_numbers(network: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"`{name}` \(={value!r}\)"):
        sesn.build(sesn.list_methods(network)[0], network, **{name: value}, **SMALL[network])


def test_a_function_of_ones_own_is_asked_for_what_it_takes_alone() -> None:
    def fixed(resolution: int, **_: object) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))

    def free(num_classes: int = 10, **_: object) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, num_classes))

    one, other = (sesn.Method(f.__name__, f.__name__, networks={"mnist": f}) for f in (fixed, free))
    assert one.build("mnist", num_classes=10, in_channels=1)(image("mnist", 1)).shape == (2, 10)
    assert other.build("mnist", num_classes=3)(image("mnist", 1)).shape == (2, 3)
    for method, name in ((one, "num_classes"), (other, "in_channels")):
        with pytest.raises(sesn.UsageError, match=rf"`{name}` \(=5\).*has no argument of this name; give it one"):
            method.build("mnist", **{name: 5})


def test_the_sizes_are_arguments_that_editors_show() -> None:
    assert {"num_classes", "in_channels"} <= inspect.signature(sesn.build).parameters.keys()
