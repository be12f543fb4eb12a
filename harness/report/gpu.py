"""What was tried on GPUs: whether it is right, how fast it is, and a verdict. All GPUs stand side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.records import BUDGETS
from harness.report.findings import WORDS, listed
from harness.report.select import Selection, where
from harness.report.summaries import medians
from harness.report.tables import Table, TableEntry, absent, named, numeric
from sesn.methods import METHODS
from sesn.tools.machine import device_kind

KEY = "gpu"
COLUMNS = ["gpu", "stage", "subject", "algorithm", "resolution"]
#: Settings and coordinates that the tables read; rows that lack some are filled up.
READ = (*COLUMNS, "bound", "of", "how")
FACTS = ("machine", "torch", "device", "threads", "code", "budget")
#: The algorithms and the obvious form, in the order of the columns.
CONTESTANTS = ("auto", "dense", "separable", "spectral", "fused", "textbook")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


def selection(rows: Any, version: int) -> Selection:
    """The rows of every GPU at the largest budget that it was run with; rehearsals only where there is no GPU."""
    rows = where(rows, experiment=KEY)
    rows = rows.reindex(columns=[*dict.fromkeys([*rows.columns, *READ])])
    rows = rows[rows["version"].eq(version) & rows["gpu"].notna() & rows["gpu"].ne("none")].astype({"gpu": object})
    real = rows["device"].astype(object).map(device_kind, na_action="ignore").ne("cpu")
    rows = rows[real] if len(rows) and real.any() else rows
    if len(rows):
        rank = rows["budget"].astype(object).map(BUDGETS.index)
        rows = rows[rank.eq(rank.groupby(rows["gpu"]).transform("max"))]
    good = rows["status"].eq("ok")
    facts = {name: " and ".join(sorted(map(str, rows[name].unique()))) for name in FACTS} if len(rows) else {}
    return Selection(KEY, rows[good], rows[~good], rows[:0], facts)


# --- whether it is right


def checks_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per GPU and stage: how many cells passed, failed and were left out, and the error next to its bound."""
    chosen = selections[KEY]
    lines: list[dict[str, Any]] = []
    every = pd.concat([part[["cell", "gpu", "stage", "status", "reason"]] for part in (chosen.rows, chosen.absent)])
    cells, wrong = every.drop_duplicates("cell"), beyond(chosen.rows)
    names = list(cells["gpu"].unique())
    for (gpu, stage), part in cells.groupby(["gpu", "stage"], sort=False):
        counts = part["status"].value_counts()
        bad = set(wrong["cell"]) & set(part["cell"])
        errors = where(chosen.rows, gpu=gpu, stage=stage, metric="relative_error")
        reasons = [str(one) for one in part[part["status"].eq("failed")]["reason"]]
        lines.append(
            {
                **{"gpu": gpu, "stage": stage, "passed": int(counts.get("ok", 0)) - len(bad)},
                **{"failed": int(counts.get("failed", 0)) + len(bad), "left_out": int(counts.get("skipped", 0))},
                "error": float(errors["value"].max()) if len(errors) else math.nan,
                "reason": "; ".join(dict.fromkeys([*reasons, *_beyond_words(where(wrong, gpu=gpu, stage=stage))])),
            }
        )
    order = list(WORDS["gpu"]["stages"])
    lines.sort(key=lambda line: (names.index(line["gpu"]), order.index(line["stage"])))
    return pd.DataFrame(lines, columns=["gpu", "stage", "passed", "failed", "left_out", "error", "reason"])


def beyond(rows: Any) -> Any:
    """The errors that are larger than they may be."""
    errors = where(rows, metric="relative_error")
    return errors[~(errors["value"] <= errors["bound"].astype(float))] if len(errors) else errors


def _beyond_words(wrong: Any) -> list[str]:
    return [
        WORDS["gpu"]["beyond"].format(what=" ".join(_texts(line, ("subject", "algorithm", "of"))), **line)
        for line in wrong.to_dict("records")
    ]


