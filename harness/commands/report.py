"""The command `report`: rows, published numbers and the error budget, joined into figures, tables and a page."""

from __future__ import annotations

import json
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.consoles import consoles

if TYPE_CHECKING:
    from rich.console import Console

    from harness.files import GeneratedFiles
    from harness.report.rendering import Material

commands = typer.Typer()
ERROR_BUDGET = Path("reports/budget/published.json")
Force = Annotated[bool, typer.Option("--force", help="Replace files that sesn did not write, too.")]


@commands.command()
def report(
    only: Annotated[
        str | None, typer.Option(metavar="ID", help="One figure or table; an unknown ID lists all.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, tables, README.md and index.html.")] = Path("reports"),
    rows: Annotated[Path, typer.Option(help="Folder of the rows.")] = Path("reports/rows"),
    error_budget: Annotated[Path, typer.Option(help="The JSON of `sesn budget`.")] = ERROR_BUDGET,
    force: Force = False,
    methods: Annotated[
        list[str] | None, typer.Option("--methods", metavar="FILE.py:NAME,...", help="Show methods of your own, too.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
) -> None:
    """Draw every figure and table from the rows, and write them as files and as one page; nothing is measured.

    Exit status: 0 all is well, 1 a figure or a table could not be made, 2 bad usage.
    """
    with consoles(quiet) as (console, _):
        from sesn.methods import discover, method

        discover()
        for name in filter(None, ",".join(methods or ()).split(",")):
            method(name.strip())
        well = render(out, rows, console, only, error_budget, force=force)
    raise typer.Exit(0 if well else 1)


def render(
    out: Path,
    rows: Path,
    console: Console,
    only: str | None = None,
    error_budget: Path = ERROR_BUDGET,
    *,
    force: bool = False,
) -> bool:
    """Write the report on some rows, and say what was odd; return whether every artefact could be made."""
    from harness.report.artefacts import artefact
    from harness.report.escapes import visible
    from harness.report.page import remove_outdated, write_files
    from harness.report.page import report as made_from

    if only is not None:
        artefact(only)
    ours = check_folder(out, only, force=force)
    found = material(rows, error_budget)
    _check_rows(found, rows, out)
    for note in found.notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    files, failures = made_from(found, out, rows, only)
    ours.add(files)
    written = write_files(files, out)
    if outdated := remove_outdated(files, out, ours.names, only):
        ours.discard(path.relative_to(out).as_posix() for path in outdated)
        names = ", ".join(path.name for path in outdated)
        console.print(f"removed what these rows do not give: {names}", markup=False, highlight=False, soft_wrap=True)
    what = "index.html and README.md" if only is None else only
    console.print(f"wrote {len(written)} files into {out}: {what}", markup=False, highlight=False, soft_wrap=True)
    for failure in failures:
        where = "".join(traceback.format_exception(failure.error))
        typer.echo(visible(f"{where}error: {failure.artefact.id} {failure.failed}"), err=True)
    if not files and not failures:
        none = f"{only} has no rows yet; run {artefact(str(only)).run}"
        console.print(none, markup=False, soft_wrap=True)
    return not failures


def check_folder(out: Path, only: str | None = None, *, force: bool) -> GeneratedFiles:
    """The folder's own files, after it is known that the report would replace no others."""
    from harness.files import GeneratedFiles
    from harness.report.artefacts import ARTEFACTS, artefact
    from harness.report.page import file_names

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
    versions = {key: experiment.version for key, experiment in EXPERIMENTS.items()}
    return Material(frame, published(), versions, steps, figures, notes, {"error-budget": error_budget})


def _waterfall(path: Path) -> tuple[Any, dict[str, Any]]:
    """The steps of the error budget as rows, and their figure as `sesn budget` draws it."""
    import pandas as pd

    from sesn._checks import require

    if not path.exists():
        return pd.DataFrame(), {}
    from harness.check.budget import stored_budget
    from harness.check.waterfall import draw_budget
    from harness.drawing import Drawing
    from harness.report.waterfall import budget_rows

    try:
        require(path.is_file(), "file", str(path), "a regular file")  # to read a pipe may take for ever
        document = json.loads(path.read_text(encoding="utf-8"))
        figure = draw_budget(stored_budget(document["budget"]), Path(document["settings"]["target"]).name)
        return budget_rows(document), {"error-budget": Drawing(figure)}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        from sesn.errors import UsageError

        raise UsageError(f"`error_budget` (={path}) must be what `sesn budget --json` writes; {error!r}") from error
