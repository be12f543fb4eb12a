"""One contract over METHODS: whatever is in the registry builds, learns, is saved and complains in the same way."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from measures import ROUNDING
from one_device import train_and_evaluate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

import sesn
from harness.experiments.properties import TRANSLATION_MARGIN, drawn, translation_error
from sesn.methods import METHODS, Method, Source, method, methods_on
from sesn.methods.method import CHANNELS, HIDDEN_SCALES
from sesn.networks import NETWORKS, RECIPES, unused_parameters
from sesn.strategies import SEEDS
from sesn.strategies import images as random_images
from sesn.tools.app import app

#: Small networks of the same make. The full ones are built on the meta device, where nothing is computed.
THIN: dict[str, dict[str, Any]] = {
    "mnist-28": {"network": "mnist", "resolution": 28, "channels": (3, 4, 5)},
    "mnist-56": {"network": "mnist", "resolution": 56, "channels": (3, 4, 5)},
    "stl10": {"network": "stl10", "depth": 10, "width": 1, "resolution": 16},
    "stir": {"network": "stir", "channels": (3, 4)},
}


def networks(sizes: Iterable[str] = THIN, recipes: Iterable[str] = ("paper",)) -> Any:
    """Run a test on the network of every method that has it."""
    found = [
        pytest.param(row.key, size, recipe, id=f"{row.key}-{size}-{recipe}")
        for size in sizes
        for recipe in recipes
        for row in methods_on(THIN[size]["network"], recipe)
    ]
    return pytest.mark.parametrize(("key", "size", "recipe"), found)


every_network = networks(recipes=RECIPES)
every_method = networks()


def thin(key: str, size: str, recipe: Any, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return method(key).build(recipe=recipe, **THIN[size])


def images(size: str, batch: int = 4) -> Tensor:
    """Smooth blobs of several sizes with some noise: something to learn from."""
    channels, side = (3, 16) if size == "stl10" else (1, 28)
    generator = torch.Generator().manual_seed(3)
    axis = torch.arange(side) - side / 2
    width = torch.linspace(2, side / 3, batch)[:, None, None, None]
    blob = torch.exp(-(axis[:, None] ** 2 + axis**2) / (2 * width**2))
    return blob + 0.1 * torch.randn(batch, channels, side, side, generator=generator)


def loss_of(network: nn.Module, size: str) -> Tensor:
    """The loss on the fixed batch, with the same dropout every time."""
    torch.manual_seed(1)
    return cross_entropy(network(images(size)), torch.arange(4))


# Built and run


@every_network
def test_scores_of_ten_classes(key: str, size: str, recipe: str) -> None:
    scores = thin(key, size, recipe)(images(size))
    assert scores.shape == (4, 10)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


@pytest.mark.parametrize("row", methods_on("stl10"), ids=lambda row: row.key)
def test_the_full_wide_network_fits_together(row: Method) -> None:
    """The small one has a single block per group."""
    with torch.device("meta"):
        assert row.build("stl10")(torch.ones(2, 3, 96, 96)).shape == (2, 10)


@every_network
def test_gradients_reach_what_is_used_and_nothing_else(key: str, size: str, recipe: str) -> None:
    network = thin(key, size, recipe)
    loss_of(network, size).backward()
    gradients = {name: parameter.grad for name, parameter in network.named_parameters()}
    assert {name for name, grad in gradients.items() if grad is None} == unused_parameters(network)
    reached = {name: grad for name, grad in gradients.items() if grad is not None}
    assert all(grad.isfinite().all() for grad in reached.values())
    assert [name for name, grad in reached.items() if grad.dim() > 1 and not grad.any()] == []


@every_method
def test_a_black_image_has_finite_gradients(key: str, size: str, recipe: str) -> None:
    network = thin(key, size, recipe)
    network(torch.zeros_like(images(size))).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


@every_method
def test_a_training_step_lowers_the_loss(key: str, size: str, recipe: str) -> None:
    network = thin(key, size, recipe)
    before = loss_of(network, size)
    before.backward()
    used = [p for p in network.parameters() if p.grad is not None]
    slope = sum(float(p.grad.square().sum()) for p in used)  # type: ignore[union-attr]
    # A step that would take 2 % off the loss if it fell in a straight line.
    torch.optim.SGD(used, lr=0.02 * before.item() / slope).step()
    assert loss_of(network, size).item() < before.item()


# Reproducible


@every_method
def test_a_seed_decides_the_weights_and_the_scores(key: str, size: str, recipe: str) -> None:
    first, second = thin(key, size, recipe), thin(key, size, recipe)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(loss_of(first, size), loss_of(second, size))
    other = thin(key, size, recipe, seed=1)
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


@every_method
def test_state_dict_round_trip(key: str, size: str, recipe: str) -> None:
    saved, loaded = thin(key, size, recipe), thin(key, size, recipe, seed=1)
    saved(images(size))  # the running statistics move
    loaded.load_state_dict(saved.state_dict())
    x = images(size)
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(x), saved.eval()(x), rtol=0, atol=0)


@every_method
def test_evaluation_is_deterministic_and_sees_images_one_by_one(key: str, size: str, recipe: str) -> None:
    network, x = thin(key, size, recipe), images(size)
    chance = any(isinstance(module, nn.Dropout) for module in network.modules())
    assert torch.equal(network(x), network(x)) != chance
    network.eval()
    with torch.no_grad():
        together = network(x)
        assert torch.equal(network(x), together)
        torch.testing.assert_close(network(x[:1]), together[:1], rtol=1e-4, atol=1e-5)


@networks(["mnist-28", "stl10"])
def test_everything_stays_on_the_device(key: str, size: str, recipe: Any) -> None:
    meta = torch.device("meta")
    network = thin(key, size, recipe)
    network.eval()(images(size))  # what a layer keeps is kept for the CPU
    network.to(meta).train()(images(size).to(meta))  # constants are made on the CPU, once
    assert train_and_evaluate(network, tuple(images(size).shape), meta).operations > 10


# Translations

#: They resize their input or features, which moves them by fractions of a pixel; the others commute with shifts by
#: whole pixels.
RESAMPLING = [key for key, row in METHODS.items() if row.resamples in ("input", "features")]
SHIFTS = st.tuples(st.integers(-5, 5), st.integers(-5, 5))


@pytest.mark.parametrize("key", [key for key in METHODS if key not in RESAMPLING])
@settings(max_examples=5)
@given(image=random_images(96, leading=(1, 1)), shift=SHIFTS, seed=SEEDS)
def test_the_layer_commutes_with_translations(key: str, image: Tensor, shift: tuple[int, int], seed: int) -> None:
    layer = drawn(lambda: METHODS[key].first_layer(1, 2), seed).double()
    assert translation_error(layer, image, *shift, TRANSLATION_MARGIN, METHODS[key].ends).item() <= ROUNDING


@pytest.mark.parametrize("key", [key for key in METHODS if METHODS[key].between and key not in RESAMPLING])
@settings(max_examples=3)
@given(field=random_images(48, leading=(1, CHANNELS, HIDDEN_SCALES)), shift=SHIFTS, seed=SEEDS)
def test_so_do_layers_between_fields(key: str, field: Tensor, shift: tuple[int, int], seed: int) -> None:
    between = METHODS[key].between
    assert between is not None
    layer = nn.Sequential(nn.Unflatten(1, (CHANNELS, HIDDEN_SCALES)), drawn(between, seed)).double().eval()
    assert translation_error(layer, field.flatten(1, 2), *shift, 20).item() <= ROUNDING


@pytest.mark.parametrize("key", RESAMPLING)
def test_layers_that_resample_do_not_quite(key: str) -> None:
    """Their error is measured and reported; it is no rounding, and no failure of the layer either."""
    layer = drawn(lambda: METHODS[key].first_layer(1, 2), 0).double()
    image = torch.randn(1, 1, 96, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert 1e-6 < translation_error(layer, image, 1, 2, TRANSLATION_MARGIN, METHODS[key].ends).item() < 1


class Ramp(nn.Module):
    """A convolution whose response depends on where it is, by one part in a thousand from left to right."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 7, padding=3, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        return self.conv(image) * torch.linspace(1, 1.001, image.shape[-1], dtype=image.dtype)


