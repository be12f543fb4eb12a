"""The report as files: figures, tables, README.md and index.html. Everything is made before anything is written."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.report.artefacts import ARTEFACTS, BUDGET_COMMAND, Artefact, artefact
from harness.report.escapes import as_csv, markdown
from harness.report.findings import VERDICTS
from harness.report.rendering import Material, Rendered, could_not, rendered, summary
from harness.report.tables import as_latex, as_markdown
from sesn.tools.consoles import visible
from sesn.tools.drawing import SMALL, encoded
from sesn.tools.files import check_writable, replacing

FIGURES = ("svg", "pdf", "png")
TABLES = ("md", "tex")
#: What a reader needs to know before the summary.
WORDS = (
    "Δ, the equivariance error, compares two orders: rescale the image and apply the network, or apply the network and "
    "rescale its output. It is the squared distance of the two results relative to their size: 0 means that they "
    "agree. Published windows are kernels cut off as in the released networks; wide windows reach to 4.5 σ.",
    "The budget of a run stands in brackets: smoke only shows that everything works, lite is what two cores can do in "
    "hours, paper is as published.",
)
#: Folders that other commands write, what is in them, and how to write them again.
OTHERS = (
    (
        "first-look",
        "the basis, and Δ of one layer on embedded photographs",
        "python docs/pictures/first_look.py reports/first-look --measure",
        "first-look.png",
    ),
    (
        "measurement",
        "what an observed Δ is made of, one ingredient at a time",
        "python docs/pictures/measurement.py reports/measurement --measure",
        "measurement.png",
    ),
    (
        "budget",
        "Δ of two layers with the published STL-10 kernels, split into causes",
        BUDGET_COMMAND,
        "published.png",
    ),
    (
        "budget",
        "Δ of one layer with wide windows at 3.97×, split into causes",
        "sesn budget docs/examples/network.py:wide --input 3x96x96 --downscale 3.97241 --images stl10 --count 16 "
        "--ends inside --picture reports/budget/wide.png --json reports/budget/wide.json",
        "wide.png",
    ),
    (
        "tune",
        "kernels against their cost",
        "sesn tune --picture reports/tune/tune.png --json reports/tune/tune.json",
        "tune.png",
    ),
    (
        "bench",
        "step times of the layers against the textbook form",
        "python -m harness.bench layers > reports/bench/layers.txt",
        "layers.txt",
    ),
    (
        "bench",
        "training steps of every method's MNIST-scale network",
        "python -m harness.bench methods > reports/bench/methods.txt",
        "methods.txt",
    ),
)

_ENVIRONMENT = Environment(
    loader=PackageLoader("harness.report"),
    autoescape=lambda name: not (name or "").startswith("README"),
    undefined=StrictUndefined,
    # What is neither HTML nor Markdown of our own making shows all that is in it.
    finalize=lambda value: visible(value) if type(value) is str else value,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["markdown"] = markdown

Files = dict[str, bytes]


class Folders(NamedTuple):
    """Where the report is written, and where the rows behind it are."""

    out: Path
    rows: Path
    documents: Mapping[str, Path]

    def raw(self, experiment: str) -> Path:
        """The file of an experiment's rows."""
        return self.documents.get(experiment, self.rows / f"{experiment}.jsonl")

    def link(self, path: Path) -> str:
        """How a file of the report refers to another."""
        return quote(self.name(path))

    def name(self, path: Path) -> str:
        """The same for a reader."""
        return PurePosixPath(Path(os.path.relpath(path.resolve(), self.out.resolve()))).as_posix()


def report_files(material: Material, out: Path, rows: Path, only: str | None = None) -> Files:
    """Contents by path below `out`. With `only`, the files of that artefact, without the README and the page."""
    return report(material, out, rows, only)[0]


def report(material: Material, out: Path, rows: Path, only: str | None = None) -> tuple[Files, list[Rendered]]:
    """The same, and beside them the artefacts that could not be made."""
    found, notes = rendered(material, only)
    every, files = [], dict[str, bytes]()
    for one in found:
        shown, own = _made(one)
        every.append(shown)
        files |= own
    if only is None:
        context = page_context(every, notes, files, Folders(out, rows, material.documents))
        files["README.md"] = _ENVIRONMENT.get_template("README.md.jinja").render(**context).encode()
        files["index.html"] = (
            _ENVIRONMENT.get_template("page.html.jinja").render(**context, **_assets(context["artefacts"])).encode()
        )
    return files, [one for one in every if one.failed]


def _made(one: Rendered) -> tuple[Rendered, Files]:
    """An artefact with its files; one that cannot be written is a note, like one that cannot be drawn."""
    try:
        return one, artefact_files(one)
    except Exception as error:
        return could_not(one, error), {}


