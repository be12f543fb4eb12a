"""Any text as Markdown, LaTeX or CSV that shows it and does nothing else. (HTML is escaped by the templates.)"""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sesn.tools.consoles import visible

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~$])")
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    # At the beginning of a line of a table it would be an option of the command before.
    "[": "{[}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # \textquotedbl would need another font encoding than LaTeX's own.
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\to$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "−": r"$-$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "·": r"$\cdot$",
    "Δ": r"$\Delta$",
    "σ": r"$\sigma$",
    "—": "---",
    "–": "--",
    "…": r"\ldots{}",
    "é": r"\'e",
}


#: A spreadsheet takes text that begins so for a formula.
_FORMULA = tuple("=+-@\t\r")


def as_csv(frame: Any) -> str:
    """A frame of pandas as CSV whose texts are no formulas."""
    texts = {name: frame[name].map(_cell) for name in frame.select_dtypes(exclude="number")}
    # Twelve digits: the last of sixteen differ from one machine to another.
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n", float_format="%.12g"))


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def markdown(text: str) -> str:
    """Text for a cell or a paragraph of Markdown: one line, no markup, no HTML."""
    return _MARKDOWN.sub(r"\\\1", _plain(text)).replace("&", "&amp;").replace("\\<", "&lt;").replace("\\>", "&gt;")


def latex(text: str) -> str:
    """Text for LaTeX; a character that plain LaTeX lacks is shown by its number."""
    return "".join(_LATEX.get(c) or (c if c.isascii() else rf"\texttt{{U+{ord(c):04X}}}") for c in _plain(text))


def _plain(text: str) -> str:
    """In one line, without control characters."""
    return " ".join(visible(" ".join(str(text).split())).split())


#: The page, the README and the tables. Only HTML escapes by itself.
TEMPLATES = Environment(
    loader=PackageLoader("harness.report"),
    autoescape=lambda name: bool(name) and ".html" in str(name),
    undefined=StrictUndefined,
    # What is neither HTML nor Markdown of our own making shows all that is in it.
    finalize=lambda value: visible(value) if type(value) is str else value,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {"markdown": markdown, "latex": latex}
#: LaTeX is full of braces.
LATEX_TEMPLATES = TEMPLATES.overlay("<%", "%>", "<<", ">>", "<#", "#>")
