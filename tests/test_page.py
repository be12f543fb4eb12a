"""The page in a real browser: understood on its first screen, folded, quiet, sortable, legible in the dark, on a phone
and on paper.

`SESN_SCREENSHOTS` names a folder to leave pictures in, to be looked at.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic

from harness.commands.report import material
from harness.report import artefacts
from harness.report.page import report_files, write_files
from sesn.tools.drawing import Frame

ROOT = Path(__file__).resolve().parents[1]
CAUSES = ROOT / "reports" / "causes" / "published.json"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; `nox -s browser` does it")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path; `nox -s browser` installs it"),
]
LONGEST = 12_000
FRAME = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><circle cx="{}" cy="10" r="9"/></svg>'
OPEN_ALL = "document.querySelectorAll('main details').forEach(fold => { fold.open = true; })"


def moving(draw: Any) -> Any:
    """A figure with three frames of an animation."""
    frames = tuple(Frame(FRAME.format(10 * place).encode(), label=f"{place}") for place in (1, 2, 3))
    return lambda frame: replace(draw(frame), frames=frames)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page on made-up rows, one of whose figures moves."""
    out = tmp_path_factory.mktemp("reports")
    rows = synthetic.store(out / "rows", synthetic.results())
    basis = artefacts.ARTEFACTS["basis"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(artefacts.ARTEFACTS, "basis", replace(basis, draw=moving(basis.draw)))
        write_files(report_files(material(rows, CAUSES), out, rows), out)
    return (out / "index.html").as_uri()


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page on the rows of the repository."""
    out, rows = tmp_path_factory.mktemp("committed"), ROOT / "reports" / "rows"
    write_files(report_files(material(rows, CAUSES), out, rows), out)
    return (out / "index.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Visit:
    """An opened page, and what it said and asked for."""

    def __init__(self, browser: Any, address: str, width: int = 1280, **options: Any) -> None:
        self.page = browser.new_context(viewport={"width": width, "height": 800}, **options).new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_error: object) -> None:
        self.page.context.close()

    def picture(self, name: str, *, full: bool = True) -> None:
        if folder := os.environ.get("SESN_SCREENSHOTS"):
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=full)

    def until(self, expression: str) -> None:
        """Wait for something to become true. (The page's policy forbids playwright's own way.)"""
        for _ in range(50):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(expression)

    def box(self, selector: str) -> dict[str, float]:
        """Where the first such element is, in pixels of the screen."""
        found = self.page.locator(selector).first.bounding_box()
        assert found is not None, selector
        return dict(found)


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    with Visit(browser, address) as found:
        yield found


def test_it_is_quiet_and_asks_for_nothing(visit: Visit, address: str) -> None:
    visit.picture("light")
    assert visit.said == []
    assert [url for url in visit.asked if not url.startswith("data:")] == [address]
    broken = "[...document.images].filter(image => !image.naturalWidth).length"
    assert visit.page.evaluate(broken) == 0


def test_what_is_not_its_own_does_not_run(visit: Visit) -> None:
    """Neither would it with text that escaped from a table; the page's own styles hold all the same."""
    visit.page.evaluate("""document.body.insertAdjacentHTML(
        'beforeend', '<img id="foreign" src="data:,x" style="opacity: 0.5" onerror="window.ran = 1">')""")
    visit.page.wait_for_timeout(500)
    assert visit.page.evaluate("window.ran") is None
    assert visit.page.evaluate("getComputedStyle(document.getElementById('foreign')).opacity") == "1"
    assert any("Content Security Policy" in said for said in visit.said)
    width = "getComputedStyle(document.querySelector('#figure-2 .picture')).getPropertyValue('--width')"
    assert visit.page.evaluate(width).endswith("px")


# --- the first screen, on the rows of the repository


def test_the_first_screen_has_the_scorecard_and_the_picture_that_matters(browser: Any, committed: str) -> None:
    with Visit(browser, committed) as visit:
        visit.picture("first", full=False)
        assert visit.said == []
        for selector in ("h1", ".lead", "#scorecard h2", ".counts", ".scorecard tbody tr:nth-child(5)"):
            box = visit.box(selector)
            assert 0 <= box["y"] < box["y"] + box["height"] <= 800, selector
        assert visit.box("#scorecard .artefact .picture")["y"] < 600


def test_the_page_is_short_with_its_details_folded(browser: Any, committed: str) -> None:
    with Visit(browser, committed) as visit:
        visit.picture("committed")
        assert visit.page.evaluate("document.documentElement.scrollHeight") <= LONGEST


@pytest.mark.parametrize("opened", [False, True])
def test_nothing_is_said_twice(browser: Any, committed: str, opened: bool) -> None:
    with Visit(browser, committed) as visit:
        if opened:
            visit.page.evaluate(OPEN_ALL)
        lines = visit.page.locator("main").inner_text().splitlines()
    sentences = [part for line in lines for part in re.split(r"(?<=[.!?])\s+", line) if part.endswith(".")]
    counts = Counter(part for part in sentences if len(part.split()) > 6)
    assert len(counts) > 10
    assert [part for part, count in counts.items() if count > 1] == []


# --- folds and links


def test_details_are_folded_and_open_with_a_click(visit: Visit) -> None:
    for selector in ("#figure-2 .source", "#differences", ".scorecard details", ".waiting"):
        fold = visit.page.locator(selector).first
        inside = fold.locator(":scope > :not(summary)").first
        assert not inside.is_visible(), selector
        fold.locator("summary").first.click()
        assert inside.is_visible(), selector


def test_what_is_folded_under_a_figure_says_all_about_it(visit: Visit) -> None:
    fold = visit.page.locator("#delta-depth .source")
    assert fold.locator("summary").inner_text() == "3 images × 2 weight draws, lite budget, Synthetic CPU"
    fold.locator("summary").click()
    told = fold.inner_text()
    assert "delta-depth: lite budget; 2 weight draws; 3 images of stl10; Synthetic CPU, 2 threads, torch 0.0" in told
    assert "rows of delta-depth" in told
    assert "sesn report --only delta-depth" in told


@pytest.mark.parametrize("target", ["differences", "configuration-mnist", "claim-depth", "figure-2"])
def test_a_deep_link_opens_its_fold_and_shows_it(browser: Any, address: str, target: str) -> None:
    with Visit(browser, f"{address}#{target}") as visit:
        visit.until(f"Math.abs(document.getElementById('{target}').getBoundingClientRect().top - 150) < 200")
        assert visit.page.locator(f"#{target}").locator(":is(table, .picture, blockquote)").first.is_visible()
        visit.page.evaluate("location.hash = 'learning-curves'")
        visit.page.locator("#learning-curves .picture").wait_for(state="visible", timeout=5000)


def test_links_within_the_page_and_to_files_resolve(visit: Visit, address: str) -> None:
    links = visit.page.evaluate("[...document.links].map(link => link.href)")
    files = {link.partition("#")[0] for link in links} - {address}
    assert len(files) > 40
    assert [link for link in files if not Path(link.removeprefix("file://")).exists()] == []
    anchors = {link.partition("#")[2] for link in links if link.startswith(address + "#")}
    assert [name for name in anchors if visit.page.locator(f"#{name}").count() != 1] == []


# --- the contents


def test_the_contents_stay_beside_the_text_and_mark_the_place(visit: Visit) -> None:
    current = visit.page.locator("nav [aria-current]")
    assert current.inner_text() == "Scorecard"
    visit.page.evaluate("document.getElementById('methods').scrollIntoView({ behavior: 'instant' })")
    visit.until("document.querySelector('nav [aria-current]').innerText !== 'Scorecard'")
    assert current.count() == 1
    assert current.get_attribute("href") in ("#methods", "#table-1")
    assert visit.box("nav")["y"] == 0
    visit.page.get_by_role("link", name="Back to top").click()
    visit.until("scrollY === 0")


def test_on_a_phone_the_contents_are_a_fold_above_the_text(browser: Any, address: str) -> None:
    with Visit(browser, address, 375) as visit:
        link = visit.page.locator("nav a[href='#methods']")
        assert not link.is_visible()
        visit.page.locator("nav summary").click()
        assert link.is_visible()
        link.click()
        assert not link.is_visible()
        visit.until("document.getElementById('methods').getBoundingClientRect().top < 200")
        assert visit.box("nav")["y"] == 0


# --- tables


def column(visit: Visit, section: str, index: int) -> list[str]:
    rows = f"[...document.querySelectorAll('#{section} tbody tr')]"
    return list(visit.page.evaluate(f"{rows}.map(row => row.cells[{index}].dataset.value)"))


def test_tables_sort_by_number_both_ways(visit: Visit) -> None:
    visit.page.locator("#stl10 summary").first.click()
    button = visit.page.locator("#stl10 thead button").nth(1)
    button.click()
    values = [float(value) for value in column(visit, "stl10", 1) if value]
    assert values == sorted(values)
    assert visit.page.locator("#stl10 thead th").nth(1).get_attribute("aria-sort") == "ascending"
    button.click()
    shown = column(visit, "stl10", 1)
    values = [float(value) for value in shown if value]
    assert values == sorted(values, reverse=True)
    assert shown[-1] == ""  # what has no number stands last both ways


def test_tables_sort_by_name_with_the_keyboard(visit: Visit) -> None:
    visit.page.locator("#stl10 summary").first.click()
    visit.page.locator("#stl10 thead button").first.focus()
    visit.page.keyboard.press("Enter")
    names = column(visit, "stl10", 0)
    assert names[0] == "DSS"
    assert names[-1] == "WRN"


def test_the_first_column_of_a_wide_table_stays_in_sight(browser: Any, address: str) -> None:
    with Visit(browser, address, 375) as visit:
        visit.page.evaluate("document.getElementById('configuration-mnist').open = true")
        scroll, first = "#configuration-mnist .scroll", "#configuration-mnist tbody th"
        before = visit.box(first)["x"]
        moved = visit.page.locator(scroll).evaluate("box => (box.scrollLeft = 120)")
        assert moved == visit.page.locator(scroll).evaluate("box => box.scrollLeft")
        assert visit.box(first)["x"] == pytest.approx(before, abs=1)
        assert visit.box("#configuration-mnist tbody td")["x"] < before + visit.box(first)["width"]


# --- pictures


def test_the_pointer_finds_the_numbers_of_a_point(visit: Visit) -> None:
    picture = visit.page.locator("#figure-2 .picture")
    picture.scroll_into_view_if_needed()
    points = visit.page.evaluate("JSON.parse(document.querySelector('#figure-2 .picture').dataset.points)")
    box = visit.box("#figure-2 .picture")
    x, y, _ = points[0]
    visit.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    tip = visit.page.locator("#tip")
    assert tip.is_visible()
    assert "median" in tip.inner_text()
    assert tip.inner_text() in {point[2] for point in points}
    visit.page.mouse.move(0, 0)
    assert not tip.is_visible()


def frames(visit: Visit) -> set[int]:
    """The frames that are shown within some seconds."""
    place = "[...document.querySelectorAll('#basis .frame')].findIndex(one => !one.hidden)"
    seen = set()
    for _ in range(12):
        seen.add(int(visit.page.evaluate(place)))
        visit.page.wait_for_timeout(250)
    return seen


def test_an_animation_moves_and_pauses(visit: Visit) -> None:
    button = visit.page.locator("#basis .player")
    assert not visit.page.locator("#basis .still").is_visible()
    assert frames(visit) == {0, 1, 2}
    assert button.inner_text() == "Pause"
    button.click()
    assert len(frames(visit)) == 1
    assert button.inner_text() == "Play"


def test_an_animation_is_still_where_the_system_asks_for_less_motion(browser: Any, address: str) -> None:
    with Visit(browser, address, reduced_motion="reduce") as visit:
        assert frames(visit) == {0}
        assert visit.page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        visit.page.locator("#basis .player").click()  # it moves for who wants it
        assert len(frames(visit)) == 3


# --- every screen, and paper


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_nothing_overflows_and_text_has_contrast(browser: Any, address: str, width: int, scheme: str) -> None:
    with Visit(browser, address, width, color_scheme=scheme) as visit:
        visit.picture(f"{scheme}-{width}")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.page.evaluate(OPEN_ALL)
        visit.picture(f"{scheme}-{width}-open")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        colours = visit.page.evaluate(COLOURS)
    assert len(colours) > 8
    faint = {where: contrast(*pair) for where, pair in colours.items() if contrast(*pair) < 4.5}
    assert faint == {}


#: The colours of every text with that of the first ground behind it that is not transparent.
COLOURS = """() => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number), found = {};
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
        let ground = element;
        while (ground && numbers(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
        const pair = [element, ground || document.body].map((one, place) =>
            numbers(getComputedStyle(one)[place ? 'backgroundColor' : 'color']).slice(0, 3));
        found[`${element.tagName} ${element.className} ${pair}`] = pair;
    }
    return found;
}"""


def contrast(*colours: list[float]) -> float:
    """Of two colours (WCAG 2)."""
    dark, light = sorted(map(luminance, colours))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: list[float]) -> float:
    parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_on_paper_everything_is_open_and_nothing_scrolls(visit: Visit) -> None:
    closed = "[...document.querySelectorAll('main details')].filter(one => !one.open).length"
    before = visit.page.evaluate(closed)
    assert before > 20
    visit.page.emulate_media(media="print", color_scheme="dark")
    visit.page.set_viewport_size({"width": 700, "height": 900})  # A4 within its margins
    visit.picture("print")
    assert visit.page.evaluate(closed) == 0
    assert not visit.page.locator("nav").is_visible()
    assert visit.page.locator("#basis .still").is_visible()
    assert not visit.page.locator("#basis .frame").first.is_visible()
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # A table that was scrolled before printing would draw a sticky column over the others.
    sticky = "[...document.querySelectorAll('th')].filter(one => getComputedStyle(one).position === 'sticky').length"
    assert visit.page.evaluate(sticky) == 0
    wide = "[...document.querySelectorAll('table, .picture')].filter(one => one.scrollWidth > innerWidth).length"
    assert visit.page.evaluate(wide) == 0
    visit.page.emulate_media(media="screen")
    visit.until(f"{closed} === {before}")


def test_an_empty_store_has_a_page_too(browser: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    write_files(report_files(material(rows, tmp_path / "none.json"), tmp_path, rows), tmp_path)
    with Visit(browser, (tmp_path / "index.html").as_uri(), 375) as visit:
        visit.picture("empty")
        assert visit.said == []
        assert visit.page.get_by_text("Nothing has been measured yet.").is_visible()
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375
