"""Which module a command line names: in a file or a package, built with arguments, with weights from a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from sesn.tools.app import app
from sesn.tools.packages import PACKAGES
from sesn.tools.target import load_target

NETWORKS = """
import sys, warnings
from torch import nn

def build(width=2, *, bias=True, name="x"):
    layer = nn.Conv2d(1, width, 3, padding=1, bias=bias)
    layer.name = name
    return layer

def needs(width):
    return build(width)

def downloads(pretrained=True):
    print("Downloading from afar", file=sys.stderr)
    warnings.warn("once more")
    if pretrained:
        raise OSError("the network is down")
    return build()

def backbone(weights_backbone="imagenet"):
    return downloads(weights_backbone is not None)

def random_weights(pretrained=False):
    raise OSError("the network is down")

def optional():
    raise ImportError("No module named 'einops'. Traceback: of another package")

class Lacks(nn.Module):
    def forward(self, images):
        raise ImportError("from far_off import all (No module named 'far_off'). Original traceback: and so on")

instance = build()
"""
Sesn = Callable[..., Any]


@pytest.fixture
def sesn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sesn:
    """Run a command on small images, in a folder with a file and a package of networks."""
    package = tmp_path / "zoo_of_tests" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("", encoding="utf-8")
    for path in (tmp_path / "networks.py", package / "__init__.py"):
        path.write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(command: str, *words: str) -> Any:
        small = ["--input", "1x32x32", "--downscale", "2", "--count", "2", "--images", "1/f"]
        return CliRunner().invoke(app, [command, *words, *small])

    return run


def said(result: Any) -> str:
    return " ".join(result.output.split())


@pytest.mark.parametrize("command", ["check", "profile", "causes"])
@pytest.mark.parametrize(
    "words",
    [
        ["networks.py:build", "--with", "width=3", "--with", "bias=False"],
        ["networks.py:instance"],
        ["zoo_of_tests.inner:build", "--with", "width=3"],
        ["zoo_of_tests.inner:instance"],
        [
            "torch.nn:Conv2d",
            "--with",
            "in_channels=1",
            "--with",
            "out_channels=2",
            "--with",
            "kernel_size=(3,3)",
            "--with",
            "padding=same",
        ],
    ],
    ids=" ".join,
)
def test_every_command_takes_every_kind_of_target(sesn: Sesn, command: str, words: list[str]) -> None:
    result = sesn(command, *words)
    assert result.exit_code == 0, result.output


def test_arguments_are_python_literals_or_text(sesn: Sesn) -> None:
    target = load_target("networks.py:build", ["width=3", "bias=False", "name=a=b, c"])
    built: Any = target.build(0)
    assert (built.out_channels, built.bias, built.name) == (3, None, "a=b, c")
    assert torch.equal(built.weight, target.build(0).weight)  # type: ignore[arg-type]
    assert not torch.equal(built.weight, target.build(1).weight)  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", [".safetensors", ".pt", ".ckpt"])
def test_weights_come_from_a_file(sesn: Sesn, tmp_path: Path, ending: str) -> None:
    state, path = nn.Conv2d(1, 2, 3).state_dict(), tmp_path / f"weights{ending}"
    if ending == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state if ending == ".pt" else {"epoch": 3, "state_dict": state}, path)
    for seed in (0, 1):
        built = load_target("networks.py:build", weights=path).build(seed)
        assert torch.equal(built.state_dict()["weight"], state["weight"])
    result = sesn("check", "networks.py:build", "--weights", str(path), "--json", "out.json")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out.json").read_text())["settings"]["weights"] == str(path)


REFUSED = {
    "zoo_of_tests.inner:lost": "zoo_of_tests.inner has no name `lost`; it has build, needs, downloads, ",
    "networks.py:biuld": "networks.py has no name `biuld`; it has build, needs, downloads, ",
    "torch.nn:Conv": "torch.nn has no name `Conv`; it has Conv3d, Conv2d, Conv1d, ",
    "weights.pt": "`weights.pt` is named like a file of weights: name the network that they are for, and give them by "
    "--weights, for example network.py:build --weights weights.pt",
    "zoo_of_tests.outer:build": "importing zoo_of_tests.outer failed: ModuleNotFoundError",
    "no_such_package.models:resnet18": "there is no package no_such_package here; install it",
    "networks.py:instance --with width=3": "is a module already: leave out",
    "networks.py:build --with width": "must be NAME=VALUE, each name once; for example width=16",
    "networks.py:build --with width=3 --with width=4": "must be NAME=VALUE, each name once",
    "networks.py:build --with depth=3": "got an unexpected keyword argument 'depth'; it takes width=2, bias=True",
    "networks.py:needs": "missing a required argument: 'width'; it takes width, and --with gives one as in width=16",
    "networks.py:build --with width=thin": "the factory failed: TypeError",
    "networks.py:downloads": "OSError: the network is down (networks.py, line 17); for random weights give",
    "networks.py:Lacks": "the module needs the package far_off, which is missing; install it, for example with",
    "networks.py:instance --draws 3": "must be 1 where the weights are given",
    "networks.py:build --weights gone.pt": "there is no such file",
    "networks.py:build --weights networks.py": "cannot be read as weights alone (Weights only load failed); write them",
    "networks.py:build --weights note.txt": "cannot be read as weights alone",
    "networks.py:build --weights bad.safetensors": "is not a safetensors file",
    "networks.py:build --weights whole.pt": "cannot be read as weights alone",
    "networks.py:build --weights epoch.pt": "holds a dict of epoch, not weights by name",
    "networks.py:build --weights good.safetensors --with width=4": "of another shape: weight is (2, 1, 3, 3) there and",
    "networks.py:build --weights other.safetensors": "the file lacks weight, bias; the module has no 0.bias, 0.weight",
}


@pytest.mark.filterwarnings("default:once more")
@pytest.mark.parametrize("words", REFUSED)
def test_a_target_that_cannot_be_had_is_bad_usage(sesn: Sesn, tmp_path: Path, words: str) -> None:
    layer = nn.Conv2d(1, 2, 3)
    (tmp_path / "bad.safetensors").write_bytes(b"nothing of the kind")
    (tmp_path / "note.txt").write_text("hi\n")
    torch.save(layer, tmp_path / "whole.pt")
    torch.save({"epoch": 3}, tmp_path / "epoch.pt")
    save_file(layer.state_dict(), tmp_path / "good.safetensors")
    save_file(nn.Sequential(layer).state_dict(), tmp_path / "other.safetensors")
    result = sesn("check", *words.split())
    assert result.exit_code == 2, result.output
    assert REFUSED[words] in said(result)
    assert "Traceback" not in result.output
    assert said(result).startswith("error: ")


@pytest.mark.filterwarnings("default:once more")
def test_where_weights_cannot_be_had_the_argument_for_random_ones_is_named(sesn: Sesn) -> None:
    assert said(sesn("check", "networks.py:downloads")).endswith("for random weights give `with` pretrained=False")
    assert said(sesn("check", "networks.py:backbone")).endswith("for random weights give `with` weights_backbone=None")
    assert "random weights" not in said(sesn("check", "networks.py:random_weights"))  # asked for already


def test_a_package_that_a_factory_needs_is_named_without_the_traceback_in_its_error(sesn: Sesn) -> None:
    told = said(sesn("check", "networks.py:optional"))
    assert told.startswith("error: `networks.py:optional`: the factory failed: the package einops is missing; install")
    assert "Traceback" not in told


@pytest.mark.filterwarnings("default:once more")
def test_what_a_factory_says_is_shown_where_it_succeeds(sesn: Sesn) -> None:
    result = sesn("check", "networks.py:downloads", "--with", "pretrained=False")
    assert result.exit_code == 0, result.output
    assert "Downloading from afar" in result.output
    assert "once more" in result.output


TIMM = """
from torch import nn

