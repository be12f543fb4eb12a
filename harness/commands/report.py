"""The command `report`: rows, published numbers and the error budget, joined into figures, tables and a page."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.experiments import Methods
from sesn.tools.consoles import consoles
from sesn.tools.options import Force

if TYPE_CHECKING:
    from rich.console import Console

    from harness.report.rendering import Material
    from sesn.tools.files import GeneratedFiles

commands = typer.Typer()
ERROR_BUDGET = Path("reports/budget/published.json")


@commands.command()
def report(
    only: Annotated[
        str | None, typer.Option(metavar="ID", help="One figure or table; an unknown ID lists all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, tables, README.md and index.html.")] = Path("reports"),
    rows: Annotated[Path, typer.Option(help="Folder of the rows.")] = Path("reports/rows"),
    error_budget: Annotated[Path, typer.Option(help="The JSON of `sesn budget`.")] = ERROR_BUDGET,
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
        render(out, rows, console, only, error_budget, keys, force=force)


def render(
    out: Path,
    rows: Path,
    console: Console,
    only: str | None = None,
    error_budget: Path = ERROR_BUDGET,
    methods: tuple[str, ...] = (),
    *,
    force: bool = False,
) -> None:
    """Write the report on some rows, of some methods or of all, and say what was odd."""
    from harness.report.artefacts import artefact
    from harness.report.page import remove_outdated, report_files, write_files

    def say(line: str, style: str | None = None) -> None:
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    if only is not None:
        artefact(only)
    ours = check_folder(out, only, force=force)
    found = replace(material(rows, error_budget), methods=methods)
    _check_rows(found, rows, out)
    for note in found.notes:
        say(f"note: {note}", "yellow")
    files = report_files(found, out, rows, only)
    ours.add(files)
    written = write_files(files, out)
    if outdated := remove_outdated(files, out, ours.names, only):
        ours.discard(path.relative_to(out).as_posix() for path in outdated)
        say(f"removed what these rows do not give: {', '.join(path.name for path in outdated)}")
    say(f"wrote {len(written)} files into {out}: {'index.html and README.md' if only is None else only}")
    if not files:
        say(f"{only} has no rows yet; run {artefact(str(only)).run}")


def check_folder(out: Path, only: str | None = None, *, force: bool) -> GeneratedFiles:
    """The folder's own files, after it is known that the report would replace no others."""
    from harness.report.artefacts import ARTEFACTS, artefact
    from harness.report.page import file_names
    from sesn.tools.files import GeneratedFiles

    chosen = ARTEFACTS.values() if only is None else [artefact(only)]
    names = [name for one in chosen for name in file_names(one)]
    ours = GeneratedFiles(out)
    ours.check(names if only is not None else ["README.md", "index.html", *names], force=force)
    return ours


def _check_rows(found: Material, rows: Path, out: Path) -> None:
    """A folder given by mistake must not empty a report that is there."""
    from sesn._checks import require

    there = bool(len(found.rows)) or not (out / "index.html").exists()
    rule = "a folder with rows" + ("" if rows.is_dir() else ", and there is no such folder")
    remedy = f"the report in {out} would be emptied: give the folder that has the rows, or another `out`"
    require(there, "rows", str(rows), rule, remedy)


def material(rows: Path, error_budget: Path) -> Material:
    """All that the report is made of, with what was odd about it."""
    from harness.experiments import EXPERIMENTS
    from harness.paper import published
    from harness.report.rendering import Material
    from harness.store.frame import load

    with warnings.catch_warnings(record=True) as odd:
        warnings.simplefilter("always")
        frame = load(rows)
    steps, figures = _waterfall(error_budget)
    notes = tuple(dict.fromkeys(str(one.message) for one in odd))
    return Material(frame, published(), EXPERIMENTS, steps, figures, notes, {"error-budget": error_budget})


def _waterfall(path: Path) -> tuple[Any, dict[str, Any]]:
    """The steps of the error budget as rows, and their figure as `sesn budget` draws it."""
    import pandas as pd

    from sesn._checks import require

    if not path.exists():
        return pd.DataFrame(), {}
    from harness.report.waterfall import budget_rows
    from sesn.tools.causes import stored_budget
    from sesn.tools.drawing import Drawing
    from sesn.tools.waterfall import draw_budget

    try:
        require(path.is_file(), "file", str(path), "a regular file")  # to read a pipe may take for ever
        document = json.loads(path.read_text(encoding="utf-8"))
        figure = draw_budget(stored_budget(document["budget"]), Path(document["settings"]["target"]).name)
        return budget_rows(document), {"error-budget": Drawing(figure)}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        from sesn.errors import UsageError

        raise UsageError(f"`error_budget` (={path}) must be what `sesn budget --json` writes; {error!r}") from error
