"""The command `report`: rows, published numbers and the causes of a Delta, joined into figures, tables and a page."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.options import Methods
from sesn.tools.consoles import consoles
from sesn.tools.options import Force

if TYPE_CHECKING:
    from rich.console import Console

    from harness.report.rendering import Material
    from sesn.tools.files import GeneratedFiles

OUT, ROWS = Path("reports"), Path("reports/rows")
CAUSES = OUT / "causes" / "published.json"


def report(
    only: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Draw only this figure or table. Give any unknown ID to see all of them."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, tables, README.md and index.html.")] = OUT,
    rows: Annotated[Path, typer.Option(help="Folder where results are stored as rows.")] = ROWS,
    causes: Annotated[Path, typer.Option(help="JSON file that `sesn causes` wrote.")] = CAUSES,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing, and list the files that are out of date.")
    ] = False,
    force: Force = False,
    methods: Methods = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only errors.")] = False,
) -> None:
    """Draw every figure and table from the stored rows and write them as files and as one page. Nothing is measured.

    The report in reports/ also updates the main claims in the README.md beside that folder, between two
    markers. Exit status: 0 if all is well, 1 if --check found files that are out of date, 2 for bad usage.
    """
    with consoles(quiet) as (console, _):
        from sesn._checks import require
        from sesn.methods import discover, method

        discover()
        asked = ",".join(methods or ())
        keys = tuple(method(name.strip()).key for name in asked.split(",") if name.strip())
        require(bool(keys) or not methods, "methods", asked, "keys of methods", "leave it out for all")
        stale = render(out, rows, console, only, causes, keys, force=force, check=check)
    for name in stale:
        typer.echo(f"not what the rows give: {os.path.normpath(out / name)}", err=True)
    if stale:
        typer.echo("`sesn report` with the same options, but without --check, updates them", err=True)
        raise typer.Exit(1)


def render(
    out: Path,
    rows: Path,
    console: Console,
    only: str | None = None,
    causes: Path = CAUSES,
    methods: tuple[str, ...] = (),
    *,
    force: bool = False,
    check: bool = False,
) -> list[str]:
    """Write the report on some rows, of some methods or of all, and say what was odd.

    To check it, write nothing and return the files below `out` that are missing, other, or not given any more. With the
    versions of constraints.txt, the same rows give the same bytes, of pictures too.
    """
    from harness.report.artefacts import artefact
    from harness.report.page import outdated_files, write_files

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    ours = check_folder(out, only, force=force or check)
    files, beside = _made(out, rows, console, only, causes, methods)
    both = {**files, **beside}
    if check:
        wrong = [name for name in both if not (out / name).is_file() or (out / name).read_bytes() != both[name]]
        say(f"{len(both) - len(wrong)} of {len(both)} files of {out} are what the rows give")
        return [*wrong, *outdated_files(files, ours, only)]
    ours.add(files)
    write_files(both, out)
    if outdated := outdated_files(files, ours, only):
        for name in outdated:
            (out / name).unlink()
        ours.discard(outdated)
        say(f"removed what these rows do not give: {', '.join(Path(name).name for name in outdated)}")
    say(f"wrote {len(files)} files into {out}: {'index.html and README.md' if only is None else only}")
    if beside:
        say("wrote the results into README.md")
    if not files:
        say(f"{only} has no rows yet; run {artefact(str(only)).run}")
    return []


def _made(
    out: Path, rows: Path, console: Console, only: str | None, causes: Path, methods: tuple[str, ...]
) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Contents by path below `out`, and of the README beside it if this is the repository's own report."""
    from harness.report.claims import with_results
    from harness.report.page import report_files

    found = replace(material(rows, causes, out), methods=methods)
    _check_rows(found, rows, out)
    for note in found.notes:
        console.print(f"note: {note}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    if not len(found.rows):
        console.print(f"note: nothing is stored in {rows} yet", style="yellow", highlight=False, soft_wrap=True)
    files = report_files(found, out, rows, only)
    readme = Path("README.md")
    own = (out.resolve(), rows.resolve()) == (OUT.resolve(), ROWS.resolve()) and only is None and not methods
    if not own or not readme.is_file() or readme.is_symlink():
        return files, {}
    text = readme.read_bytes().decode()
    results = with_results(text, files["tables/scorecard.csv"], OUT.name)
    return files, {} if results == text else {"../README.md": results.encode()}


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


def material(rows: Path, causes: Path, out: Path = OUT) -> Material:
    """All that the report is made of, with what was odd about it and the options that name its folders."""
    from harness.experiments import EXPERIMENTS
    from harness.paper import published
    from harness.report.rendering import Material
    from harness.store.frame import load

    with warnings.catch_warnings(record=True) as odd:
        warnings.simplefilter("always")
        frame = load(rows)
    steps, figures = _waterfall(causes)
    notes = tuple(dict.fromkeys(str(one.message) for one in odd))
    store, place = f" --rows {quote(str(rows))}" * (rows != ROWS), f" --out {quote(str(out))}" * (out != OUT)
    folders = (store, store + place)
    return Material(frame, published(), EXPERIMENTS, steps, figures, notes, {"causes": causes}, folders=folders)


def _waterfall(path: Path) -> tuple[Any, dict[str, Any]]:
    """The steps from an observed Delta to what remains as rows, and their figure as `sesn causes` draws it."""
    import pandas as pd

    if not path.exists():
        return pd.DataFrame(), {}
    from harness.report.causes import causes_rows
    from sesn.tools.drawing import Drawing
    from sesn.tools.split import stored_causes
    from sesn.tools.waterfall import draw_causes

    split, document = stored_causes(path)
    figure = draw_causes(split, Path(document["settings"]["target"]).name)
    return causes_rows(split, document), {"causes": Drawing(figure)}