class Strided(nn.Module):
    """Every second pixel is forgotten: shifts by an odd number of pixels show it."""

    def forward(self, image: Tensor) -> Tensor:
        return nn.functional.interpolate(image[..., ::2, ::2], scale_factor=2.0)


@pytest.mark.parametrize("violator", [Ramp, Strided])
def test_a_layer_that_does_not_commute_is_caught(violator: type[nn.Module]) -> None:
    image = torch.randn(1, 1, 96, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert translation_error(drawn(violator, 0).double(), image, 1, 1, TRANSLATION_MARGIN).item() > 1e6 * ROUNDING


# Bad input


def complains(*words: str) -> Any:
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, words)))


@every_method
def test_wrong_images_are_refused_by_name(key: str, size: str, recipe: str) -> None:
    network, good = thin(key, size, recipe), images(size)
    side = good.shape[-1]
    for axis in (2, 3) if size != "stir" else ():  # that network takes images of any size
        shape = [side + 4 if a == axis else n for a, n in enumerate(good.shape)]
        with complains(f"`image.shape[{axis}]` (={side + 4})", str(side)):
            network(torch.zeros(shape))
    with complains("`image.shape[1]` (=2)"):
        network(torch.zeros(1, 2, side, side))
    with complains("`image.shape`", "4-dimensional"):
        network(good[0])


