"""The command `report`: rows, published numbers and the causes of a Delta, joined into figures, tables and a page."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.options import Methods
from sesn.tools.consoles import consoles
from sesn.tools.options import Force

if TYPE_CHECKING:
    from rich.console import Console

    from harness.report.rendering import Material
    from sesn.tools.files import GeneratedFiles

CAUSES = Path("reports/causes/published.json")


def report(
    only: Annotated[
        str | None, typer.Option(metavar="ID", help="One figure or table; an unknown ID lists all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, tables, README.md and index.html.")] = Path("reports"),
    rows: Annotated[Path, typer.Option(help="Folder of the rows.")] = Path("reports/rows"),
    causes: Annotated[Path, typer.Option(help="The JSON of `sesn causes`.")] = CAUSES,
    force: Force = False,
    methods: Methods = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
) -> None:
    """Draw every figure and table from the rows, and write them as files and as one page; nothing is measured.

    Exit status: 0 all is well, 2 bad usage.
    """
    with consoles(quiet) as (console, _):
        from sesn._checks import require
        from sesn.methods import discover, method

        discover()
        asked = ",".join(methods or ())
        keys = tuple(method(name.strip()).key for name in asked.split(",") if name.strip())
        require(bool(keys) or not methods, "methods", asked, "keys of methods", "leave it out for all")
        render(out, rows, console, only, causes, keys, force=force)


def render(
    out: Path,
    rows: Path,
    console: Console,
    only: str | None = None,
    causes: Path = CAUSES,
    methods: tuple[str, ...] = (),
    *,
    force: bool = False,
) -> None:
    """Write the report on some rows, of some methods or of all, and say what was odd."""
    from harness.report.artefacts import artefact
    from harness.report.page import remove_outdated, report_files, write_files

    def say(line: str, style: str | None = None) -> None:
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    ours = check_folder(out, only, force=force)
    found = replace(material(rows, causes), methods=methods)
    _check_rows(found, rows, out)
    for note in found.notes:
        say(f"note: {note}", "yellow")
    files = report_files(found, out, rows, only)
    ours.add(files)
    written = write_files(files, out)
    if outdated := remove_outdated(files, ours, only):
        say(f"removed what these rows do not give: {', '.join(path.name for path in outdated)}")
    say(f"wrote {len(written)} files into {out}: {'index.html and README.md' if only is None else only}")
    if not files:
        say(f"{only} has no rows yet; run {artefact(str(only)).run}")


def check_folder(out: Path, only: str | None = None, *, force: bool) -> GeneratedFiles:
    """The folder's own files, after it is known that the report would replace no others."""
    from harness.report.page import possible_files
    from sesn.tools.files import GeneratedFiles

    ours = GeneratedFiles(out)
    ours.check([*(() if only else ("README.md", "index.html")), *possible_files(only)], force=force)
    return ours


def _check_rows(found: Material, rows: Path, out: Path) -> None:
    """A folder given by mistake must not empty a report that is there."""
    from sesn._checks import require

    there = bool(len(found.rows)) or not (out / "index.html").exists()
    rule = "a folder with rows" + ("" if rows.is_dir() else ", and there is no such folder")
    remedy = f"the report in {out} would be emptied: give the folder that has the rows, or another `out`"
    require(there, "rows", str(rows), rule, remedy)


def material(rows: Path, causes: Path) -> Material:
    """All that the report is made of, with what was odd about it."""
    from harness.experiments import EXPERIMENTS
    from harness.paper import published
    from harness.report.rendering import Material
    from harness.store.frame import load

    with warnings.catch_warnings(record=True) as odd:
        warnings.simplefilter("always")
        frame = load(rows)
    steps, figures = _waterfall(causes)
    notes = tuple(dict.fromkeys(str(one.message) for one in odd))
    return Material(frame, published(), EXPERIMENTS, steps, figures, notes, {"causes": causes})


def _waterfall(path: Path) -> tuple[Any, dict[str, Any]]:
    """The steps from an observed Delta to what remains as rows, and their figure as `sesn causes` draws it."""
    import pandas as pd

    if not path.exists():
        return pd.DataFrame(), {}
    from harness.report.causes import causes_rows
    from sesn.tools.causes import stored_causes
    from sesn.tools.drawing import Drawing
    from sesn.tools.waterfall import draw_causes

    split, document = stored_causes(path)
    figure = draw_causes(split, Path(document["settings"]["target"]).name)
    return causes_rows(split, document), {"causes": Drawing(figure)}
