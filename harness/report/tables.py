"""A table as entries, and the same table as Markdown and as LaTeX (booktabs)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.report.escapes import latex, markdown
from sesn.errors import UsageError
from sesn.methods import METHODS

DASH = "—"
#: A LaTeX table that is wider than the text is shrunk to it.
FITTING = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


@dataclass(frozen=True)
class TableEntry:
    """What stands in a cell, what it is sorted by, and a footnote."""

    text: str
    order: float | str | None = None
    bold: bool = False
    note: str = ""

    @property
    def sort_key(self) -> str:
        """For the page's script; text sorts as itself."""
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
    """A rule above the first SESN and one below the last, as in the paper."""
    own = [place for place, method in enumerate(dict.fromkeys(frame["method"])) if METHODS[method].ours]
    return (own[0], own[-1] + 1) if own else ()


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

    def shown(entry: TableEntry) -> str:
        text = markdown(entry.text)
        text = f"**{text}**" if entry.bold else text
        return f"{text} ({table.mark(entry)})" if entry.note else text

    lines = [[markdown(name) for name in table.heading], ["---", *["---:"] * (len(table.heading) - 1)]]
    lines += [[shown(entry) for entry in line] for line in table.lines]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "".join(f"\n({number}) {markdown(note)}  " for number, note in enumerate(table.notes, 1))
    caption = "".join(f"\n{markdown(line)}\n" for line in captions)
    return f"## {markdown(title)}\n\n{body}\n{caption}{notes}".rstrip() + "\n"


def as_latex(table: Table, title: str, captions: Sequence[str], label: str) -> str:
    r"""A `table` environment for \input, or a `longtable` of sentences, which may break over pages.

    The packages that it needs stand in its first line.
    """

    def shown(entry: TableEntry) -> str:
        text = latex(entry.text)
        text = rf"\textbf{{{text}}}" if entry.bold else text
        return rf"{text}\textsuperscript{{{table.mark(entry)}}}" if entry.note else text

    body = [" & ".join(latex(name) for name in table.heading) + r" \\", r"\midrule"]
    for number, line in enumerate(table.lines):
        body += [r"\midrule"] if number in table.rules and number else []
        body.append(" & ".join(shown(entry) for entry in line) + r" \\")
    notes = [rf"\par\footnotesize\textsuperscript{{{n}}} {latex(note)}" for n, note in enumerate(table.notes, 1)]
    caption = rf"\caption{{{latex(title)} {' '.join(latex(line) for line in captions)}}}\label{{tab:{label}}}"
    lines = _long(table, body, caption, notes) if table.words else _floating(table, body, caption, notes)
    return "\n".join(lines) + "\n"


def _floating(table: Table, body: list[str], caption: str, notes: list[str]) -> list[str]:
    """Numbers stand to the right."""
    columns = "l" + "r" * (len(table.heading) - 1)
    tabular = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"]
    head = [r"% \usepackage{booktabs,graphicx}", r"\begin{table}", r"\centering", caption]
    return [*head, FITTING, *tabular[:-1], tabular[-1] + "}", *notes, r"\end{table}"]


def _long(table: Table, body: list[str], caption: str, notes: list[str]) -> list[str]:
    """Sentences share the width of the text, and are not stretched; the heading stands on every page."""
    count = len(table.heading)
    width = rf"p{{\dimexpr(\linewidth-{2 * (count - 1)}\tabcolsep)/{count}}}"
    columns = rf"@{{}}*{{{count}}}{{>{{\raggedright\arraybackslash}}{width}}}@{{}}"
    head = [r"% \usepackage{array,booktabs,longtable}", r"{\small", rf"\begin{{longtable}}{{{columns}}}"]
    head += [rf"{caption} \\", r"\toprule", *body[:2], r"\endhead"]
    return [*head, *body[2:], r"\bottomrule", r"\end{longtable}", *notes, "}"]
