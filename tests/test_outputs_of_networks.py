"""Networks that return more than one tensor, tokens, or one pixel: what is measured of them, and what is asked."""

from __future__ import annotations

import re
import shlex
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from typer.testing import CliRunner

from sesn import Meter, OutputOf, UsageError, equivariance_error
from sesn.meter.outputs import laid_out
from sesn.tools.app import app
from sesn.tools.images import random_images

NETWORKS = """
import torch
from torch import nn

class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x):
        maps = self.conv(x)
        return {"scores": maps.mean((2, 3)), "features": [x, maps]}

class Only(Several):
    def forward(self, x):
        return {"maps": [self.conv(x)], "loss": None}

class Tokens(nn.Module):
    def __init__(self, first=1, side=4):
        super().__init__()
        self.patch, self.mix = nn.Conv2d(1, 4, side, side), nn.Linear(4, 4)
        self.first = nn.Parameter(torch.ones(1, first, 4))

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return self.mix(torch.cat([self.first.expand(len(x), -1, -1), tokens], 1))

class Objects(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.objects = nn.Conv2d(1, 4, 4, 4), nn.Parameter(torch.ones(9, 4))

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return torch.softmax(self.objects @ tokens.mT, -1) @ tokens

pooled = lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.AdaptiveAvgPool2d(1))
"""
Sesn = Callable[..., Any]


@pytest.fixture
def sesn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sesn:
    (tmp_path / "networks.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(command: str, name: str, *words: str) -> Any:
        small = ["--input", "1x32x32", "--downscale", "2", "--count", "2", "--images", "1/f"]
        return CliRunner().invoke(app, [command, f"networks.py:{name}", *small, *words])

    return run


def said(result: Any) -> str:
    return " ".join(result.output.split())


class Answer(nn.Module):
    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(x)


@dataclass
class Record:
    inner: Any


Pair = namedtuple("Pair", "left right")
ENTRIES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a tuple": (lambda x: (0, x), "1"),
    "a list from its end": (lambda x: [x, 2 * x, x], "-1"),
    "a dict": (lambda x: {"out": x, "aux": None}, "out"),
    "a dict of numbers": (lambda x: {3: x}, "3"),
    "a key with a dot": (lambda x: {"p3.out": x, "p3": 0}, "p3.out"),
    "a dataclass": (lambda x: Record({"maps": (x,)}), "inner.maps.0"),
    "a named tuple": (lambda x: Pair(0, x), "right"),
    "a named tuple by index": (lambda x: Pair(0, x), "1"),
    "a dict of dicts": (lambda x: OrderedDict(a=OrderedDict(b=x)), "a.b"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_the_entry_is_what_is_measured(case: str) -> None:
    answer, name = ENTRIES[case]
    images = random_images(0, (2, 1, 16, 16))
    network = OutputOf(Answer(answer).eval(), output=name)
    assert torch.equal(network(images), images)
    assert equivariance_error(network, images, 0.5).valid.max() < 1e-20


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 3]), st.integers(0, 5))
def test_tokens_are_laid_out_as_the_map_that_they_were(rows: int, columns: int, finer: int, before: int) -> None:
    maps = torch.randn(2, 3, rows * finer, columns * finer)
    tokens = maps.flatten(2).transpose(1, 2)
    laid = laid_out(torch.cat([torch.zeros(2, before, 3), tokens], 1), (rows, columns))
    assert laid is not None
    if before <= finer * min(rows, columns):  # more might be a row of a larger grid
        assert torch.equal(laid, maps)


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_tokens_before_the_grid_are_left_out_and_said(sesn: Sesn, before: int) -> None:
    result = sesn("check", "Tokens", "--with", f"first={before}", "--tokens", "8x8")
    assert result.exit_code == 0, result.output
    assert (f"without the first {before} token" in said(result)) == bool(before)


@pytest.mark.parametrize("words", ["Several", "Tokens", "Tokens --with first=2"])
def test_what_is_left_open_is_answered_with_a_command_that_works(sesn: Sesn, words: str) -> None:
    found = re.search(r": run (sesn check .*)$", said(sesn("check", *words.split())))
    assert found is not None
    again = CliRunner().invoke(app, shlex.split(found[1])[1:])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize("command", ["check", "profile"])
def test_the_only_output_is_taken_and_said(sesn: Sesn, command: str) -> None:
    result = sesn(command, "Only")
    assert result.exit_code == 0, result.output
    assert "--output maps.0 chosen for the network's one output" in said(result)


