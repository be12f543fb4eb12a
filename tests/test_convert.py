"""An ordinary network, converted, is itself at its reference scale."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import pytest
import slow
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from plain_networks import Code, ResNet18, UNet, seeded, settled
from torch import Tensor, nn

import sesn
from sesn.layers.fit import LARGE_RESIDUAL
from sesn.tools.images import random_images

GRID = sesn.ScaleGrid([1.0, 1.4, 2.0])
SMALL = sesn.ScaleGrid([1.0, 1.2, 1.4])
EXACT = {"rtol": 0.0, "atol": 1e-9}


LAYERS: dict[str, Any] = {
    "3": lambda c: nn.Conv2d(c, c, 3, padding=1),
    "strided": lambda c: nn.Conv2d(c, c, 3, stride=2, padding=1, bias=False),
    "valid": lambda c: nn.Conv2d(c, c, 3),
    "5": lambda c: nn.Conv2d(c, c, 5, padding=1, padding_mode="circular"),
    "dilated": lambda c: nn.Conv2d(c, c, 3, padding=2, dilation=2),
    "1": lambda c: nn.Conv2d(c, c, 1, stride=2),
    "depthwise": lambda c: nn.Conv2d(c, c, 3, padding=1, groups=c),
    "multiplied": lambda c: nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1, groups=c), nn.Conv2d(2 * c, c, 1)),
    "grouped 1": lambda c: nn.Conv2d(c, c, 1, groups=c),
    "padded 1": lambda c: nn.Conv2d(c, c, 1, padding=1),
    "line": lambda c: nn.Conv2d(c, c, (1, 5), padding=(0, 2)),
    "tuples": lambda c: nn.Conv2d(c, c, (3, 5), stride=(2, 1), padding=(1, 0), dilation=(2, 1)),
    "reflected": lambda c: nn.Conv2d(c, c, 3, padding=1, padding_mode="reflect"),
    "strided 1": lambda c: nn.Conv2d(c, c, 1, stride=(1, 2)),
    "norm": nn.BatchNorm2d,
    "bare norm": lambda c: nn.BatchNorm2d(c, affine=False),
    "groups": lambda c: nn.GroupNorm(1, c),
    "instance": nn.InstanceNorm2d,
    "relu": lambda c: nn.ReLU(inplace=True),
    "prelu": nn.PReLU,
    "gelu": lambda c: nn.GELU(),
    "max": lambda c: nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
    "mean": lambda c: nn.AvgPool2d(2, stride=1),
    "up": lambda c: nn.Upsample(scale_factor=2),
    "transposed": lambda c: nn.ConvTranspose2d(c, c, 3, stride=2, padding=1, output_padding=1),
    "transposed tuples": lambda c: nn.ConvTranspose2d(c, c, (3, 1), (2, 1), (1, 0), (1, 0), bias=False),
    "tiled up": lambda c: nn.ConvTranspose2d(c, c, 2, stride=2, groups=c),
    "tiled down": lambda c: nn.Conv2d(c, c, 2, stride=2),
    "pad": lambda c: nn.ReflectionPad2d(1),
    "dropout": lambda c: nn.Dropout2d(0.5),
    "residual": lambda c: Residual(nn.Conv2d(c, c, 3, padding="same")),
}


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.relu(x), F.leaky_relu(self.inner(x))], dim=1)[:, ::2]


class Squeeze(nn.Module):
    """A squeeze-and-excitation block: its pool is none of a head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool, self.mix = nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.mix(self.pool(x)))


LAYERS["squeeze"] = Squeeze


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_does_on_fields_what_it_does_on_maps(name: str) -> None:
    follows([name], 1, False, 0)
    follows([name, name], 0, False, 0)


@given(st.lists(st.sampled_from(sorted(LAYERS)), max_size=5), st.integers(0, 2), st.booleans(), st.integers(0, 99))
def test_a_converted_network_is_the_original_at_its_reference_scale(
    names: list[str], reference: int, classifies: bool, seed: int
) -> None:
    follows(names, reference, classifies, seed)


