"""The tables of test errors: MNIST-scale and STL-10, paper and here side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from harness.report.findings import Statement, Verdict, claim, listed, sentence, told
from harness.report.select import Selection, first, where
from harness.report.summaries import NO_AGREEMENT, NO_SAMPLE, Sample, agreement, counting_agreement, summarised
from harness.report.tables import Table, TableEntry, absent, numeric, rounded_count, rules
from sesn.methods import METHODS, PLAIN, Method, methods_on

#: The paper's four settings of MNIST-scale.
SETTINGS: tuple[dict[str, Any], ...] = tuple(
    {"resolution": side, "augmented": augmented} for side in (28, 56) for augmented in (False, True)
)
COLUMNS = [
    *("method", "resolution", "augmented", "paper", "paper_deviation", "paper_n", "here", "deviation", "n"),
    *("difference", "half_width", "within", "reason", "paper_reason", "parameters", "paper_parameters"),
]
#: So many test errors are told one by one.
FEW = 4
AGREES: dict[str, Verdict] = {"in": "reproduced", "out": "differs"}


def setting_name(resolution: float, augmented: bool) -> str:
    """The paper's heading: 28×28, 28×28 +."""
    return f"{int(resolution)}×{int(resolution)}{' +' if augmented else ''}"


def mnist_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method and setting."""
    chosen, sizes = selections["mnist-scale"], selections["parameters"]
    here = _samples(chosen, "resolution", "augmented")
    lines = []
    for row in methods_on("mnist"):
        for setting in SETTINGS:
            paper = _published(chosen.paper, row.key, **setting)
            sample = here.get((row.key, *setting.values()), NO_SAMPLE)
            line = _line(row, "mnist", paper, sample, agreement(paper, sample), chosen.reason(row.key, **setting))
            lines.append(line | setting | _sizes(sizes, chosen, row.key, "mnist"))
    return pd.DataFrame(lines, columns=COLUMNS)


def stl10_frame(experiment: str) -> Callable[[Mapping[str, Selection]], Any]:
    """One line per method; the published errors are those of the full network in either table."""
    full = experiment == "stl10"

    def frame(selections: Mapping[str, Selection]) -> Any:
        chosen, published = selections[experiment], selections["stl10"].paper
        here, images = _samples(chosen), int(chosen.facts.get("test_images") or 0)
        lines = []
        for row in methods_on("stl10"):
            paper, sample = _published(published, row.key), here.get((row.key,), NO_SAMPLE)
            found = counting_agreement(paper.mean, sample.mean, images) if full and images else NO_AGREEMENT
            line = _line(row, "stl10", paper, sample, found, chosen.reason(row.key))
            # The reduced network has other sizes than the published ones.
            sizes = _sizes(selections["parameters"], chosen, row.key, "stl10") if full else {}
            lines.append(line | sizes | {"test_images": images})
        columns = [name for name in COLUMNS if name not in ("resolution", "augmented")]
        made = pd.DataFrame(lines, columns=[*columns, "test_images"])
        made.attrs["claims"] = _claims(published)
        return made

    return frame


def _claims(paper: Any) -> list[tuple[str, list[str]]]:
    """Which method the paper says is better than which others."""
    stated = paper.dropna(subset=["better"]) if "better" in paper else paper[:0]
    return [(line["better"], line["than"].split()) for line in stated.to_dict("records")]


def _samples(chosen: Selection, *by: str) -> dict[tuple[Any, ...], Sample]:
    """The test errors of each method, at each place."""
    names, rows = ("method", *by), chosen.metric("test_error")
    return {
        tuple(line[name] for name in names): Sample(line["mean"], line["standard_deviation"], int(line["values"]))
        for line in summarised(rows, names).to_dict("records")
    }


def _published(paper: Any, method: str, **place: Any) -> Sample:
    found = where(paper, method=method, metric="test_error", **place)
    spread, runs = (first(found, name) for name in ("standard_deviation", "realisations"))
    return Sample(first(found, "value"), spread, int(runs)) if len(found) else NO_SAMPLE


def _line(row: Method, network: str, paper: Sample, here: Sample, found: Any, reason: str) -> dict[str, Any]:
    unpublished = row.absences.get(f"{network}/error", "the paper has no number")
    return {
        **{"method": row.key, "paper": paper.mean, "paper_deviation": paper.standard_deviation, "paper_n": paper.n},
        **{"here": here.mean, "deviation": here.standard_deviation, "n": here.n},
        **{"difference": found.difference, "half_width": found.half_width, "within": found.word},
        **{"reason": "" if here.n else reason, "paper_reason": "" if paper.n else unpublished},
    }


def _sizes(sizes: Selection, trained: Selection, method: str, network: str) -> dict[str, float]:
    """Counted parameters of the recipe that was trained, and the published number."""
    recipe = trained.facts.get("recipe", "paper")
    counted = where(sizes.metric("parameters"), network=network, recipe=recipe, method=method)
    paper = where(sizes.paper, method=method, metric="parameters", network=network)
    return {"parameters": first(counted, "value"), "paper_parameters": first(paper, "value")}


# --- as tables


def mnist_table(frame: Any) -> Table:
    """Each setting has three columns: the paper's error, the error here, and their difference."""
    heading = ["Method"]
    for setting in SETTINGS:
        name = setting_name(**setting)
        heading += [f"{name} paper, %", f"{name} here, %", "difference"]
    lines = []
    for method, part in frame.groupby("method", sort=False):
        entries = [TableEntry(METHODS[method].label_on("mnist"))]
        for setting in SETTINGS:
            entries += _triple(where(part, **setting).iloc[0], where(frame, **setting))
        lines.append((*entries, *_size_entries(part.iloc[0])))
    return Table((*heading, "# params paper", "# params counted"), tuple(lines), rules(frame))


