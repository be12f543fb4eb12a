"""Functions of maps that a network calls, such as F.max_pool2d, take every scale of a converted network by itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import slow
import torch
import torch.nn.functional as F
from measures import EXPORTS
from plain_networks import Code, UNet, seeded, settled
from torch import nn

import sesn

SMALL = sesn.ScaleGrid([1.0, 1.2, 1.4])
EXACT = {"rtol": 0.0, "atol": 1e-9}

FUNCTIONS: dict[str, Any] = {
    "F.max_pool2d": lambda x: F.max_pool2d(x, 3, stride=2),
    "F.avg_pool2d": lambda x: F.avg_pool2d(x, kernel_size=2),
    "F.adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "F.interpolate": lambda x: F.interpolate(x, size=(9, 7)),
    "F.pixel_shuffle": lambda x: F.pixel_shuffle(torch.cat([x, x], 1), 2),
    "F.pad": lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_maps_that_code_calls_take_every_scale_by_itself(name: str) -> None:
    original, image = Code(FUNCTIONS[name]).double(), slow.uniform(0, 2, 1, 12, 14)
    network, report = sesn.convert(original, image, project=None)
    torch.testing.assert_close(network(image)[:, :, 0], original(image), **EXACT)
    assert [step.after for step in report.steps][1:] == [f"{name} at every scale"]
    assert FUNCTIONS[name](original.conv(image)).shape[1:] == network(image)[:, :, 2].shape[1:]


def test_a_u_net_of_functions_is_compiled_exported_and_copied() -> None:
    original = settled(seeded(0, lambda: UNet(functions=True)), 1, 32, 32)
    original.middle.train()
    network, report = sesn.convert(original, slow.uniform(0, 2, 1, 32, 32), grid=SMALL, project="reference")
    assert [step.before for step in report.steps if step.name == ""] == ["F.max_pool2d", "F.interpolate"]
    modes = [module.training for module in network.modules() if isinstance(module, sesn.ScaleBatchNorm)]
    assert modes == [module.training for module in original.modules() if isinstance(module, nn.BatchNorm2d)]
    network.eval()
    original.eval()
    image = slow.uniform(1, 3, 1, 24, 40)
    torch.testing.assert_close(network(image), original(image), **EXACT)
    again = torch.compile(copy.deepcopy(network), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(again(image), original(image), **EXACT)


@EXPORTS
def test_a_network_of_functions_is_exported() -> None:
    original = settled(seeded(0, lambda: UNet(functions=True)), 1, 32, 32)
    image = slow.uniform(1, 3, 1, 24, 40)
    network = sesn.convert(original, image, grid=SMALL, project="reference").network
    program = sesn.export_plain(network, image)
    torch.testing.assert_close(program.module()(image[:2]), original(image[:2]), **EXACT)


@EXPORTS
def test_a_classifier_of_functions_is_exported_with_open_sides() -> None:
    # Its outermost module takes *args, for which torch wants the open sides in another structure.
    layers = (
        nn.Conv2d(1, 3, 3),
        Code(lambda x: F.max_pool2d(x, 2)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 4),
    )
    layers[1].conv = nn.Conv2d(3, 2, 3)
    original = seeded(0, lambda: nn.Sequential(*layers)).double().eval()
    network = sesn.convert(original, slow.uniform(0, 2, 1, 16, 16), grid=SMALL, project="reference").network
    program, image = sesn.export_plain(network, slow.uniform(0, 2, 1, 16, 16)), slow.uniform(1, 3, 1, 20, 27)
    torch.testing.assert_close(program.module()(image), original(image), **EXACT)
