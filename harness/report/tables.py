"""A table as entries, and the same table as Markdown and as LaTeX (booktabs)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.escapes import LATEX_TEMPLATES, TEMPLATES
from sesn.errors import UsageError
from sesn.methods import METHODS

DASH = "—"


@dataclass(frozen=True)
class TableEntry:
    """What stands in a cell, what it is sorted by, and a footnote."""

    text: str
    order: float | str | None = None
    bold: bool = False
    note: str = ""

    @property
    def sort_key(self) -> str:
        """What the page's script sorts by; text sorts as itself."""
        return self.text if self.order is None else str(self.order)


def absent(reason: str) -> TableEntry:
    """A dash with its reason."""
    return TableEntry(DASH, "", note=reason)


def numeric(value: float, text: str, reason: str, *, bold: bool = False) -> TableEntry:
    """A number in the form of `text`, such as "{:.2f}"; where there is none, a dash with the reason."""
    return absent(reason) if math.isnan(value) else TableEntry(text.format(value), value, bold)


def rounded_count(value: float) -> str:
    """A number of parameters as the paper prints it: 495 K, 11.0 M."""
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value / 1e3:.0f} K"


def rules(frame: Any) -> tuple[int, ...]:
    """A rule above the first SESN and one below the last, as in the paper; and one above the later methods."""
    own = [place for place, method in enumerate(dict.fromkeys(frame["method"])) if METHODS[method].ours]
    return ((own[0], own[-1] + 1) if own else ()) + rule_above_later(frame)


def rule_above_later(frame: Any) -> tuple[int, ...]:
    """A rule above the first method that appeared after the paper, if there is one."""
    return tuple(n for n, method in enumerate(dict.fromkeys(frame["method"])) if METHODS[method].later)[:1]


def named(method: str, label: str = "") -> TableEntry:
    """A method's name at the beginning of its line; a later one has a note that says so, and who published it."""
    row = METHODS[method]
    note = f"{row.source.citation}; later than the paper" if row.later else ""
    return TableEntry(label or row.label, note=note)


@dataclass(frozen=True)
class Table:
    """A heading and lines of entries.

    Attributes:
        rules: the numbers of the lines that stand under a rule.
        words: whether the entries are sentences, which are wrapped.
    """

    heading: tuple[str, ...]
    lines: tuple[tuple[TableEntry, ...], ...]
    rules: tuple[int, ...] = ()
    words: bool = False

    def __post_init__(self) -> None:
        for line in self.lines:
            if len(line) != len(self.heading):
                raise UsageError(f"a line has {len(line)} entries under a heading of {len(self.heading)}")

    @property
    def notes(self) -> list[str]:
        """The footnotes, each once, in order."""
        return list(dict.fromkeys(entry.note for line in self.lines for entry in line if entry.note))

    def mark(self, entry: TableEntry) -> str:
        """The number of an entry's footnote, or nothing."""
        return str(self.notes.index(entry.note) + 1) if entry.note else ""


def as_markdown(table: Table, title: str, captions: Sequence[str]) -> str:
    """The table with its title, caption and footnotes."""
    text = TEMPLATES.get_template("table.md.jinja").render(table=table, title=title, captions=captions)
    return text.rstrip() + "\n"


def as_latex(table: Table, title: str, captions: Sequence[str], label: str) -> str:
    r"""A `table` environment for \input, or a `longtable` of sentences, which may break over pages.

    The packages that it needs stand in its first line.
    """
    template = LATEX_TEMPLATES.get_template("table.tex.jinja")
    return template.render(table=table, title=title, captions=captions, label=label)