def stl10_table(frame: Any) -> Table:
    """The columns are the paper's error, the error here, their difference, and the sizes."""
    heading = ("Method", "error paper, %", "error here, %", "difference", "# params paper", "# params counted")
    lines = tuple(
        (TableEntry(METHODS[cell["method"]].label_on("stl10")), *_triple(cell, frame), *_size_entries(cell))
        for cell in frame.to_dict("records")
    )
    return Table(heading, lines, rules(frame))


def reduced_table(frame: Any) -> Table:
    """The reduced network against the paper's full one: how far each method lies from the plain network."""
    plain = where(frame, method=PLAIN["stl10"])
    missing = f"the plain network {'was not run' if len(plain) else 'is not shown'}"
    lines = []
    for cell in frame.to_dict("records"):
        paper, here, _ = _triple(cell, frame)
        gaps = [
            numeric(cell[name] - first(plain, name), "{:+.2f}", cell[why] or missing)
            for name, why in (("paper", "paper_reason"), ("here", "reason"))
        ]
        lines.append((TableEntry(METHODS[cell["method"]].label_on("stl10")), paper, here, *gaps))
    heading = ("Method", "error paper (full), %", "error here (reduced), %", "paper − its WRN", "here − our WRN")
    return Table(heading, tuple(lines), rules(frame))


def _triple(cell: Any, column: Any) -> list[TableEntry]:
    paper = _rate(cell["paper"], cell["paper_deviation"], column["paper"], cell["paper_reason"])
    here = _rate(cell["here"], cell["deviation"], column["here"], cell["reason"])
    reason = cell["reason"] or cell["paper_reason"] or "not comparable"
    return [paper, here, numeric(cell["difference"], f"{{:+.2f}} {cell['within']}".strip(), reason)]


def _rate(mean: float, deviation: float, column: Any, reason: str) -> TableEntry:
    # The lowest of several is bold; one number alone is the lowest of nothing.
    lowest = column.notna().sum() > 1 and mean == column.min()
    spread = f" ± {deviation:.2f}" if math.isfinite(deviation) else ""
    return numeric(mean, "{:.2f}" + spread, reason or "the run gave no number", bold=bool(lowest))


def _size_entries(cell: Any) -> tuple[TableEntry, TableEntry]:
    paper, counted = cell["paper_parameters"], cell["parameters"]
    return (
        absent("the paper has no number") if math.isnan(paper) else TableEntry(rounded_count(paper), paper),
        numeric(counted, "{:,.0f}", "not counted yet"),
    )


# --- what they say


def mnist_says(frame: Any) -> list[Statement]:
    """Say whether SESN is the best in each setting, and whether the errors agree with the paper."""
    return [*_best_of_settings(frame), *_agreeing(frame)]