@pytest.mark.parametrize(("key", "nearest"), [("sesn_vector", "sesn-vector"), ("SICNN Vectr", "sicnn-vector")])
def test_an_unknown_key_is_answered_with_the_keys_and_the_nearest(key: str, nearest: str) -> None:
    with complains(f"`method` (={key!r})", *METHODS, f"did you mean {nearest!r}?"):
        method(key)


def test_a_key_like_no_other_gets_the_list_only() -> None:
    with complains("`method` (='zzz')", *METHODS) as caught:
        method("zzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_a_missing_network_is_refused_with_the_reason(row: Method) -> None:
    for what, reason in row.absences.items():
        network, _, part = what.partition("/")
        if part == "error":
            assert row.build(**THIN["mnist-28" if network == "mnist" else "stl10"]) is not None
            continue
        with complains(repr(row.key), f"network for {network}: {reason}"):
            row.build(network, "released" if part else "paper")


@pytest.mark.parametrize("row", METHODS.values(), ids=METHODS)
def test_a_layer_of_a_missing_network_is_refused_with_the_reason(row: Method) -> None:
    for network in NETWORKS:
        if reason := row.lacks(network):
            with complains(repr(row.key), f"no layer for {network}: {reason}"):
                row.first_layer(1, 2, network=network)
        else:
            assert isinstance(row.first_layer(1, 2, network=network), nn.Module)


def test_unknown_networks_and_recipes() -> None:
    with complains("`recipe` (='papre')", "'paper', 'released'"):
        method("cnn").build("mnist", "papre")  # type: ignore[arg-type]
    with complains("`recipe` (='papre')", "'paper', 'released'"):
        method("cnn").first_layer(1, 2, "papre")  # type: ignore[arg-type]
    with complains("`network` (='cifar')", "mnist, stl10"):
        method("cnn").build("cifar")


def test_unknown_options_are_answered_with_those_of_the_network() -> None:
    with pytest.raises(TypeError, match=r"`options` \(=\['depth'\]\).*channels, num_classes, in_channels on mnist"):
        method("cnn").build("mnist", depth=10)


def test_a_row_gives_a_network_or_a_reason() -> None:
    nobody, networks = Source("Nobody 2020"), METHODS["cnn"].networks
    with complains("'x'", "must have a network or a layer"):
        Method("x", "X", nobody)
    with complains("'x'", "either a network or a reason", "mnist"):
        Method("x", "X", nobody, networks=networks, absences={"mnist": "it is there"})
    with complains("'x'", "`absences`", "['cifar']"):
        Method("x", "X", nobody, networks=networks, absences={"stl10": "b", "cifar": "c"})
    with complains("`network` (='cifar')", "mnist, stl10"):
        Method("x", "X", nobody, networks={"cifar": networks["mnist"]})
    with complains("`key` (='My method')", "hyphens"):
        Method("My method", "X", nobody, networks=networks)


def test_only_sesn_is_ours_and_methods_that_rescale_say_what() -> None:
    assert [key for key, row in METHODS.items() if row.ours] == [key for key in METHODS if key.startswith("sesn")]
    rescaling = {"Input Rescaling": "input", "Filter Rescaling": "filters", "Spectral Filters": "features"}
    assert all(row.resamples == rescaling.get(row.source.approach, "") for row in METHODS.values())


# The front


def test_build_and_list_methods_are_the_registry() -> None:
    assert sesn.list_methods() == list(METHODS)
    assert sesn.list_methods("mnist") == [row.key for row in methods_on("mnist")]
    torch.manual_seed(0)
    network = sesn.build("sesn-vector", recipe="released", **THIN["mnist-56"])
    other = thin("sesn-vector", "mnist-56", "released")
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))
    with complains("`method` (='sesn_vectro')", "did you mean 'sesn-vector'?"):
        sesn.build("sesn_vectro", "mnist")
    with complains("`network` (='mnits')", "mnist, stl10", "did you mean 'mnist'?"):
        sesn.build("cnn", "mnits")


