"""Any text as Markdown or LaTeX that shows it and does nothing else. (HTML is escaped by the templates.)"""

from __future__ import annotations

import re

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
    "·": r"$\cdot$",
    "Δ": r"$\Delta$",
    "σ": r"$\sigma$",
    "—": "---",
    "–": "--",
    "…": r"\ldots{}",
    "é": r"\'e",
}


def markdown(text: str) -> str:
    """Text for a cell or a paragraph of Markdown: one line, no markup, no HTML."""
    return _MARKDOWN.sub(r"\\\1", _plain(text)).replace("&", "&amp;").replace("\\<", "&lt;").replace("\\>", "&gt;")


def latex(text: str) -> str:
    """Text for LaTeX; a character that plain LaTeX lacks is shown by its number."""
    return "".join(_LATEX.get(c) or (c if c.isascii() else rf"\texttt{{U+{ord(c):04X}}}") for c in _plain(text))


def _plain(text: str) -> str:
    """Without control characters and line ends."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
