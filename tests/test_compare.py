"""`compare`: several networks on the same images, one row and one curve each, and the status that follows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, arange, nn, save
from typer.testing import CliRunner
from zoo import ordinary, wide_field

from sesn.errors import UsageError
from sesn.meter.compare import middle
from sesn.tools.app import app
from sesn.tools.compare import Compared, compare, compare_table, each_network, numbered, sentences, short_names
from sesn.tools.curves import draw_curves
from sesn.tools.images import random_images

IMAGES = random_images(0, (2, 1, 64, 64))


class Refuses(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        raise ValueError("never")


@pytest.fixture(scope="module")
def found() -> list[Compared]:
    networks = {"exact": nn.Identity(), "field": wide_field(1), "cnn": ordinary("cnn", "random"), "none": Refuses()}
    return compare(networks, IMAGES, [2**-0.5, 1 / 2])


# --- the function


def test_known_answers(found: list[Compared]) -> None:
    exact, field, cnn, none = found
    assert [result.relative.median for result in exact.results] == [0, 0]
    assert field.passes(1e-3)
    assert all(result.relative.median > 0.1 for result in cnn.results)
    assert not cnn.passes(0.1)
    assert cnn.passes(math.inf)
    assert cnn.parameters == sum(each.numel() for each in ordinary("cnn", "random").parameters())
    assert "never" in none.failure
    assert not none.passes()


def test_the_relative_delta_is_that_of_the_verdict(found: list[Compared]) -> None:
    result = found[2].worst
    assert result.relative.median == pytest.approx(middle(result.first.relative))
    assert result.downscale == pytest.approx(2)


def test_the_progress_sums_to_one_although_a_network_refuses() -> None:
    parts: list[float] = []
    compare({"exact": nn.Identity(), "none": Refuses()}, IMAGES, [1 / 2], on_step=parts.append)
    assert sum(parts) == pytest.approx(1)


def test_the_words_name_the_best_and_who_does_not_pass(found: list[Compared]) -> None:
    words = "\n".join(sentences(found, 1e-2))
    assert "none could not be measured: the module rejected images" in words
    assert "exact is nearest to equivariance" in words
    assert words.endswith("not within the tolerance 0.01: cnn")
    assert sentences(found[:2], 1e-2)[-1] == "all that were measured are within the tolerance 0.01"
    assert compare_table(found, 1e-2).row_count == 7


class Signs(nn.Module):
    """Every other pixel negative, which rescaling turns over: chance."""

    def forward(self, images: Tensor) -> Tensor:
        down, right = (arange(side) for side in images.shape[-2:])
        return images * (1 - 2 * ((down[:, None] + right) % 2))


def test_none_is_called_near_where_all_are_at_chance() -> None:
    networks = {"signs": Signs(), "twice": nn.Sequential(nn.Conv2d(1, 2, 1), Signs()).eval()}
    words = "\n".join(sentences(compare(networks, IMAGES, [1 / 2])))
    assert "no network is near equivariance: the relative Δ of the best, " in words
    assert "is nearest" not in words


def test_factors_between_the_scales_of_a_field_are_said(found: list[Compared]) -> None:
    assert "between two scales" not in "\n".join(sentences(found))
    between = compare({"field": wide_field(1), "cnn": ordinary("cnn", "random")}, IMAGES, [1 / 1.7, 1 / 2])
    told = [one for one in sentences(between) if "between" in one]
    assert told == [
        "field at downscale 1.7: between two scales of its grid, compared with the nearest, which alone gives a large Δ"
    ]


# --- names


@given(st.lists(st.text("abc:./ ()12", max_size=50), min_size=1, max_size=8))
def test_names_are_told_apart_and_short(targets: list[str]) -> None:
    names = short_names(targets)
    assert len(set(names)) == len(names) == len(targets)
    assert all(len(name) <= 32 + len(" (8) (8) (8)") for name in names)


def test_names_are_as_short_as_they_may_be() -> None:
    assert short_names(["a/net.py:cnn", "a/net.py:vit"]) == ["cnn", "vit"]
    assert short_names(["a.py:build", "b.py:build", "b.py:x"]) == ["a:build", "b:build", "x"]
    assert short_names(["a/net.py:build", "b/net.py:build"]) == ["a/net.py:build", "b/net.py:build"]
    assert short_names(["net.py:build"] * 2) == ["net.py:build (1)", "net.py:build (2)"]
    assert numbered(["a", "a", "a (1)"]) == ["a (1) (1)", "a (2)", "a (1) (2)"]


# --- what differs between the networks


def test_an_option_is_for_all_networks_or_for_one() -> None:
    told = {"with_": ["width=4", "2:width=8", "deep=True"], "output": ["2:logits"], "weights": ["a.pt", "1:2:b.pt"]}
    first, second = each_network(told, 2)
    assert first == {"with_": ["width=4", "deep=True"], "output": None, "weights": Path("2:b.pt")}
    assert second == {"with_": ["width=8", "deep=True"], "output": "logits", "weights": Path("a.pt")}
    with pytest.raises(UsageError, match=r"`output` \(='3:x'\) must be for one of the 2 networks"):
        each_network({"output": ["3:x"]}, 2)
    with pytest.raises(UsageError, match="one value for network 1"):
        each_network({"tokens": ["2x2", "4x4"]}, 2)


# --- the picture


def test_everything_in_the_picture_of_eight_networks_fits(found: list[Compared]) -> None:
    names = [f"{'a network with a long $name$ ' * 2}{i}" for i in range(8)]
    figure = draw_curves(
        [Compared(name, found[i % 4].results, 1, found[i % 4].failure) for i, name in enumerate(names)]
    )
    figure.draw_without_rendering()
    axes, foot = figure.axes
    legend = foot.get_legend()
    assert legend is not None
    for text in [*axes.texts, *axes.get_xticklabels(), axes.xaxis.label, axes.yaxis.label, *legend.get_texts()]:
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
        assert inside, (text, box, figure.bbox)
    # The axes keep most of the picture, and the legend lies below them.
    assert axes.bbox.height > 0.4 * figure.bbox.height
    assert legend.get_window_extent().y1 < axes.xaxis.label.get_window_extent().y0
    drawn = [line for line in axes.lines if line.get_label() in {text.get_text() for text in legend.get_texts()}]
    assert len({(line.get_color(), line.get_marker()) for line in drawn}) == 8


# --- the command

NETWORKS = """
from torch import nn
from sesn import ScaleGrid, ScaleLift, basis_a