def follows(names: list[str], reference: int, classifies: bool, seed: int) -> None:
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)] if classifies else []
    body = seeded(seed, lambda: [nn.Conv2d(1, 2, 3, padding=1), *(LAYERS[name](2) for name in names)])
    original = settled(nn.Sequential(*body, *head), 1, 24, 24)
    image = slow.uniform(seed, 2, 1, 24, 24)
    project = "reference" if classifies else None
    network, report = sesn.convert(original, image, grid=SMALL, reference=reference, project=project)
    found = network(image)
    wanted = original(image)
    torch.testing.assert_close(found if classifies else found[:, :, reference], wanted, rtol=1e-7, atol=1e-7)
    assert report.runs
    assert report.error is not None
    assert report.error < 1e-7
    assert report.residual < 1e-9


def test_a_residual_network_of_torchvision_is_converted() -> None:
    original = settled(seeded(0, ResNet18), 3, 64, 64)
    before = copy.deepcopy(original.state_dict())
    image = slow.uniform(0, 2, 3, 64, 64)
    network, report = sesn.convert(original, image, project="reference")
    torch.testing.assert_close(network(image), original(image), **EXACT)
    assert report.runs
    kinds = [step.after for step in report.having("replaced")]
    assert kinds.count("ScaleLift") == 1
    assert kinds.count("ScaleConv") == 16
    assert kinds.count("ScaleConv1x1") == 3
    assert kinds.count("ScaleBatchNorm") == 20
    assert kinds.count("EachScale(MaxPool2d)") == 1
    assert {step.name for step in report.having("kept")} >= {"avgpool", "fc", "relu"}
    torch.testing.assert_close(original.state_dict(), before)
    # The head is as it was; other projections make other scores of the same field.
    assert network.fc.weight.shape == original.fc.weight.shape
    scores = {project: sesn.convert(original, image, project=project).network(image) for project in ("max", "mean")}
    assert not torch.allclose(scores["max"], scores["mean"])


def test_float32_is_as_good_as_its_rounding() -> None:
    original = settled(seeded(0, ResNet18), 3, 64, 64).float()
    image = slow.uniform(0, 2, 3, 64, 64).float()
    found = sesn.convert(original, image, project="reference").network(image)
    with torch.no_grad():
        wanted = original(image)
        assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5


def test_a_u_net_is_converted() -> None:
    original = settled(seeded(0, UNet), 1, 32, 32)
    image = slow.uniform(0, 2, 1, 32, 40)
    network, report = sesn.convert(original, project=None)
    field = network(image)
    assert field.shape == (2, 2, 3, 32, 40)
    torch.testing.assert_close(field[:, :, report.reference], original(image), **EXACT)
    projected = sesn.convert(original).network
    torch.testing.assert_close(projected(image), field.amax(2))


def test_a_converted_network_is_far_more_equivariant_than_the_original() -> None:
    """Not trained, so with kernels that see edges, as those that are; the factor 2 is two steps of the grid."""
    first, second = (seeded(0, lambda c=c: nn.Conv2d(*c, 3, padding=1, bias=False)) for c in ((1, 4), (4, 2)))
    original = nn.Sequential(first, nn.ReLU(), second).double().eval()
    for parameter in original.parameters():
        parameter.data -= parameter.data.mean((2, 3), keepdim=True)
    image = random_images(0, (2, 1, 64, 64), 1.0, None)
    network = sesn.convert(original, project=None).network
    own = sesn.equivariance_error(original, image, 0.5).valid.mean()
    assert sesn.equivariance_error(network, image, 0.5).valid.mean() < own / 8


def test_a_converted_network_trains_and_is_saved() -> None:
    original = settled(seeded(0, UNet), 1, 32, 32).train()
    network = sesn.convert(original).network
    assert all(module.training for module in network.modules())
    image = slow.uniform(0, 2, 1, 32, 32)
    network(image).square().mean().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    twin = sesn.convert(original).network
    twin.load_state_dict(network.state_dict())
    torch.testing.assert_close(twin.eval()(image), network.eval()(image))