def list_models():
    return ["resnet18", "resnet34", "vit_tiny"]

def create_model(name, pretrained=False, width=2):
    assert not pretrained
    return nn.Conv2d(1, width, 3, padding=1)
"""
MODELS = """
from torch import nn

class Config:
    def __init__(self, width=2):
        self.width = width

class ViTModel(nn.Conv2d):
    config_class = Config

    def __init__(self, config):
        super().__init__(1, config.width, 3, padding=1)
"""


@pytest.fixture
def packages(sesn: Sesn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that are called as those of the table, whether those are installed or not."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {"timm": TIMM, "transformers": MODELS}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(PACKAGES, name, PACKAGES[name]._replace(module=name))
    monkeypatch.setitem(PACKAGES, "monai", PACKAGES["monai"]._replace(module="no_such_package.networks"))


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize(
    "words",
    ["timm:resnet18", "timm:resnet18.of_some_training --with width=3", "transformers:ViTModel --with width=3"],
)
def test_a_network_of_a_package_is_named_in_short(sesn: Sesn, words: str) -> None:
    result = sesn("check", *words.split())
    assert result.exit_code == 0, result.output


OF_PACKAGES = {
    "timm:resnet81": "timm has no network of that name; did you mean timm:resnet18 or timm:resnet34?",
    "timm:qqq": "timm has no network of that name",
    "timm:resnet18 --with depth=3": "got an unexpected keyword argument 'depth'; it takes pretrained=False, width=2",
    "transformers:vitmodel": "did you mean transformers:ViTModel?",
    "transformers:Config": "transformers has no network of that name",
    "monai:UNet": "monai is not installed; run python -m pip install monai",
}


@pytest.mark.usefixtures("packages")
@pytest.mark.parametrize("words", OF_PACKAGES)
def test_what_a_package_does_not_have_is_bad_usage(sesn: Sesn, words: str) -> None:
    result = sesn("check", *words.split())
    assert result.exit_code == 2, result.output
    assert OF_PACKAGES[words] in said(result)
    assert "Traceback" not in result.output


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_file_of_torchscript_is_told_from_one_of_weights(sesn: Sesn) -> None:
    torch.save(nn.Conv2d(1, 2, 3).state_dict(), "weights.pth")
    torch.jit.script(nn.Conv2d(1, 2, 3, padding=1)).save("script.pt")  # type: ignore[no-untyped-call]
    assert "is named like a file of weights" in said(sesn("check", "weights.pth"))
    assert "for example network.py:build --weights weights.pth" in said(sesn("check", "weights.pth:build"))
    refused = said(sesn("check", "script.pt"))
    assert "`script.pt` is a TorchScript file: write network = torch.jit.load('script.pt') into a" in refused
    Path("network.py").write_text("import torch\nnetwork = torch.jit.load('script.pt')\n", encoding="utf-8")
    assert sesn("check", "network.py:network").exit_code == 0