def test_building_needs_torch_and_numpy_alone() -> None:
    script = """
import sys, sesn
sesn.build("sesn-vector", "mnist", resolution=28, recipe="paper")
sesn.build("sesn-b", "stl10", depth=10, width=1)
assert sesn.list_methods()[0] == "cnn"
print(sorted({"pandas", "scipy", "matplotlib", "typer", "rich", "sklearn", "harness"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# The registry


def test_keys_labels_and_colours_tell_methods_apart() -> None:
    assert list(METHODS) == [row.key for row in METHODS.values()]
    for network in NETWORKS:
        rows = methods_on(network)
        assert len({row.label_on(network) for row in rows}) == len(rows)
        assert len({row.colour for row in rows}) == len(rows)
    assert METHODS["sicnn-vector"].label_on("stl10") == "SiCNN"


#: Linear RGB as seen with full, and without red, green or blue cones (Machado, Oliveira & Fernandes 2009).
VISIONS = torch.tensor(
    [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ]
)
#: Linear RGB to XYZ, relative to white.
XYZ = torch.tensor([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]])


def lab(colour: str) -> Tensor:
    """CIE L*a*b* of a colour in every kind of vision, [4, 3]."""
    rgb = torch.tensor([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = (VISIONS @ linear).clamp(0, 1) @ XYZ.T
    x, y, z = torch.where(xyz > 0.008856, xyz.clamp(min=1e-9) ** (1 / 3), 7.787 * xyz + 16 / 116).unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=1)


@pytest.mark.parametrize("network", NETWORKS)
def test_colours_stay_apart_in_every_kind_of_vision(network: str) -> None:
    rows = methods_on(network)
    for i, a in enumerate(rows):
        for b in rows[:i]:
            distance = float((lab(a.colour) - lab(b.colour)).norm(dim=1).min())
            assert distance > 20, f"{a.key} {a.colour} and {b.key} {b.colour}: {distance:.1f}"


@pytest.mark.parametrize("columns", ["80", "150"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_command_prints_every_method(recipe: Any, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    result = CliRunner().invoke(app, ["methods", "--recipe", recipe])
    assert result.exit_code == 0
    for row in METHODS.values():
        counts = [f"{row.count(name, recipe).total:,}" for name in NETWORKS if not row.lacks(name, recipe)]
        assert re.search(rf"^ *{row.key} .*{'.*'.join(counts)}", result.output, re.MULTILINE)
    assert "…" not in result.output


def test_the_command_refuses_an_unknown_recipe() -> None:
    result = CliRunner().invoke(app, ["methods", "--recipe", "papre"])
    assert result.exit_code == 2
    assert "'papre'" in result.output
    assert all(recipe in result.output for recipe in RECIPES)
    assert "Traceback" not in result.output
