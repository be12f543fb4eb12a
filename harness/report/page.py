"""The report as files: figures, tables, README.md and index.html. Everything is made before anything is written."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from harness.report import claims
from harness.report.artefacts import ARTEFACTS, Artefact, artefact
from harness.report.escapes import TEMPLATES, as_csv
from harness.report.findings import WORDS
from harness.report.rendering import Material, Rendered, rendered
from harness.report.tables import as_latex, as_markdown
from sesn._files import replacing
from sesn.tools.consoles import visible
from sesn.tools.drawing import SMALL, encoded
from sesn.tools.files import GeneratedFiles, check_writable

FIGURES = ("svg", "pdf", "png")
TABLES = ("md", "tex")

#: The names of figures and tables, below the folder of the report.
OURS = re.compile(rf"(figures|tables)/[a-z0-9-]+\.({'|'.join((*FIGURES, *TABLES, 'csv'))})")

Files = dict[str, bytes]


class Folders(NamedTuple):
    """Where the report is written, and where the rows behind it are."""

    out: Path
    rows: Path
    documents: Mapping[str, Path]

    def raw(self, experiment: str) -> Path:
        """The file of an experiment's rows."""
        return self.documents.get(experiment, self.rows / f"{experiment}.jsonl")

    def name(self, path: Path) -> str:
        """How a file of the report refers to another."""
        return PurePosixPath(Path(os.path.relpath(path.resolve(), self.out.resolve()))).as_posix()


def report_files(material: Material, out: Path, rows: Path, only: str | None = None) -> Files:
    """Contents by path below `out`. With `only`, the files of that artefact, without the README and the page."""
    every, notes = rendered(material, only)
    files = {path: content for one in every for path, content in artefact_files(one).items()}
    if only is None:
        context = page_context(every, notes, files, Folders(out, rows, material.documents))
        files["README.md"] = TEMPLATES.get_template("README.md.jinja").render(**context).encode()
        page = TEMPLATES.get_template("page.html.jinja")
        files["index.html"] = page.render(**context, **_assets(context["sections"])).encode()
    return files


def artefact_files(one: Rendered) -> Files:
    """A figure in three formats, or a table in two, and in either case the numbers as CSV."""
    if one.empty:
        return {}
    key, captions = one.artefact.id, [*one.captions, *one.facts, *one.notes]
    contents = {"csv": as_csv(one.frame).encode()}
    if one.drawing is not None:
        figure = one.drawing.laid_out()
        contents |= {kind: encoded(figure, kind, SMALL) for kind in FIGURES}
    if one.table is not None:
        contents["md"] = as_markdown(one.table, one.artefact.title, captions).encode()
        contents["tex"] = as_latex(one.table, f"{one.artefact.title}.", captions, key).encode()
    return {f"{one.artefact.kind}s/{key}.{kind}": content for kind, content in contents.items()}


def page_context(every: list[Rendered], notes: list[str], files: Files, folders: Folders) -> dict[str, Any]:
    """What both templates are given: plain values, so that the templates escape all text."""
    out, rows = folders.out, folders.rows
    # What a part explains itself is not listed again.
    explained = {key for part in WORDS["parts"] if "empty" in part for key in part["artefacts"]}
    sections = {one.artefact.id: _section(one, files, folders) for one in every if one.artefact.id != claims.KEY}
    parts = _parts({key: one for key, one in sections.items() if not one["empty"]})
    missing = [one for one in sections.values() if one["empty"] and one["id"] not in explained]
    _say_once([*(section for part in parts for section in part["sections"]), *missing])
    return {
        **{name: WORDS[name] for name in ("title", "lead", "outcome", "glossary")},
        **claims.context({one.artefact.id: one.frame for one in every}),
        "sections": sections,
        "parts": parts,
        "missing": missing,
        "notes": notes,
        "nothing": all(one.empty for one in every if one.artefact.experiments and not one.artefact.command),
        "others": [other for other in WORDS["others"] if (out / other["folder"] / other["file"]).exists()],
        "rows": (folders.name(rows), quote(folders.name(rows))) if rows.is_dir() else None,
    }


def _say_once(sections: list[dict[str, Any]]) -> None:
    """Leave a note to the first section that has it: several may show the rows of one experiment."""
    said: set[str] = set()
    for section in sections:
        section["notes"] = tuple(note for note in section["notes"] if note not in said)
        said.update(section["notes"])


def _parts(left: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of the page with their sections; what no part names is in the last."""
    parts = [
        {**part, "sections": [left.pop(key) for key in part["artefacts"] if key in left]} for part in WORDS["parts"]
    ]
    parts[-1]["sections"] += left.values()
    return parts


def _section(one: Rendered, files: Files, folders: Folders) -> dict[str, Any]:
    raw = {key: folders.raw(key) for key in one.artefact.experiments}
    shown = ("captions", "provenance", "facts", "notes", "statements", "empty", "regenerate", "table")
    section: dict[str, Any] = {
        **{name: getattr(one.artefact, name) for name in ("id", "title", "run", "kind")},
        **{name: getattr(one, name) for name in shown},
        "folded": one.artefact.id in WORDS["folded"],
        "files": [(path.rpartition(".")[2], path) for path in ([] if one.empty else file_names(one.artefact))],
        "raw": [(key, quote(folders.name(path))) for key, path in raw.items() if path.exists()],
        "markdown": as_markdown(one.table, "", ()).partition("\n\n")[2] if one.table else "",
        "figure": None,
    }
    if one.drawing is not None:
        section["figure"] = {
            "source": _embedded(files[f"figures/{one.artefact.id}.svg"], "image/svg+xml"),
            "frames": [(_embedded(frame.content, frame.media), frame.label) for frame in one.animation],
            "points": [(x, y, visible(text)) for x, y, text in one.drawing.placed()],
            "width": round(one.drawing.figure.get_figwidth() * 96),
        }
    return section


def _embedded(content: bytes, media: str) -> str:
    """A picture as an address that needs no request."""
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def file_names(one: Artefact) -> list[str]:
    """The paths of the files that an artefact has once it is measured."""
    kinds = (*(FIGURES if one.kind == "figure" else TABLES), "csv")
    return [f"{one.kind}s/{one.id}.{kind}" for kind in kinds]


def possible_files(only: str | None) -> list[str]:
    """The paths of all files of artefacts, or of those of one."""
    chosen = ARTEFACTS.values() if only is None else [artefact(only)]
    return [name for one in chosen for name in file_names(one)]


def _assets(sections: dict[str, dict[str, Any]]) -> dict[str, Markup]:
    """The style and the script, which are ours and need no escaping, and the policy that lets nothing else run."""
    assert TEMPLATES.loader is not None
    css, js = (TEMPLATES.loader.get_source(TEMPLATES, f"page.{name}")[0] for name in ("css", "js"))
    # Widths stand here and not with the figures: the policy allows no styles elsewhere.
    widths = {key: one["figure"]["width"] for key, one in sections.items() if one["figure"]}
    css += "".join(f"#{key} .picture {{ --width: {width}px; }}\n" for key, width in widths.items())
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


def outdated_files(files: Mapping[str, bytes], ours: GeneratedFiles, only: str | None = None) -> list[str]:
    """The files of artefacts, or of one, that an earlier report wrote and these rows do not give any more."""
    # An artefact may be gone by now; a list that was tampered with must not lead elsewhere.
    written = {name for name in ours.names if OURS.fullmatch(name)} - files.keys()
    names = written if only is None else written & set(possible_files(only))
    return sorted(name for name in names if (ours.folder / name).is_file())