def test_modes_are_kept_layer_by_layer() -> None:
    original = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout2d(), nn.BatchNorm2d(2)).train()
    original[1].eval()
    network = sesn.convert(original, project=None).network
    assert [layer.training for layer in network] == [True, False, True, True]
    assert [type(layer).__name__ for layer in network][2] == "Dropout3d"


class Rectified(nn.BatchNorm2d):
    """A batch norm with code of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(super().forward(input))


class Halved(nn.Dropout2d):
    """A dropout with code of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) / 2


@pytest.mark.parametrize("layer", [Rectified(4), Halved()])
def test_a_layer_with_code_of_its_own_is_not_taken_for_the_one_that_it_extends(layer: nn.Module) -> None:
    convs = seeded(0, lambda: (nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3)))
    original = settled(nn.Sequential(convs[0], layer, convs[1]), 1, 16, 16)
    network, report = sesn.convert(original, slow.uniform(0, 2, 1, 16, 16), project="reference")
    image = slow.uniform(1, 2, 1, 16, 16)
    assert report.runs
    torch.testing.assert_close(network(image), original(image), **EXACT)


def test_a_shared_layer_stays_shared() -> None:
    conv = nn.Conv2d(2, 2, 3, padding=1)
    network = sesn.convert(nn.Sequential(nn.Conv2d(1, 2, 3), conv, nn.ReLU(), conv), project=None).network
    assert network[1] is network[3]


def test_a_layer_that_did_not_run_is_said_to_be_kept() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.other = nn.Conv2d(1, 2, 3), nn.Conv2d(1, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.main(x)

    _, report = sesn.convert(Two())
    assert [(step.name, step.fate, step.after) for step in report.steps][1:] == [
        ("other", "kept", "did not run on the example")
    ]


# --- the first layers and the head


def test_a_first_layer_that_cannot_be_lifted_sees_the_image_and_the_next_lifts() -> None:
    original = seeded(0, lambda: nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(4, 2, 3))).double()
    network, report = sesn.convert(original, project=None)
    assert [(step.fate, step.after) for step in report.steps] == [
        ("kept", "`kernel_size` (=(4, 4)) must be odd along rows and columns"),
        ("replaced", "ScaleLift"),
    ]
    image = slow.uniform(0, 1, 3, 32, 32)
    torch.testing.assert_close(network(image)[:, :, 0], original(image), **EXACT)


class Shortcut(nn.Module):
    """A block that adds what it got, itself or through a kernel of one pixel, as those of a ResNeXt do."""

    def __init__(self, channels: int, out: int, **options: Any) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, out, 3, padding=1, bias=False, **options), nn.BatchNorm2d(out)
        self.down = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.norm(self.conv(self.relu(x))) + self.down(x))


@pytest.mark.parametrize("stem", [nn.Conv2d(3, 4, 4, stride=4), nn.Conv2d(3, 4, 1), nn.Identity()])
@pytest.mark.parametrize("reference", [0, 2])
def test_a_block_that_adds_what_it_got_is_converted_behind_any_first_layer(stem: nn.Module, reference: int) -> None:
    """Where both of its branches meet the image, one of them alone would become a field."""
    first = Shortcut(3, 4) if isinstance(stem, nn.Identity) else Shortcut(4, 4, groups=2, padding_mode="reflect")
    layers = nn.Sequential(copy.deepcopy(stem), first, Shortcut(4, 6), Shortcut(6, 6, groups=6))
    original = settled(seeded(0, lambda: layers), 3, 32, 24)
    network, report = sesn.convert(
        original, slow.uniform(0, 2, 3, 32, 24), reference=reference, grid=SMALL, project=None
    )
    assert report.runs, report
    image = slow.uniform(1, 2, 3, 32, 24)
    torch.testing.assert_close(network(image)[:, :, reference], original(image), **EXACT)