def artefact_files(one: Rendered) -> Files:
    """A figure in three formats, or a table in two, and in either case the numbers as CSV."""
    name, key = _folder(one), one.artefact.id
    if one.empty:
        return {}
    files = {f"{name}/{key}.csv": as_csv(one.frame).encode()}
    if one.drawing is not None:
        figure = one.drawing.laid_out()
        files |= {f"{name}/{key}.{kind}": encoded(figure, kind, SMALL) for kind in FIGURES}
    if one.table is not None:
        captions = [*one.captions, *one.notes]
        files[f"{name}/{key}.md"] = as_markdown(one.table, one.artefact.title, captions).encode()
        files[f"{name}/{key}.tex"] = as_latex(one.table, f"{one.artefact.title}.", captions, key).encode()
    return files


def _folder(one: Rendered) -> str:
    return f"{one.artefact.kind}s"


def page_context(every: list[Rendered], notes: list[str], files: Files, folders: Folders) -> dict[str, Any]:
    """What both templates are given: plain values, so that the templates escape all text."""
    out, rows = folders.out, folders.rows
    return {
        "artefacts": [_section(one, files, folders) for one in every],
        "summary": {VERDICTS[verdict]: lines for verdict, lines in summary(every).items()},
        "words": WORDS,
        "notes": notes,
        "nothing": all(
            one.empty and not one.failed for one in every if one.artefact.experiments and not one.artefact.command
        ),
        "others": [other for other in OTHERS if (out / other[0] / other[3]).exists()],
        "rows": (folders.name(rows), folders.link(rows)) if rows.is_dir() else None,
    }


def _section(one: Rendered, files: Files, folders: Folders) -> dict[str, Any]:
    section: dict[str, Any] = {
        **{name: getattr(one.artefact, name) for name in ("id", "title", "kind", "run")},
        **{name: getattr(one, name) for name in ("captions", "notes", "findings", "empty", "failed", "regenerate")},
        "files": [(path.rpartition(".")[2], path) for path in artefact_names(one)],
        "raw": [(key, folders.link(path)) for key in one.artefact.experiments if (path := folders.raw(key)).exists()],
        "table": one.table,
        "markdown": as_markdown(one.table, "", ()).partition("\n\n")[2] if one.table else "",
        "figure": None,
    }
    if one.drawing is not None:
        picture = base64.b64encode(files[f"{_folder(one)}/{one.artefact.id}.svg"]).decode()
        width = one.drawing.figure.get_figwidth()
        points = [(x, y, visible(text)) for x, y, text in one.drawing.placed()]
        section["figure"] = {"data": picture, "points": points, "width": round(width * 96)}
    return section


def artefact_names(one: Rendered) -> list[str]:
    """The paths of its files; none where nothing has been measured."""
    return [] if one.empty else file_names(one.artefact)


def file_names(one: Artefact) -> list[str]:
    """The paths of the files that an artefact has once it is measured."""
    kinds = (*(FIGURES if one.kind == "figure" else TABLES), "csv")
    return [f"{one.kind}s/{one.id}.{kind}" for kind in kinds]


def _assets(sections: list[dict[str, Any]]) -> dict[str, Markup]:
    """The style and the script, which are ours and need no escaping, and the policy that lets nothing else run."""
    assert _ENVIRONMENT.loader is not None
    css, js = (_ENVIRONMENT.loader.get_source(_ENVIRONMENT, f"page.{name}")[0] for name in ("css", "js"))
    # Widths stand here and not with the figures: the policy allows no styles elsewhere.
    figures = [one for one in sections if one["figure"]]
    css += "".join(f"#{one['id']} .picture {{ --width: {one['figure']['width']}px; }}\n" for one in figures)
    policy = f"default-src 'none'; style-src {_digest(css)}; script-src {_digest(js)}; img-src data:; "
    policy += "base-uri 'none'; form-action 'none'"
    return {"css": Markup(css), "js": Markup(js), "policy": Markup(policy)}


def _digest(text: str) -> str:
    """How a policy names the one text that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_files(files: Mapping[str, bytes], out: Path) -> list[Path]:
    """Write each file all or nothing, after it is known that all can be."""
    paths = {out / name: content for name, content in files.items()}
    for path in paths:
        check_writable(path)
    for path, content in paths.items():
        with replacing(path) as partial:
            partial.write_bytes(content)
    return list(paths)


def remove_outdated(
    files: Mapping[str, bytes], out: Path, ours: Collection[str], only: str | None = None
) -> list[Path]:
    """Remove the files of artefacts, or of one, that an earlier report wrote and these rows do not give any more."""
    chosen = [artefact(only)] if only is not None else list(ARTEFACTS.values())
    names = [name for one in chosen for name in file_names(one)]
    outdated = [out / name for name in names if name in ours and name not in files and (out / name).is_file()]
    for path in outdated:
        path.unlink()
    return outdated