def _best_of_settings(frame: Any) -> Iterator[Statement]:
    rivals = _of_the_paper(ours=False)
    for setting in SETTINGS:
        part = where(frame[frame["here"].notna()], **setting)
        own, others = (part[part["method"].isin(keys)] for keys in (_of_the_paper(ours=True), rivals))
        if not len(own) or not len(others):
            continue
        best, rival = (side.loc[side["here"].idxmin()] for side in (own, others))
        within = agreement(*(Sample(line["here"], line["deviation"], int(line["n"])) for line in (rival, best))).within
        verdict = claim(bool(best["here"] < rival["here"])) if within is False and len(others) == len(rivals) else None
        yield told(
            verdict or "measured",
            "best-of-setting",
            setting=setting_name(**setting),
            best=METHODS[best["method"]].label,
            error=best["here"],
            rival=METHODS[rival["method"]].label,
            compared=len(others),
            rival_error=rival["here"],
            certainty=sentence({None: "too-few", True: "within-chance", False: "beyond-chance"}[within]),
        )


def _of_the_paper(*, ours: bool) -> list[str]:
    """The methods of the paper's table that are SESN, or those that are not."""
    return [row.key for row in methods_on("mnist") if row.ours is ours and not row.digest]


def _agreeing(frame: Any) -> Iterator[Statement]:
    """Say of each test error, or of all in one sentence if there are many, whether it agrees with the paper."""
    judged = frame["within"].isin(["in", "out"])
    inside = int(frame["within"].eq("in").sum())
    for part, key in (
        (frame[judged], "errors-agree"),
        (frame[frame["difference"].notna() & ~judged], "errors-unjudged"),
    ):
        if 0 < len(part) <= FEW:
            for _, line in part.iterrows():
                yield Statement(AGREES.get(line["within"], "measured"), _agreement_words(line))
        elif len(part):
            worst = part.loc[part["difference"].abs().idxmax()]
            label = METHODS[worst["method"]].label
            values = {"inside": inside, "count": len(part), "difference": worst["difference"], "method": label}
            all_in = AGREES["in" if inside == len(part) else "out"]
            yield told(all_in if key == "errors-agree" else "measured", key, **values)


def _agreement_words(line: Any) -> str:
    place = f" at {setting_name(line['resolution'], line['augmented'])}" if "resolution" in line else ""
    runs = f"{int(line['n'])} realisation{'s' if line['n'] > 1 else ''}"
    spread = f" ± {line['paper_deviation']:.2f}" if math.isfinite(line["paper_deviation"]) else ""
    sides = {"in": "within their combined 95 % interval", "out": "outside their combined 95 % interval"}
    verdict = sides.get(line["within"], "too few realisations to judge by")
    values = {"place": place, "runs": runs, "spread": spread, "verdict": verdict}
    label = METHODS[line["method"]].label
    return sentence("error-agrees", method=label, here=line["here"], paper=line["paper"], **values)


def stl10_says(frame: Any) -> list[Statement]:
    """Say how the designs rank, whether the paper's claim holds, and whether the errors agree."""
    errors = {line["method"]: line["here"] for line in frame.to_dict("records") if not math.isnan(line["here"])}
    if not errors:
        return []
    names = {key: METHODS[key].label_on("stl10") for key in sorted(errors, key=errors.__getitem__)}
    found = [told("measured", "stl10-order", order=listed([f"{names[key]} {errors[key]:.2f} %" for key in names]))]
    for better, others in frame.attrs["claims"]:
        if {better, *others} <= errors.keys():
            best = min(errors[key] for key in others)
            values = {"error": errors[better], "others": listed([names[key] for key in others]), "best": best}
            found.append(told(claim(errors[better] < best), "stl10-better", better=names[better], **values))
    return [*found, *_agreeing(frame)]


def reduced_says(frame: Any) -> list[Statement]:
    """The order of the designs beside the paper's; too small a network, trained too briefly, to test a claim."""
    known = frame[frame["here"].notna() & frame["paper"].notna()]
    if len(known) < 3:
        return []
    order = {
        side: listed([METHODS[key].label_on("stl10") for key in known.sort_values(side)["method"]])
        for side in ("here", "paper")
    }
    return [told("measured", "reduced-order", **order), *_beyond_plain(known)]


def _beyond_plain(known: Any) -> Iterator[Statement]:
    """Which methods lie further from the plain network than the choice of test images explains."""
    of_plain = known["method"].eq(PLAIN["stl10"])
    base, others, images = first(known[of_plain], "here"), known[~of_plain], int(known["test_images"].max())
    if math.isnan(base) or not images:
        return
    found = {line["method"]: counting_agreement(base, line["here"], images) for line in others.to_dict("records")}
    apart = [
        f"{METHODS[key].label_on('stl10')} ({one.difference:+.2f} %)" for key, one in found.items() if not one.within
    ]
    tail = f": {listed(apart)}" if apart else ""
    yield told("measured", "reduced-apart", count=len(apart), others=len(others), images=images, apart=tail)