def test_a_first_layer_that_is_copied_to_every_scale_is_in_the_report() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), Shortcut(4, 4))
    _, report = sesn.convert(layers, project=None)
    assert [(step.name, step.fate, step.after) for step in report.steps[:2]] == [
        ("0", "replaced", "itself, copied to every scale"),
        ("1.relu", "kept", "does the same on fields"),
    ]
    assert any(step.after == "ScaleConv" for step in report.steps)


def test_the_head_may_be_named() -> None:
    """Projected before the last convolution, which then is an ordinary one."""
    original = settled(seeded(0, UNet), 1, 32, 32)
    network, report = sesn.convert(original, project="reference", head="out")
    assert isinstance(network.out.head, nn.Conv2d)
    assert report.steps[-1].after == "sees the projection"
    image = slow.uniform(0, 2, 1, 32, 32)
    torch.testing.assert_close(network(image), original(image), **EXACT)


def test_a_projection_of_ones_own_is_taken() -> None:
    network = sesn.convert(nn.Conv2d(1, 2, 3), project=sesn.ScaleProjection(reduce="soft", taper=1)).network
    assert network.projection.taper == 1


def test_one_basis_for_all_leaves_a_residual_that_is_told() -> None:
    original = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 5))
    with pytest.warns(UserWarning, match="the basis leaves a relative residual of"):
        _, report = sesn.convert(original, basis=sesn.complete_basis(GRID, 3), project=None)
    assert report.steps[0].residual < 1e-9 < LARGE_RESIDUAL < report.steps[1].residual == report.residual
    assert report.runs
    assert report.error > 1e-3


def test_outputs_in_a_dictionary_are_compared_as_well() -> None:
    _, report = sesn.convert(Code(lambda x: {"out": x, "parts": [x.relu(), 3]}), project=None)
    assert report.error < 1e-5


class Two(NamedTuple):
    map: Tensor
    field: Tensor


@pytest.mark.parametrize(
    "make",
    [lambda a, b: {"a": a, "b": [b, 3]}, lambda a, b: (a, {"b": b}), Two],
    ids=["a dictionary", "a tuple", "a named tuple"],
)
def test_every_field_of_an_output_with_parts_is_projected(make: Any) -> None:
    original, image = Code(lambda x: make(x[:, :1], x.relu())), torch.randn(2, 1, 12, 12)
    network, report = sesn.convert(original, image, project="reference")
    assert report.runs
    torch.testing.assert_close(network(image), original(image), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, r"`model` \(=3\) must be a torch module"),
        ({"model": nn.ReLU()}, r"`model` \(=ReLU\) must have an nn.Conv2d; there is nothing to convert"),
        ({"grid": 3}, r"`grid` \(=3\) must be a ScaleGrid"),
        ({"basis": 3}, r"`basis` \(=3\) must be a SteerableBasis"),
        ({"grid": GRID, "basis": sesn.complete_basis(GRID, 3)}, r"give one of `grid` \(=.*\) and `basis` \(="),
        ({"reference": 9}, r"`reference` \(=9\) must be less than the number of scales \(3\)"),
        ({"project": "median"}, r"`project` \(='median'\) must be one of 'max', 'mean', 'soft', 'reference'"),
        ({"project": None}, r"`project` \(=None\) must be one of .* for a network with a head \(1\)"),
        ({"head": "fc"}, r"`head` \(='fc'\) must be the name of a module in the model; such as"),
        ({"example": torch.zeros(3, 8, 8)}, r"`example.shape` \(=\(3, 8, 8\)\) must be 4-dimensional"),
        ({"example": torch.zeros(1, 5, 8, 8)}, r"running `model` on `example` \[1, 5, 8, 8\].* failed: RuntimeError"),
    ],
)
def test_bad_arguments_of_convert_are_named(arguments: dict[str, Any], message: str) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    with pytest.raises(sesn.UsageError, match=message):
        sesn.convert(**{"model": model, **arguments})