@pytest.mark.parametrize("command", ["check", "profile", "causes"])
@pytest.mark.parametrize(
    "words", ["Several --output scores", "Several --output features.1", "Tokens --tokens 8x8"], ids=str
)
def test_every_command_takes_one_output(sesn: Sesn, command: str, words: str) -> None:
    result = sesn(command, *words.split())
    assert result.exit_code == 0, result.output


def test_layers_keep_their_names_and_tokens_inside_are_maps(sesn: Sesn) -> None:
    table = said(sesn("profile", "Tokens", "--tokens", "8x8", "--all"))
    assert " patch Conv2d map " in table
    assert " mix Linear tokens " in table


def test_tokens_have_the_delta_of_the_map(device: torch.device) -> None:
    images, patch = random_images(0, (2, 1, 32, 32)).to(device), nn.Conv2d(1, 4, 4, 4).eval().to(device)
    flat = Answer(lambda x: patch(x).flatten(2).transpose(1, 2)).eval()
    flat.patch = patch
    meter = Meter(crop=1)
    expected = meter.measure(patch, images, 0.5).valid
    assert torch.allclose(meter.measure(OutputOf(flat, tokens=(8, 8)), images, 0.5).valid, expected)


def test_one_pixel_is_an_invariant(sesn: Sesn) -> None:
    assert sesn("check", "pooled", "--kind", "invariant").exit_code == 0


REFUSED = {
    "Several": "got dict of scores (1, 2), features.0 (1, 1, 32, 32), features.1 (1, 2, 32, 32); give --output, for ",
    "Several --output logits": "which is scores (1, 2), features.0 (1, 1, 32, 32), features.1 (1, 2, 32, 32)",
    "Several --output features.7": "which is 0 (1, 1, 32, 32), 1 (1, 2, 32, 32)",
    "pooled --output 0": "which is one tensor (1, 2, 1, 1), so leave it out",
    "Tokens": "for scales [b, c, s] give --grid, and for tokens [b, n, c] the grid that they lie on, --tokens, for ",
    "Tokens --with first=0": "for example 8x8",
    "Tokens --with first=5": "for example 8x8",
    "Tokens --tokens 8": "two whole numbers above 0, or set for tokens that lie on no grid; for example 14x14",
    "pooled --tokens set": "must be left out for an output (1, 2, 1, 1), which is no set [b, n, c] of tokens",
    "Tokens --tokens 5x5": "must be the grid of the tokens for images of 1x32x32, which is 8x8; run sesn check",
    "Tokens --tokens 5x1": "must be rows and columns of the tokens [b, n, c] that are returned, not of (1, 65, 4)",
    "pooled --tokens 8x8": "that are returned, not of (1, 2, 1, 1)",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_there_is_answered_with_what_is(sesn: Sesn, words: str) -> None:
    result = sesn("check", *words.split())
    assert result.exit_code == 2, result.output
    assert REFUSED[words] in said(result)
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("sesn")
def test_the_grid_that_is_proposed_is_that_of_the_size_that_will_be_chosen() -> None:
    words = ["check", "networks.py:Tokens", "--with", "side=14"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2, result.output
    assert "6x6" not in said(result)
    proposed = said(result).rpartition(": run sesn ")[2].split()
    assert proposed == [*words, "--tokens", "8x8"]
    assert CliRunner().invoke(app, proposed).exit_code == 0


@pytest.mark.usefixtures("sesn")
def test_a_set_is_proposed_where_tokens_are_as_many_for_every_size() -> None:
    words = ["check", "networks.py:Objects"]
    proposed = said(CliRunner().invoke(app, words)).rpartition(": run sesn ")[2].split()
    assert proposed == [*words, "--tokens", "set"]
    result = CliRunner().invoke(app, proposed)
    assert result.exit_code == 0, result.output


def test_a_set_is_measured_as_numbers_that_should_not_change(device: torch.device) -> None:
    tokens = Answer(lambda x: x.mean((2, 3))[:, None, :, None].expand(-1, 5, -1, 3).flatten(2)).eval()
    images = random_images(0, (2, 2, 16, 16), 1.0, None).to(device)
    error = equivariance_error(OutputOf(tokens, tokens="set"), images, 0.5)
    flat = equivariance_error(Answer(lambda x: tokens(x).flatten(1)).eval(), images, 0.5)
    assert error.kind == "invariant"
    assert torch.equal(error.valid, flat.valid)


def test_in_python_the_message_names_the_wrapper() -> None:
    with pytest.raises(UsageError, match=r"give `output=` of sesn.OutputOf, for example 'out'"):
        equivariance_error(Answer(lambda x: {"out": x}).eval(), random_images(0, (2, 1, 16, 16)), 0.5)
