"""The methods as a table: what they are called, how large their networks are, and what they lack."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from sesn.methods import METHODS, Method, discover
from sesn.networks import NETWORKS, Recipe
from sesn.networks.skeleton import known_recipe


def methods_table(recipe: str = "paper") -> Table:
    """One row per method, with the parameters of its networks under a recipe; footnotes have its approach and source.

    It fits 80 columns, and folds what does not fit: nothing is cut off.
    """
    title = f"Methods ({recipe} recipe), and how many parameters their networks have"
    table = Table(title=title, box=None, padding=(0, 1, 0, 0), title_justify="left")
    chosen = known_recipe(recipe)
    notes: list[str] = []
    for name in ("key", "method"):
        table.add_column(name, overflow="fold")
    for network in NETWORKS:
        table.add_column(network, justify="right", overflow="fold")
    table.add_column("source", overflow="fold")
    discover()
    for above, row in zip([None, *METHODS.values()], METHODS.values(), strict=False):
        if above is not None and row.later and not above.later:
            table.add_section()
        cells = [_count(row, network, chosen, notes) for network in NETWORKS]
        label = Text.assemble(("●", row.colour), f" {row.label}")
        source = _footnote(_origin(row), notes) if row.source.citation else "—"
        table.add_row(row.key, label, *cells, source)
    table.caption = "\n".join(_numbered(notes))
    table.caption_justify = "left"
    return table


def _origin(row: Method) -> str:
    """Its approach, if it has one, and who published it."""
    known = row.source
    return known.citation if known.approach == "none" else f"{known.approach}: {known.citation}"


def _count(row: Method, network: str, recipe: Recipe, notes: list[str]) -> str:
    """The number of parameters, or a dash; with a footnote where something is to be said."""
    if reason := row.lacks(network, recipe):
        return "— " + _footnote(reason, notes)
    count = row.count(network, recipe)
    parts = [f"{count.total:,}"]
    if count.used != count.total:
        parts.append(_footnote(f"{row.label} on {network}: {count.used:,} of them are used", notes))
    if unpublished := row.absences.get(f"{network}/error"):
        parts.append(_footnote(f"no published error: {unpublished}", notes))
    return " ".join(parts)


def _footnote(text: str, notes: list[str]) -> str:
    if text not in notes:
        notes.append(text)
    return f"({notes.index(text) + 1})"


def _numbered(notes: Sequence[str]) -> list[str]:
    return [f"({number}) {text}" for number, text in enumerate(notes, 1)]
