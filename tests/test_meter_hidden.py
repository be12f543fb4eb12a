"""Layers that hooks do not see: compiled, traced, exported, in a plain list, or called past their hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from meter_sample import GRID, IMAGES, STEP, WIDE, Does, mixing_network, plain_network, weighted
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sesn import ScaleConv, equivariance_error
from sesn.meter.extent import seen_by
from sesn.tools.images import random_images


class Listed(nn.Module):
    """Submodules in a plain list, which torch does not register."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.listed = list(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.listed:
            x = layer(x.to(torch.float32))
        return x


def past_the_call(network: nn.Sequential) -> nn.Module:
    """The same layers, called through `forward`, which runs no hooks."""

    def through(x: Tensor, *layers: nn.Module) -> Tensor:
        for layer in layers:
            x = layer.forward(x)
        return x

    return Does(through, *network).eval()


def compiled(network: nn.Module, calls: int) -> Any:
    """A compiled module that was called before, and the number of its compilations."""
    made: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(1)
        return graph.forward

    fast = torch.compile(network, backend=backend)
    with torch.no_grad():
        for _ in range(calls):
            fast(IMAGES.float())
    return fast, made


def exported(network: nn.Module) -> nn.Module:
    sides = {2: torch.export.Dim("h", min=8, max=256), 3: torch.export.Dim("w", min=8, max=256)}
    program = torch.export.export(network, (IMAGES.float(),), dynamic_shapes=({**sides},))
    return program.module()


