"""A profile as a table, a picture and a command: short names, folded rows, one sentence, and nothing lost."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sesn import UsageError
from sesn.tools.app import app
from sesn.tools.drawing import encoded
from sesn.tools.profile import FUNCTIONS, WHOLE, LayerRow
from sesn.tools.profile_picture import draw_profile, named_places
from sesn.tools.profile_table import MOST_LINES, SORTS, fitting_depth, lines, profile_table, sentence, short

PARTS = st.sampled_from(["blocks", "0", "11", "attn", "qkv", "a_rather_long_name_of_a_layer"])
NAMES = st.lists(PARTS, min_size=1, max_size=6).map(".".join)
NUMBERS = st.sampled_from([0.0, 1e-6, 0.1, 0.5, 1.2, math.nan])
CHANGES = st.sampled_from([0.0, 0.3, 1e-9, math.nan])


@st.composite
def some_rows(draw: st.DrawFn) -> list[LayerRow]:
    def row(name: str) -> LayerRow:
        relative, change = draw(NUMBERS), draw(CHANGES)
        numbers = {"relative": relative, "delta": relative, "added": draw(CHANGES), "own": change, "lasting": change}
        layer = draw(st.sampled_from(["Linear", "AVeryLongClassOfALayer", FUNCTIONS]))
        note = draw(st.sampled_from(["returns tuple", "is not called"])) if math.isnan(relative) else ""
        return LayerRow(name, draw(st.integers(0, 1)), layer, True, "map", note=note, **numbers)

    return [row(name) for name in [*draw(st.lists(NAMES, max_size=12)), WHOLE]]


def rising(count: int, most: int = 3) -> list[LayerRow]:
    """Blocks of five layers, of which all add a little and one adds most."""

    def row(place: int) -> LayerRow:
        name, own = f"network.blocks.{place // 5}.layer{place % 5}", 0.3 if place == most else 0.1
        return LayerRow(name, 0, "Linear", True, "map", relative=0.4 + place / count, delta=0.1, own=own, lasting=own)

    return [row(place) for place in range(count)]


@given(rows=some_rows(), sort=st.sampled_from(SORTS), unfolded=st.booleans(), depth=st.none() | st.integers(1, 5))
def test_every_row_that_is_not_too_deep_is_in_one_line(
    rows: list[LayerRow], sort: Any, unfolded: bool, depth: int | None
) -> None:
    found = lines(rows, depth=depth, sort=sort, unfolded=unfolded)
    wanted = [id(row) for row in rows if depth is None or row.depth <= depth]
    held = [id(row) for line in found for row in line.rows]
    assert sorted(held) == sorted(wanted)
    if sort == "order":
        assert held == wanted
    assert all((len(line.rows) > 1) == (bool(line.reason) and not unfolded) for line in found)
    # Two lines beside each other that say the same are one.
    assert all(not a.reason or (a.reason, a.note) != (b.reason, b.note) for a, b in pairwise(found))


@given(rows=some_rows(), width=st.integers(80, 120))
def test_no_line_of_the_table_is_too_wide_and_notes_are_told_once(rows: list[LayerRow], width: int) -> None:
    text = profile_table(rows, width=width).plain
    table = text[: text.rindex("\n\n")].splitlines()
    longest = max(len(row.title) - len(row.name) + len(row.name.rpartition(".")[2]) for row in rows)
    assert max(len(line) for line in table) <= max(width, width - 16 + longest + 1)
    for note in {row.note for row in rows} - {""}:
        assert text.count(note) == 1
        assert f"] {note}" in text


@given(name=NAMES, room=st.integers(1, 60), call=st.integers(0, 1))
def test_short_names_keep_their_last_part(name: str, room: int, call: int) -> None:
    row = LayerRow(name, call, "Linear", True)
    found = short(row, room)
    assert found.removesuffix(" (call 2)").split(".")[-1].removeprefix("…") == name.rpartition(".")[2]
    assert len(found) <= room or found.removesuffix(" (call 2)") in (name, "…" + name.rpartition(".")[2])
    assert found == row.title if len(row.title) <= room else found.startswith("…") or "." not in name


def test_a_long_network_is_shown_less_deep_and_says_so() -> None:
    rows = [*rising(200), LayerRow("network", 0, "Sequential", False, "map", relative=1.0, own=0.0, added=0.9)]
    assert fitting_depth(rows) == 3
    assert len(lines(rows)) > MOST_LINES
    text = profile_table(rows, depth=3).plain
    assert "200 rows are nested deeper than 3: --depth 4 shows them" in text
    assert "network.blocks.0.layer3 (Linear) adds most" in text
    assert fitting_depth(rows[:10]) == 4


def test_a_sorted_table_begins_with_the_largest_and_ends_soon() -> None:
    rows = rising(200)
    first, *_, last = lines(rows, sort="added")
    assert first.rows == (rows[3],)
    assert len(last.rows) == 200 - MOST_LINES
    assert lines(rows, sort="delta")[0].rows == (rows[-1],)


def test_the_sentence_says_where() -> None:
    rows = rising(10)
    said = sentence(rows, 1e-6)
    assert said.startswith(
        "network.blocks.0.layer3 (Linear) adds most: by itself it gives its output a relative Δ of 3.0"
    )
    assert said.endswith("and leaves one of 3.0e-01 in the network's output.")
    assert sentence(rows, 10.0).startswith("No layer adds to Δ")
    functions = LayerRow("a.b", 0, FUNCTIONS, True, relative=0.9, own=0.2, lasting=0.7)
    assert sentence([*rows, functions], 1e-6).startswith("What functions do before a.b adds most")
    lost = [LayerRow("a", 0, "Linear", True, relative=0.9)]
    assert sentence(lost).startswith("What each layer adds cannot be told")
    assert "leaves" not in sentence([LayerRow("a", 0, "Linear", True, relative=0.9, own=0.9)])


@pytest.mark.parametrize(("wrong", "rule"), [({"depth": 0}, "`depth`"), ({"sort": "name"}, "`sort`")])
def test_wrong_options_are_refused(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        lines(rising(3), **wrong)


@pytest.mark.parametrize("count", [1, 8, 150])
def test_the_picture_names_what_adds_most_and_no_more_than_fits(count: int) -> None:
    rows = rising(count, most=count // 2)
    figure = draw_profile(rows, 1e-3, "a network")
    [axes] = figure.axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert short(rows[count // 2], 30) in labels
    assert f"{rows[count // 2].name} (Linear) adds most" in axes.get_title("right")
    assert any("floor" in text.get_text() for text in axes.texts)
    assert len(encoded(figure, "png")) > 1000
    drawn = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(a.x1 <= b.x0 + 1 for a, b in pairwise(drawn))
    assert len(labels) >= min(count, 40)


@given(count=st.integers(1, 80), apart=st.integers(1, 9), most=st.integers(0, 79))
def test_named_places_are_apart_and_leave_no_gap(count: int, apart: int, most: int) -> None:
    rows = rising(count, most=min(most, count - 1))
    places = named_places(rows, apart)
    assert min(most, count - 1) in places
    gaps = [b - a for a, b in pairwise(places)]
    assert all(apart <= gap < 2 * apart for gap in gaps)


NETWORK = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    smooth = nn.Conv2d(1, 1, 3, padding=1)
    return nn.Sequential(smooth, nn.Sequential(nn.Identity(), nn.Identity(), nn.ReLU()), nn.MaxPool2d(2))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "net.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    small = ["profile", "net.py:build", "--input", "1x48x48", "--images", "1/f", "--count", "2"]
    return lambda *words: CliRunner().invoke(app, [*small, *words])


def test_the_command_folds_and_its_files_do_not(run: Any) -> None:
    result = run("--downscale", "2", "--json", "out.json", "--picture", "out.png")
    assert result.exit_code == 0, result.output
    assert "2 that add nothing: 1.0 to 1.1" in result.output
    assert "adds most" in result.output
    assert max(map(len, result.output.splitlines())) <= 80
    found = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in found["rows"]] == ["0", "1.0", "1.1", "1.2", "1", "2", WHOLE]
    assert all(row["relative"] is not None and row["own"] is not None for row in found["rows"])
    assert found["floor"] > 0
    assert Path("out.png").stat().st_size > 1000
    assert Path("out.svg").exists()
    unfolded = run("--downscale", "2", "--all").output
    assert "that add nothing" not in unfolded
    assert "1.1 " in unfolded
    assert "1.2 " not in run("--downscale", "2", "--depth", "1").output


def test_a_shift_of_one_pixel_shows_the_pool_and_the_stride_does_not(run: Any) -> None:
    one, stride = run("--translate", "1"), run("--translate", "stride")
    assert "shift by 1 pixel" in one.output
    assert "2 (MaxPool2d) adds most" in one.output
    assert "shift by 2 pixels" in stride.output
    assert "No layer adds to Δ" in stride.output
    assert one.exit_code == stride.exit_code == 0


def test_a_shift_up_and_left_is_profiled_as_well(run: Any) -> None:
    result = run("--translate", "-1")
    assert "shift by -1 pixel\n" in result.output
    assert "2 (MaxPool2d) adds most" in result.output
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--depth -1", "--depth (=-1)"),
        ("--sort name", "--sort (='name')"),
        ("--picture out.pdf", "--picture (='out.pdf')"),
        ("--translate 0", "--translate (='0')"),
        (
            "--translate 13",
            "--translate (='13') must be stride or numbers of pixels other than 0, at most 12 to either side",
        ),
        ("--translate -13", "--translate (='-13') must be stride or numbers of pixels other than 0, at most 12 to"),
        ("--translate nan", "--translate (='nan')"),
        ("--translate 1,2", "--translate (='1,2') must be one number here"),
        ("--translate far", "--translate (='far')"),
        ("--rotate 360", "--rotate (='360') must be angles in degrees, no multiples of 360"),
        ("--rotate 30 --translate 1", "--rotate (='30') must be left out with --translate"),
        ("--translate 1 --downscale 2", "--translate (='1') must be left out with --downscale"),
    ],
)
def test_the_command_refuses_in_one_line(run: Any, words: str, said: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert len(result.output.splitlines()) == 1