exact = nn.Identity
def cnn(): return nn.Sequential(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
def strided(): return nn.Sequential(*[nn.Conv2d(1, 1, 3, 2, 1) for _ in range(3)])
def sized(): return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2 * 28 * 28, 3))
def colour(): return nn.Conv2d(3, 2, 3, padding=1)
def field(): return ScaleLift(1, 2, basis_a(ScaleGrid.geometric(2.0, 2.0, 2), "wide", 2))
class Refuses(nn.Module):
    def forward(self, x): raise ValueError("never")
class Several(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.layer = nn.Conv2d(1, width, 3, padding=1)
    def forward(self, x): return {"maps": self.layer(x), "scores": self.layer(x).mean((2, 3))}
class Tokens(nn.Conv2d):
    def __init__(self): super().__init__(1, 2, 4, 4)
    def forward(self, x): return super().forward(x).flatten(2).transpose(1, 2)
"""
Sesn = Callable[..., Any]


@pytest.fixture
def sesn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sesn:
    (tmp_path / "n.py").write_text(NETWORKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def run(names: str, *words: str) -> Any:
        targets = [f"n.py:{name}" for name in names.split()]
        return CliRunner().invoke(app, ["compare", *targets, "--images", "1/f", "--count", "2", *words])

    return run


FILES = ("--json", "out.json", "--picture", "out.png")


def at_downscales(one: Compared, *downscales: float) -> Compared:
    """The same results at other downscales."""
    results = one.results[: len(downscales)]
    moved = [replace(result.first, factor=1 / at) for result, at in zip(results, downscales, strict=True)]
    return replace(one, results=tuple(replace(result, draws=(m,)) for result, m in zip(results, moved, strict=True)))


def test_networks_of_different_strides_share_columns_where_the_digits_allow(found: list[Compared]) -> None:
    """1.412 and 1.414 stand in one column; what one network has apart stays apart."""

    def columns(*networks: Compared) -> list[str]:
        return [str(column.header) for column in compare_table(networks).columns][2:-1]

    one = found[0]
    assert columns(at_downscales(one, 1.414, 2), at_downscales(one, 1.412, 2)) == ["1.41", "2"]
    assert columns(at_downscales(one, 1.414, 2)) == ["1.414", "2"]
    assert columns(at_downscales(one, 1.414, 1.41)) == ["1.41", "1.414"]


@pytest.mark.parametrize(
    ("names", "words", "status"),
    [
        ("exact field", ("--tolerance", "1e-2", "--downscale", "2"), 0),
        ("exact cnn", ("--tolerance", "1e-2", "--downscale", "2"), 1),
        ("exact cnn", ("--downscale", "2"), 0),
        ("exact field", ("--downscale", "8"), 1),  # beyond the grid: nothing to compare
        ("exact Refuses cnn", ("--tolerance", "1e-2", "--downscale", "2"), 2),
    ],
)
def test_every_outcome_has_its_status_and_its_files(
    sesn: Sesn, names: str, words: tuple[str, ...], status: int
) -> None:
    result = sesn(names, "--input", "1x64x64", *words, *FILES)
    assert result.exit_code == status, result.output
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in document["networks"]] == names.split()
    assert [bool(row["failure"]) for row in document["networks"]] == [name == "Refuses" for name in names.split()]
    assert all(len(row["results"]) == 1 or row["failure"] for row in document["networks"])
    assert document["passes"] == (status == 0)
    assert Path("out.png").exists()
    assert Path("out.svg").exists()


@pytest.mark.parametrize("names", ["nothing missing", "nothing Refuses"])
def test_nothing_is_written_where_nothing_was_measured(sesn: Sesn, names: str) -> None:
    result = sesn(names, *FILES)
    assert result.exit_code == 2, result.output
    assert result.output.count("could not be measured") == 2
    assert not list(Path().glob("out.*"))


def test_sizes_that_fit_all_are_chosen_and_said(sesn: Sesn) -> None:
    result = sesn("cnn strided", *FILES)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "--input 1x96x96 --downscale 1.5,2,3,4 --canvas follow for all" in said
    document = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert document["common"]
    assert len({tuple(one["downscale"] for one in row["results"]) for row in document["networks"]}) == 1


def test_a_network_of_one_size_has_all_measured_on_a_kept_canvas(sesn: Sesn) -> None:
    result = sesn("cnn sized", "--downscale", "2")
    assert result.exit_code == 0, result.output
    assert "--input 1x28x28 --downscale 2 --canvas keep for all" in " ".join(result.output.split())


def test_where_no_size_fits_all_each_has_its_own(sesn: Sesn) -> None:
    result = sesn("strided colour", *FILES)
    assert result.exit_code == 0, result.output
    assert "no size fits all of them, so each is measured at its own" in " ".join(result.output.split())
    assert not json.loads(Path("out.json").read_text(encoding="utf-8"))["common"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--names", "one"), "--names (='one') must be 2 names"),
        (("--tolerance", "-1"), "--tolerance (=-1.0) must be at least 0"),
        (("--picture", "n.py"), "--picture"),
        (("--canvas", "bent"), "--canvas"),
    ],
)
def test_odd_options_are_refused_in_one_line(sesn: Sesn, words: tuple[str, ...], said: str) -> None:
    result = sesn("exact cnn", *words)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())


def test_a_network_of_several_outputs_is_measured_as_its_message_says(sesn: Sesn) -> None:
    words = ("--downscale", "2", "--input", "1x32x32")
    refused = " ".join(sesn("exact Several", *words).output.split())
    assert "give --output, for example 'maps'" in refused
    assert "--output 2:maps" in refused.partition("run sesn compare")[2]
    result = sesn("exact Several", *words, "--output", "2:maps", "--with", "2:width=3", *FILES)
    assert result.exit_code == 0, result.output
    networks = json.loads(Path("out.json").read_text(encoding="utf-8"))["networks"]
    assert [row["parameters"] for row in networks] == [0, 30]


def test_tokens_and_weights_are_for_one_network_or_for_all(sesn: Sesn) -> None:
    save(nn.Conv2d(1, 2, 4, 4).state_dict(), "w.pt")
    words = ("--downscale", "2", "--input", "1x32x32", "--tokens", "2:8x8", "--weights", "2:w.pt")
    result = sesn("exact Tokens", *words, *FILES)
    assert result.exit_code == 0, result.output
    [_, tokens] = json.loads(Path("out.json").read_text(encoding="utf-8"))["networks"]
    assert tokens["results"][0]["kind"] == "map"
    assert "--weights" in " ".join(sesn("exact Tokens", *words[:-1], "2:none.pt").output.split())


def test_all_have_the_same_images_as_many_as_the_costliest_allows(sesn: Sesn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sesn.tools.sizes.MOST_OPERATIONS", 16.0 * 9 * 1000)
    targets = ["n.py:exact", "n.py:cnn"]
    words = ["--downscale", "2", "--input", "1x32x32", "--json", "out.json"]
    result = CliRunner().invoke(app, ["compare", *targets, *words])
    assert result.exit_code == 0, result.output
    networks = json.loads(Path("out.json").read_text(encoding="utf-8"))["networks"]
    assert [len(row["results"][0]["delta"][0]) for row in networks] == [4, 4]


def test_names_may_be_given_and_a_canvas_kept(sesn: Sesn) -> None:
    result = sesn("exact exact", "--names", "A,A", "--canvas", "keep", "--downscale", "2", "--input", "1x32x32")
    assert result.exit_code == 0, result.output
    assert "A (1)" in result.output
    assert "--canvas keep for all" in " ".join(result.output.split())
