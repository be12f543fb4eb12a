"""The page in a real browser: quiet, self-contained, sortable, legible in the dark, on a phone and on paper.

`SESN_SCREENSHOTS` names a folder to leave pictures in, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic

from harness.commands.report import material
from harness.report.page import report_files, write_files

ROOT = Path(__file__).resolve().parents[1]
CAUSES = ROOT / "reports" / "causes" / "published.json"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed; `nox -s browser` does it")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path; `nox -s browser` installs it"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("reports")
    rows = synthetic.store(out / "rows", synthetic.results())
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

    def __init__(self, browser: Any, address: str, width: int = 1200, **options: Any) -> None:
        self.page = browser.new_context(viewport={"width": width, "height": 900}, **options).new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def picture(self, name: str) -> None:
        if folder := os.environ.get("SESN_SCREENSHOTS"):
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visit]:
    found = Visit(browser, address)
    yield found
    found.page.context.close()


def test_it_is_quiet_and_asks_for_nothing(visit: Visit, address: str) -> None:
    visit.picture("light")
    assert visit.said == []
    assert [url for url in visit.asked if not url.startswith("data:")] == [address]
    broken = "[...document.images].filter(image => !image.naturalWidth).length"
    assert visit.page.evaluate(broken) == 0
    assert visit.page.evaluate("document.images.length") == 7


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


def column(visit: Visit, section: str, index: int) -> list[str]:
    rows = f"[...document.querySelectorAll('#{section} tbody tr')]"
    return visit.page.evaluate(f"{rows}.map(row => row.cells[{index}].dataset.value)")


def test_tables_sort_by_number_both_ways(visit: Visit) -> None:
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
    visit.page.locator("#stl10 thead button").first.focus()
    visit.page.keyboard.press("Enter")
    names = column(visit, "stl10", 0)
    assert names[0] == "DSS"
    assert names[-1] == "WRN"


def test_links_within_the_page_and_to_files_resolve(visit: Visit, address: str) -> None:
    links = visit.page.evaluate("[...document.links].map(link => link.href)")
    files = {link.partition("#")[0] for link in links} - {address}
    assert len(files) > 40
    assert [link for link in files if not Path(link.removeprefix("file://")).exists()] == []
    anchors = {link.partition("#")[2] for link in links if link.startswith(address + "#")}
    assert [name for name in anchors if visit.page.locator(f"#{name}").count() != 1] == []


def test_the_pointer_finds_the_numbers_of_a_point(visit: Visit) -> None:
    picture = visit.page.locator("#figure-2 .picture")
    picture.scroll_into_view_if_needed()
    points = visit.page.evaluate("JSON.parse(document.querySelector('#figure-2 .picture').dataset.points)")
    box = picture.bounding_box()
    assert box is not None
    x, y, text = points[0]
    visit.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    tip = visit.page.locator("#tip")
    assert tip.is_visible()
    assert "median" in tip.inner_text()
    assert tip.inner_text() in {point[2] for point in points}
    assert text
    visit.page.mouse.move(0, 0)
    assert not tip.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_nothing_overflows_and_text_has_contrast(browser: Any, address: str, width: int, scheme: str) -> None:
    visit = Visit(browser, address, width, color_scheme=scheme)
    visit.picture(f"{scheme}-{width}")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    for where in ("body", ".caption p", "main a", "td", "thead button", "code", "h2"):
        assert contrast(visit, where) >= 4.5, where
    visit.page.context.close()


def contrast(visit: Visit, selector: str) -> float:
    """Of the text's colour with the first ground behind it that is not transparent (WCAG 2)."""
    script = """element => {
        const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
        let ground = element;
        while (numbers(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
        return [numbers(getComputedStyle(element).color), numbers(getComputedStyle(ground).backgroundColor)];
    }"""
    lights = sorted(luminance(colour[:3]) for colour in visit.page.locator(selector).first.evaluate(script))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(colour: list[float]) -> float:
    parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_on_paper_there_is_no_navigation_and_no_scrolling(visit: Visit) -> None:
    visit.page.emulate_media(media="print", color_scheme="dark")
    visit.page.set_viewport_size({"width": 700, "height": 900})  # A4 within its margins
    visit.picture("print")
    assert not visit.page.locator("nav").is_visible()
    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    # A table that was scrolled before printing would draw a sticky column over the others.
    sticky = "[...document.querySelectorAll('th')].filter(one => getComputedStyle(one).position === 'sticky').length"
    assert visit.page.evaluate(sticky) == 0
    wide = "[...document.querySelectorAll('table, .picture')].filter(one => one.scrollWidth > innerWidth).length"
    assert visit.page.evaluate(wide) == 0


def test_an_empty_store_has_a_page_too(browser: Any, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    write_files(report_files(material(rows, tmp_path / "none.json"), tmp_path, rows), tmp_path)
    visit = Visit(browser, (tmp_path / "index.html").as_uri(), 375)
    visit.picture("empty")
    assert visit.said == []
    assert visit.page.get_by_text("Nothing has been measured yet.").is_visible()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375
    visit.page.context.close()
