"""Checks the built documentation site: `python tests/site_check.py build/docs`.

Every page must be complete by itself: scripts, styles, pictures and fonts come from the site, and links within it lead
to a page and to a heading that are there. Links to other sites are looked at for their form alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Where a page loads something from. A link in `<a>` loads nothing.
LOADING = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
#: What a `<link>` may say without that anything is loaded.
NOT_LOADED = {"canonical", "next", "prev", "author", "license", "alternate"}
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""")
ELSEWHERE = ("http:", "https:", "//")


class Page(HTMLParser):
    """What a page loads, where it leads to and the places within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        silent = tag == "link" and bool(NOT_LOADED & set(given.get("rel", "").split()))
        if given.get(LOADING.get(tag, "")) and not silent:
            self.loads.append(given[LOADING[tag]])
        self.loads += IN_STYLES.findall(given.get("style", ""))


def faults(root: Path) -> list[str]:
    """Every fault of the site, worded for a reader."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    found = [fault for path, page in pages.items() for fault in page_faults(path, page, pages)]
    for path in sorted(root.rglob("*.css")):
        loads = IN_STYLES.findall(path.read_text(encoding="utf-8"))
        found += [f"{path}: loads {address}" for address in loads if address.startswith(ELSEWHERE)]
    return [fault.replace(f"{root}/", "") for fault in found]


def page_faults(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """What is wrong with one page."""
    for address in page.loads:
        if address.startswith(ELSEWHERE):
            yield f"{path}: loads {address}"
        elif not address.startswith("data:") and not target(path, address).is_file():
            yield f"{path}: loads {address}, which is not there"
    for address in page.links:
        if fault := link_fault(path, address, pages):
            yield f"{path}: leads to {address}, {fault}"


def link_fault(path: Path, address: str, pages: dict[Path, Page]) -> str:
    """Why a link leads nowhere, or nothing."""
    parts, there = urlsplit(address), target(path, address)
    if parts.scheme:
        return "which is no address with https" if parts.scheme == "http" or not _well_formed(address) else ""
    if not there.exists():
        return "which is not there"
    absent = parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].places
    return "and that page has no such place" if absent else ""


def _well_formed(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme != "https" or "." in parts.netloc


def target(path: Path, address: str) -> Path:
    """The file that an address on a page names."""
    name = unquote(urlsplit(address).path)
    return (path.parent / name).resolve() if name else path.resolve()


if __name__ == "__main__":
    site = Path(sys.argv[1]).resolve()
    assert (site / "index.html").is_file(), f"{site} has no index.html: build it with `nox -s docs`"
    wrong = faults(site)
    sys.stdout.write("".join(f"{fault}\n" for fault in wrong) or "the site is complete by itself\n")
    sys.exit(bool(wrong))