def _texts(line: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    return [str(line[name]) for name in names if isinstance(line[name], str)]


def checks_table(lines: Any) -> Table:
    """The same for reading."""
    heading = ("Device", "What was tried", "passed", "failed", "left out", "largest error")
    return Table(
        heading,
        tuple(
            (
                TableEntry(line["gpu"]),
                TableEntry(WORDS["gpu"]["stages"][line["stage"]], note=line["reason"]),
                *(TableEntry(str(line[name]), line[name]) for name in ("passed", "failed", "left_out")),
                numeric(line["error"], "{:.1e}", "no error is measured there"),
            )
            for line in lines.to_dict("records")
        ),
    )


def numerics_frame(selections: Mapping[str, Selection]) -> Any:
    """The largest error of each algorithm in each precision."""
    rows = where(selections[KEY].rows, stage="numerics", metric="relative_error")
    if not len(rows):
        return pd.DataFrame(columns=["gpu", "algorithm", "precision", "error"])
    found = rows.groupby(["gpu", "algorithm", "subject"], sort=False)["value"].max().reset_index()
    return found.rename(columns={"subject": "precision", "value": "error"})


def numerics_table(lines: Any) -> Table:
    """A line for each algorithm, a column for each precision."""
    made = [
        (
            TableEntry(gpu),
            TableEntry(way),
            *(_number(where(part, precision=one), "error", "{:.1e}") for one in PRECISIONS),
        )
        for (gpu, way), part in lines.groupby(["gpu", "algorithm"], sort=False)
    ]
    return Table(("Device", "Algorithm", *PRECISIONS), tuple(made))


# --- how fast it is


def layers_frame(selections: Mapping[str, Selection]) -> Any:
    """The median time and the memory of each layer and algorithm."""
    return _speeds(where(selections[KEY].rows, stage="layers"), ["gpu", "subject", "algorithm"])


def methods_frame(selections: Mapping[str, Selection]) -> Any:
    """The median time of a training step of each method, beside the plain network's, and its memory."""
    rows = where(selections[KEY].rows, stage="methods")
    rows = rows.assign(resolution=rows["resolution"].astype(float)) if len(rows) else rows
    return _speeds(rows, ["gpu", "method", "resolution"])


def _speeds(rows: Any, by: list[str]) -> Any:
    metrics = ("step_time", "time_ratio", "peak_memory")
    if not len(rows):
        return pd.DataFrame(columns=[*by, *metrics])
    rows = rows.astype({name: object for name in by if name != "resolution"})
    parts = [medians(where(rows, metric=name), by).rename(name) for name in metrics]
    return pd.concat(parts, axis=1).reset_index().reindex(columns=[*by, *metrics])


def layers_table(lines: Any) -> Table:
    """A line for each layer, a column for each algorithm."""
    made = [
        (
            TableEntry(gpu),
            TableEntry(case),
            *(_number(where(part, algorithm=way), "step_time", "{:.3g}") for way in CONTESTANTS),
        )
        for (gpu, case), part in lines.groupby(["gpu", "subject"], sort=False)
    ]
    return Table(("Device", "Layer", *(f"{way}, ms" for way in CONTESTANTS)), tuple(made))


def methods_table(lines: Any) -> Table:
    """A line for each method, in the order of all tables."""
    order = {key: place for place, key in enumerate(METHODS)}
    ordered = lines.sort_values(
        ["gpu", "resolution", "method"], key=lambda column: column.map(lambda v: order.get(v, v))
    )
    made = [
        (
            named(line["method"]),
            TableEntry(line["gpu"]),
            TableEntry(f"{line['resolution']:g}", line["resolution"]),
            *(numeric(line[name], "{:.3g}", "not run") for name in ("step_time", "time_ratio", "peak_memory")),
        )
        for line in ordered.to_dict("records")
    ]
    return Table(("Method", "Device", "pixels", "step, ms", "ratio to the CNN", "peak memory, MB"), tuple(made))


def _number(rows: Any, column: str, form: str) -> TableEntry:
    return numeric(float(rows[column].iloc[0]), form, "not run") if len(rows) else absent("not run, or left out")


# --- the verdict


def verdict(selections: Mapping[str, Selection]) -> tuple[bool, list[str]]:
    """Whether nothing failed, and what came out in plain sentences."""
    words, lines = WORDS["gpu"], checks_frame(selections)
    passed, failed, left_out = (int(lines[name].sum()) for name in ("passed", "failed", "left_out"))
    names = " and ".join(dict.fromkeys(map(str, lines["gpu"])))
    untried = [told for stage, told in words["stages"].items() if stage not in set(lines["stage"])]
    outcome = "not_passed" if failed else "nothing" if not passed else "so_far" if untried else "passed"
    said = [words[outcome].format(gpu=names, passed=passed, failed=failed)]
    said += [words["untried"].format(stages=listed(untried))] if untried else []
    said += [words["failure"].format(**line) for line in lines.to_dict("records") if line["failed"]]
    said += [words["left_out"].format(count=left_out, reasons=_reasons(selections[KEY]))] if left_out else []
    said += _speed_words(layers_frame(selections))
    if selections[KEY].rows["device"].astype(object).map(device_kind).eq("cpu").any():
        said.append(words["rehearsal"])
    return outcome in ("passed", "so_far"), said


def _reasons(chosen: Selection) -> str:
    """Why cells were left out, and how many for each reason."""
    reasons = where(chosen.absent, status="skipped").drop_duplicates("cell")["reason"].astype(str)
    return "; ".join(f"{count} because {reason}" for reason, count in reasons.value_counts().items())


def _speed_words(lines: Any) -> list[str]:
    """On how many layers each algorithm is fastest, and how near the choice comes."""
    if not len(lines):
        return []
    wide = lines.pivot(index=["gpu", "subject"], columns="algorithm", values="step_time")
    ways = [way for way in CONTESTANTS if way in wide and way not in ("auto", "textbook")]
    best, counts = wide[ways].min(axis=1), wide[ways].idxmin(axis=1).value_counts()
    told = listed([f"{way} on {count}" for way, count in counts.items()])
    said = [WORDS["gpu"]["fastest"].format(layers=len(wide), ways=told)]
    if "auto" in wide:
        near = int((wide["auto"] <= 1.1 * best).sum())
        said.append(WORDS["gpu"]["choice"].format(near=near, layers=len(wide)))
    return said