def traced(network: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own: that tracing is old, and freezes Python values
        result: nn.Module = torch.jit.trace(network, IMAGES.float(), check_trace=False)
    return result


@pytest.mark.parametrize(("make", "calls"), [(plain_network, 0), (plain_network, 2), (mixing_network, 1)])
def test_a_compiled_module_is_measured_as_what_was_compiled(make: Callable[[], nn.Module], calls: int) -> None:
    network = make()
    wanted = equivariance_error(network, IMAGES, STEP)
    fast, made = compiled(network, calls)
    before = len(made)
    error = equivariance_error(fast, IMAGES, STEP)
    assert (error.crop, error.lost) == (wanted.crop, wanted.lost)
    torch.testing.assert_close(error.valid, wanted.valid, rtol=1e-3, atol=0)
    assert len(made) == before  # nothing was compiled for the meter,
    with torch.no_grad():
        torch.testing.assert_close(fast(IMAGES.float()), network(IMAGES.float()))
    assert len(made) == max(before, 1)  # and what had been compiled was still good


def test_a_compiled_layer_inside_a_network_is_seen() -> None:
    lift, mixing = mixing_network()
    network = nn.Sequential(lift, torch.compile(mixing, backend="eager")).eval()
    error, wanted = (equivariance_error(m, IMAGES, STEP) for m in (network, mixing_network()))
    assert (error.crop, error.lost) == (wanted.crop, wanted.lost)


def test_layers_in_a_plain_list_are_seen() -> None:
    wanted = equivariance_error(mixing_network(), IMAGES, STEP)
    error = equivariance_error(Listed(*mixing_network()), IMAGES, STEP, grid=GRID)
    assert (error.crop, error.lost) == (wanted.crop, wanted.lost)
    torch.testing.assert_close(error.valid, wanted.valid)


UNSEEN = {"past the call": past_the_call, "traced": traced}


@pytest.mark.parametrize("hide", UNSEEN.values(), ids=UNSEEN)
def test_hidden_layers_on_the_scale_axis_are_refused(hide: Callable[[Any], nn.Module]) -> None:
    hidden = hide(mixing_network())
    with pytest.raises(ValueError, match="give `spoiled=`"):
        equivariance_error(hidden, IMAGES, STEP, grid=GRID)
    wanted = equivariance_error(mixing_network(), IMAGES, STEP)
    told = equivariance_error(hidden, IMAGES, STEP, grid=GRID, spoiled=1, crop=wanted.crop)
    torch.testing.assert_close(told.valid, wanted.valid, rtol=1e-3, atol=0)


def custom_convolution(network: nn.Sequential) -> nn.Module:
    """Layers of one's own: their weights are theirs, their windows nobody's."""

    class Own(nn.Module):
        def __init__(self, layer: nn.Conv2d) -> None:
            super().__init__()
            self.weight, self.side = layer.weight, layer.kernel_size[0]

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.conv2d(x, self.weight, padding=self.side // 2)

    return nn.Sequential(Own(network[0]), nn.ReLU(), Own(network[2])).eval()  # type: ignore[arg-type]


HIDING = {**UNSEEN, "exported": exported, "layers of one's own": custom_convolution}


@pytest.mark.parametrize("hide", HIDING.values(), ids=HIDING)
def test_the_window_of_hidden_layers_is_read_or_measured_by_gradients(hide: Callable[[Any], nn.Module]) -> None:
    wanted, error = (equivariance_error(m, IMAGES, STEP) for m in (plain_network(), hide(plain_network())))
    assert wanted.crop == 8  # (3 + 4) / sqrt 2 + 3
    assert error.crop == wanted.crop


def test_a_pool_called_as_a_function_is_measured_by_gradients() -> None:
    pool = nn.AvgPool2d(11, 1, 5)
    hidden = Does(lambda x: nn.functional.avg_pool2d(x, 11, 1, 5))
    crops = [equivariance_error(module, IMAGES, 0.5).crop for module in (pool, hidden)]
    assert crops == [6, 6]
    field = Does(lambda x, lift: nn.functional.avg_pool3d(lift(x), (1, 3, 3), 1, (0, 1, 1)), mixing_network()[0])
    assert equivariance_error(field, IMAGES, STEP).lost == 1  # a pool over space mixes no scales


class Attention(nn.Module):
    """Every patch looks at every other."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.layer = nn.Conv2d(1, 8, 4, 4), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x)
        return self.layer(patches.flatten(2).mT).mT.reshape(patches.shape)


def test_attention_looks_everywhere() -> None:
    torch.manual_seed(0)
    error = equivariance_error(Attention().eval(), IMAGES, 0.5)
    assert error.crop == 2  # a quarter of the 8 patches on a side


@torch.inference_mode()
def inside_inference_mode(module: nn.Module) -> int:
    return equivariance_error(module, IMAGES, STEP).crop


def test_gradients_are_taken_where_they_are_off() -> None:
    assert inside_inference_mode(past_the_call(plain_network())) == 8


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_see_through_strides(stride: int) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 2, 9, stride=stride, padding=4)
    images = random_images(0, (2, 1, 97, 97), 1.0, None)
    seen, known = seen_by(Does(lambda x, conv: conv.forward(x), layer), images), seen_by(layer, images)
    assert seen.radius == pytest.approx(known.radius, abs=stride)
    assert seen.stride == pytest.approx(known.stride, rel=0.05)


def test_a_crop_that_cannot_be_chosen_is_asked_for() -> None:
    @torch.no_grad()
    def through(x: Tensor, *layers: nn.Module) -> Tensor:
        return layers[0](x).roll(1, -1)

    with pytest.raises(ValueError, match=r"it runs roll in Does, .* give `crop=`"):
        equivariance_error(Does(through, nn.Conv2d(1, 2, 7, padding=3)), IMAGES, 0.5)


def test_scores_of_hidden_layers_need_no_window() -> None:
    scores = nn.Sequential(*plain_network(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    hidden = past_the_call(scores)
    assert seen_by(hidden, IMAGES) == seen_by(scores, IMAGES)
    assert equivariance_error(hidden, IMAGES, STEP).kind == "invariant"


def test_a_submodule_that_is_not_used_is_no_hidden_one() -> None:
    network = Does(lambda x, used, _: used(x), mixing_network(), weighted(ScaleConv(2, 2, WIDE, interscale=3)))
    assert equivariance_error(network, IMAGES, STEP).lost == 2


class Doubled(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return slope * 2


FOLLOWED: dict[str, Callable[..., Tensor]] = {
    "a function with a gradient of its own": lambda x, lift, mixing: mixing(Doubled.apply(lift(x))),
    "a checkpoint": lambda x, lift, mixing: mixing(checkpoint(lift, x, use_reentrant=False)),
    "pieces": lambda x, lift, mixing: torch.cat(mixing(lift(x)).unbind(1)).unflatten(0, (2, -1)).transpose(0, 1),
    "in place": lambda x, lift, mixing: mixing(lift(x).relu_()).mul_(2),
    "no gradients": torch.no_grad()(lambda x, lift, mixing: mixing(lift(x))),
}


@pytest.mark.parametrize("through", FOLLOWED.values(), ids=FOLLOWED)
def test_images_are_followed_through_functions(through: Callable[..., Tensor]) -> None:
    wanted = equivariance_error(mixing_network(), IMAGES, STEP)
    error = equivariance_error(Does(through, *mixing_network()).eval(), IMAGES, STEP)
    assert (error.crop, error.lost) == (wanted.crop, wanted.lost)


def test_images_are_followed_through_a_layer_that_returns_several_tensors() -> None:
    pool = nn.MaxPool2d(5, 1, 2, return_indices=True)
    network = Does(lambda x, pool, conv: conv(pool(x)[0]), pool, nn.Conv2d(1, 2, 5, padding=2))
    assert seen_by(network, IMAGES).radius == 4


def test_what_hides_the_way_from_the_images_is_refused() -> None:
    def copied(x: Tensor, lift: nn.Module) -> Tensor:
        return torch.from_numpy(lift(x).numpy().copy())

    with pytest.raises(ValueError, match="give `spoiled=`"):
        equivariance_error(Does(copied, mixing_network()[0]), IMAGES, STEP)
    with pytest.raises(ValueError, match="give `crop=`"):
        equivariance_error(Does(copied, nn.Conv2d(1, 2, 7, padding=3)), IMAGES, STEP)
