"""What cannot be converted is named, in the report and in a warning."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from plain_networks import Code
from torch import Tensor, nn

import sesn


class Flat(nn.Module):
    """A classifier whose code flattens the map."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.conv, self.pool, self.function = nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(32), function
        self.score = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        return self.score(self.function(self.pool(self.conv(x))))


class Frozen(nn.Conv2d):
    """A convolution with code of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


LIFT = nn.Conv2d(1, 4, 3, padding=1)
OBSTACLES: dict[str, tuple[nn.Module, str]] = {
    "conv2d": (
        Code(lambda x: F.conv2d(x, torch.ones(1, 2, 3, 3))),
        "F.conv2d): its weights mix pixels or channels; make",
    ),
    "view": (Code(lambda x: x.view(x.shape[0], 2, 64 * 64)), "Code): fails on a field: RuntimeError: shape"),
    "mean": (Code(lambda x: x.mean((2, 3))), "Code): computes something else on fields"),
    "flatten": (Flat(lambda x: torch.flatten(x, 1)), "(Tensor.flatten): puts scales among the features; make it the"),
    "flat view": (Flat(lambda x: x.view(-1, 8)), "(Tensor.view): puts scales among the features"),
    "transposed": (
        nn.Sequential(LIFT, nn.ConvTranspose2d(4, 2, 4, 2, 1)),
        "1 (ConvTranspose2d 4 x 4): `kernel_size` (=(4, 4)) must be odd",
    ),
    "transposed gap": (
        nn.Sequential(LIFT, nn.ConvTranspose2d(4, 2, 3, 2)),
        "1 (ConvTranspose2d 3 x 3): `padding` (=(0, 0)) must be (1, 1), half the kernel's side",
    ),
    "linear": (nn.Sequential(LIFT, nn.Linear(64, 2), nn.Conv2d(4, 1, 1)), "1 (Linear): its weights mix pixels"),
    "even": (nn.Sequential(LIFT, nn.Conv2d(4, 4, 2)), "1 (Conv2d 2 x 2): `kernel_size` (=(2, 2)) must be odd"),
    "no lift": (
        nn.Sequential(nn.Conv2d(1, 4, 4, stride=4), nn.ReLU(), nn.Conv2d(4, 2, 1)),
        "the network (Sequential): none of its convolutions can be a ScaleLift or a ScaleConv, so nothing would",
    ),
    "own code": (nn.Sequential(LIFT, Frozen(4, 4, 3)), "`forward` (='Frozen') must be that of nn.Conv2d"),
}


class Branch(nn.Module):
    """A residual block whose branch counts axes, and begins as nothing, as those of many networks do."""

    def __init__(self, gain: float, function: Any) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.mix = nn.Conv2d(8, 8, 1)
        self.gain, self.function = nn.Parameter(torch.tensor(gain)), function

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        y = self.inner(x)
        return x + self.gain * y * torch.sigmoid(self.mix(self.function(y)))


@pytest.mark.parametrize("gain", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda y: y.mean((2, 3), keepdim=True), "mix (Conv2d 1 x 1): gets other shapes than in the original, so code"),
        (lambda y: y.flip(2), "mix (Conv2d 1 x 1): gets other numbers than in the original (an error of "),
    ],
)
def test_code_that_counts_axes_is_noticed_where_the_output_does_not_show_it(
    gain: float, function: Any, words: str
) -> None:
    with pytest.warns(UserWarning, match="not all of the network can be converted") as caught:
        _, report = sesn.convert(Branch(gain, function), project=None)
    assert words in str(caught[0].message)
    assert not report.runs
    assert report.error is None
    right = Branch(gain, lambda y: y.mean((-2, -1), keepdim=True))
    assert sesn.convert(right, project=None).report.runs


def test_numbers_near_zero_and_rounding_are_no_obstacle() -> None:
    # A norm of constant maps has nothing but the rounding of what it got, and makes it larger.
    first = nn.Conv2d(1, 4, 3)
    nn.init.zeros_(first.weight)
    model = nn.Sequential(first, nn.InstanceNorm2d(4), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    assert sesn.convert(model, project=None).report.runs


def test_an_output_of_whole_numbers_is_compared_as_well() -> None:
    # It was said to run, and failed at its first call.
    with pytest.warns(UserWarning, match="computes something else on fields, with another shape"):
        _, report = sesn.convert(Code(lambda x: x.argmax(1)))
    assert not report.runs


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_cannot_be_converted_is_named_in_the_report_and_in_a_warning(name: str) -> None:
    model, words = OBSTACLES[name]
    with pytest.warns(UserWarning, match="not all of the network can be converted") as caught:
        _, report = sesn.convert(model, torch.randn(2, 1, 64, 64), project="max" if isinstance(model, Flat) else None)
    assert words in str(caught[0].message)
    assert not report.runs
    assert report.error is None
    assert report.having("cannot be")[0].after in str(report)


def test_all_obstacles_are_found_in_one_run() -> None:
    model = nn.Sequential(Code(lambda x: F.conv2d(x, torch.ones(2, 2, 3, 3))), nn.Conv2d(2, 2, 4), nn.Linear(59, 2))
    with pytest.warns(UserWarning, match=r"0 \(F.conv2d\): its .*; 1 \(Conv2d 4 x 4\): .*") as caught:
        _, report = sesn.convert(model, project="max")
    assert len(caught) == 1
    assert [step.before for step in report.having("cannot be")] == ["F.conv2d", "Conv2d 4 x 4"]


def test_a_long_list_of_obstacles_is_cut_in_the_warning() -> None:
    layers = [nn.Conv2d(4, 4, 2) for _ in range(5)]
    with pytest.warns(UserWarning, match="and 2 more"):
        sesn.convert(nn.Sequential(LIFT, *layers), project=None)


@pytest.mark.parametrize("head", [(), (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))])
def test_a_network_without_a_single_steerable_layer_is_not_said_to_run(head: tuple[nn.Module, ...]) -> None:
    # As in the discriminator of a DCGAN: the report was without a complaint, and the network failed at its first call.
    model = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(), nn.Conv2d(4, 4, 4, 2, 1), *head)
    with pytest.warns(UserWarning, match="not all of the network can be converted"):
        _, report = sesn.convert(model)
    assert not report.runs
    assert report.error is None
    assert [step.after for step in report.steps if step.name == "2"] == [
        "`kernel_size` (=(4, 4)) must be odd along rows and columns"
    ]


def test_what_comes_after_an_obstacle_is_said_to_be_unreached() -> None:
    with pytest.warns(UserWarning, match="not all of the network can be converted"):
        _, report = sesn.convert(nn.Sequential(Code(lambda x: x.view(x.shape[0], 2, 64 * 64)), nn.Conv1d(2, 2, 3)))
    assert [step.after for step in report.steps if step.name == "1"] == [
        "not reached, because the network failed before"
    ]


def test_the_report_says_what_a_layer_sees() -> None:
    with pytest.warns(UserWarning, match="puts scales among the features"):
        _, report = sesn.convert(Flat(lambda x: torch.flatten(x, 1)), torch.randn(2, 1, 64, 64))
    assert [step.after for step in report.steps if step.name == "score"] == ["sees no maps"]
