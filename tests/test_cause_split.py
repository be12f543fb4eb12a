"""The shares of causes are parts of a whole or there are none; their picture and command say what was found."""

from __future__ import annotations

import io
import json
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from sesn import ScaleGrid, ScaleLift, basis_a
from sesn.tools.app import app
from sesn.tools.causes import CAUSES, causes
from sesn.tools.consoles import progress_bar
from sesn.tools.photographs import photographs
from sesn.tools.split import MOST_RISE, NOT_PRESENT, REMAINDER, CauseSplit, CauseStep, causes_table, in_words
from sesn.tools.waterfall import draw_causes


def assert_shares(found: CauseSplit) -> None:
    """They are not negative and sum to 1, or there are none and a sentence says why."""
    assert (found.shares is None) == (found.step_shares is None) == bool(found.unshared)
    if found.shares is None:
        assert found.unshared in in_words(found)
        assert found.largest == ""
    else:
        assert min(found.shares.values()) >= 0
        assert sum(found.shares.values()) == pytest.approx(1)
        assert found.shares[found.largest] == max(found.shares.values())


@st.composite
def splits(draw: st.DrawFn, most: float = 1e300) -> CauseSplit:
    """Any levels at all, and names of any length."""
    numbers = st.one_of(st.just(0.0), st.floats(1e-300 if most > 1e9 else 1e-20, most))
    levels = draw(st.lists(numbers, min_size=1, max_size=9))
    names = st.one_of(st.sampled_from([*CAUSES]), st.text("abc WΔ$", min_size=1, max_size=80))
    notes = st.sampled_from(["", "", NOT_PRESENT, "could not be switched off: " + "no reason " * 20])
    parts = [CauseStep(draw(names), draw(names), *pair, draw(notes)) for pair in pairwise(levels)]
    return CauseSplit(levels[0], None, levels[-1], draw(numbers), draw(st.floats(1e-3, 1e3)), 4, tuple(parts))


@given(splits())
def test_shares_are_parts_of_a_whole_or_there_are_none(found: CauseSplit) -> None:
    assert_shares(found)


def of_levels(*levels: float) -> CauseSplit:
    steps = tuple(CauseStep(f"cause {i}", "", *pair) for i, pair in enumerate(pairwise(levels)))
    return CauseSplit(levels[0], None, levels[-1], 1e-9, 0.5, 1, steps)


def test_a_step_that_raises_delta_has_no_share_nor_one_that_takes_it_back() -> None:
    found = of_levels(1.0, 1.25, 1.0, 0.25, 0.5)
    assert found.shares == {"cause 0": 0, "cause 1": 0, "cause 2": 0.75, "cause 3": 0, REMAINDER: 0.25}
    assert found.largest == "cause 2"


def test_causes_that_hide_one_another_have_no_shares() -> None:
    assert of_levels(1.0, 1 + MOST_RISE, 0.0).shares is not None
    found = of_levels(1.0, 1.01 + MOST_RISE, 0.0)
    assert found.shares is None
    assert "no shares are given: steps raise Δ by 51% of the observed Δ in all" in in_words(found)
    assert "share" not in [column.header for column in causes_table(found).columns]


@settings(max_examples=15, phases=[Phase.generate])  # to draw takes a while, and shrinking draws very often
@given(splits(most=1e3), st.text("abc Δ$_/", max_size=300))
def test_every_label_of_a_waterfall_fits(found: CauseSplit, title: str) -> None:
    figure = draw_causes(found, title)
    figure.draw_without_rendering()
    [axes] = figure.axes
    for text in [*axes.texts, *axes.get_yticklabels(), *figure.texts]:
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
        assert inside, (text, box, figure.bbox)


# --- the command


@pytest.mark.parametrize("words", ["", "--canvas keep"])
def test_a_network_without_scales_is_told_so_at_once(words: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\nnetwork = nn.Conv2d(3, 2, 5, padding=2)\n", encoding="utf-8"
    )
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    files = ["--json", str(out), "--picture", str(picture), "--count", "2"]
    result = CliRunner().invoke(app, ["causes", f"{tmp_path / 'net.py'}:network", *files, *words.split()])
    assert result.exit_code == 0, result.output
    reason = "1 ordinary convolution sees one scale, and no layer works at several, so there is no cause to switch off"
    assert f"it is not split into causes: {reason}" in " ".join(result.output.split())
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["causes"]["unsplit"], found["shares"], found["causes"]["steps"]) == (reason, None, [])
    assert picture.exists()


def test_the_bar_of_causes_moves_and_tells_the_time_left() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    parts: list[float] = []
    network = nn.Sequential(ScaleLift(3, 1, basis_a(ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)), nn.ReLU()).eval()
    with progress_bar(console, doing="switching causes off") as advance:

        def on_step(part: float) -> None:
            parts.append(part)
            advance(part)
            time.sleep(0.15)  # the bar is drawn ten times a second

        causes(network, photographs(1), 1 / 1.41, on_step=on_step)
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    assert len(set(re.findall(r"(\d+)%", shown))) >= 4, shown
    assert re.search(r"\d+% \d:\d\d:\d\d", shown), shown
    assert sum(parts) == pytest.approx(1)
    assert max(parts) <= 0.5
