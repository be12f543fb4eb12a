"""The page of `sesn gpu`: the verdict, what the machine has, and every table about GPUs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.report import gpu
from harness.report.artefacts import ARTEFACTS
from harness.report.escapes import TEMPLATES
from harness.report.tables import as_markdown
from sesn.tools.machine import machine_words


def gpu_page(rows: Any, version: int, path: str) -> tuple[bool, list[str], str]:
    """Whether all passed, the sentences of the verdict, and the page in Markdown, from the rows in this file."""
    selections = {gpu.KEY: gpu.selection(rows, version)}
    chosen = selections[gpu.KEY]
    passed, said = gpu.verdict(selections)
    tables = []
    for one in ARTEFACTS.values():
        if gpu.KEY in one.experiments and one.table is not None and len(frame := one.frame(selections)):
            text = as_markdown(one.table(frame), "", (one.caption,)).partition("\n\n")[2]
            tables.append((one.title, text))
    every = chosen.rows if len(chosen.rows) else chosen.absent
    template = TEMPLATES.get_template("gpu.md.jinja")
    told = {"names": " and ".join(dict.fromkeys(map(str, every["gpu"]))), "facts": machine_lines(chosen)}
    return passed, said, template.render(said=said, tables=tables, rows=path, **told)


def machine_lines(chosen: Any) -> list[str]:
    """What the machine has, one line for each device."""
    rows = chosen.metric("device_memory")
    lines = []
    for line in rows.to_dict("records"):
        known = {name: line.get(name) for name in ("capability", "processors", "cuda", "cudnn", "triton")}
        told = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in known.items()]
        shown = [text for text, value in zip(told, known.values(), strict=True) if not pd.isna(value)]
        lines.append(", ".join([machine_words(line), f"{line['value'] / 1e3:.1f} GB", *shown]))
    return lines
