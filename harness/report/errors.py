"""The tables of test errors: MNIST-scale and STL-10, paper and here side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from harness.report.findings import Statement, claim, listed, number
from harness.report.select import Selection
from harness.report.summaries import Agreement, Sample, agreement, counting_agreement, summarised
from harness.report.tables import Entry, Table, absent
from sesn.methods import METHODS, methods_on

SETTINGS = ((28, False), (28, True), (56, False), (56, True))
COLUMNS = [
    *("method", "resolution", "augmented", "paper", "paper_deviation", "paper_n", "here", "deviation", "n"),
    *("difference", "half_width", "within", "reason", "paper_reason", "parameters", "paper_parameters"),
]
NOT_PUBLISHED = "the paper has no number"
#: So many test errors are told one by one.
FEW = 4


def setting_name(resolution: float, augmented: bool) -> str:
    """The paper's heading: 28×28, 28×28 +."""
    return f"{int(resolution)}×{int(resolution)}{' +' if augmented else ''}"


def mnist_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per method and setting."""
    chosen, sizes = selections["mnist-scale"], selections["parameters"]
    here = _samples(chosen, ("method", "resolution", "augmented"))
    lines = []
    for row in methods_on("mnist"):
        for resolution, augmented in SETTINGS:
            paper = _published(chosen.paper, row.key, resolution=resolution, augmented=augmented)
            sample = here.get((row.key, resolution, augmented))
            found = agreement(paper, sample) if paper and sample else None
            reason = "" if sample else chosen.reason(row.key, resolution=resolution, augmented=augmented)
            line = _line(row.key, paper, sample, found, reason, "mnist")
            lines.append(
                {**line, "resolution": resolution, "augmented": augmented, **_sizes(sizes, chosen, row.key, "mnist")}
            )
    return pd.DataFrame(lines, columns=COLUMNS)


def stl10_frame(experiment: str) -> Callable[[Mapping[str, Selection]], Any]:
    """One line per method; the published errors are those of the full network in either table."""

    def frame(selections: Mapping[str, Selection]) -> Any:
        chosen = selections[experiment]
        here, published = _samples(chosen, ("method",)), selections["stl10"].paper
        images = int(chosen.facts.get("test_images") or 0)
        lines = []
        for row in methods_on("stl10"):
            paper, sample = _published(published, row.key), here.get((row.key,))
            comparable = paper and sample and experiment == "stl10" and images
            found = counting_agreement(paper.mean, sample.mean, images) if comparable and paper and sample else None
            reason = "" if sample else chosen.reason(row.key)
            line = _line(row.key, paper, sample, found, reason, "stl10")
            # The reduced network has other sizes than the published ones.
            sizes = _sizes(selections["parameters"], chosen, row.key, "stl10") if experiment == "stl10" else {}
            lines.append({**line, **sizes, "test_images": images})
        columns = [name for name in COLUMNS if name not in ("resolution", "augmented")]
        return pd.DataFrame(lines, columns=[*columns, "test_images"])

    return frame


def _samples(chosen: Selection, by: tuple[str, ...]) -> dict[tuple[Any, ...], Sample]:
    rows = chosen.metric("test_error")
    if not len(rows):
        return {}
    return {
        tuple(line[name] for name in by): Sample(line["mean"], line["standard_deviation"], int(line["values"]))
        for line in summarised(rows, by).to_dict("records")
    }


def _published(paper: Any, method: str, **where: Any) -> Sample | None:
    found = paper[paper["method"].eq(method) & paper["metric"].eq("test_error")]
    for name, value in where.items():
        found = found[found[name].eq(value)]
    if not len(found):
        return None
    row = found.iloc[0]
    spread = row["standard_deviation"]
    return Sample(float(row["value"]), math.nan if pd.isna(spread) else float(spread), int(row["realisations"]))


def _line(
    method: str, paper: Sample | None, here: Sample | None, found: Agreement | None, reason: str, network: str
) -> dict[str, Any]:
    paper_reason = "" if paper else METHODS[method].absences.get(f"{network}/error", NOT_PUBLISHED)
    paper, here = paper or Sample(math.nan, math.nan, 0), here or Sample(math.nan, math.nan, 0)
    found = found or Agreement(math.nan, math.nan)
    return {
        **{"method": method, "paper": paper.mean, "paper_deviation": paper.standard_deviation, "paper_n": paper.n},
        **{"here": here.mean, "deviation": here.standard_deviation, "n": here.n},
        **{"difference": found.difference, "half_width": found.half_width, "within": found.word},
        **{"reason": reason, "paper_reason": paper_reason},
    }


def _sizes(sizes: Selection, trained: Selection, method: str, network: str) -> dict[str, float]:
    """Counted parameters of the recipe that was trained, and the published number."""
    recipe = trained.facts.get("recipe", "paper")
    counted = sizes.metric("parameters")
    if len(counted):
        wanted = counted["network"].eq(network) & counted["recipe"].eq(recipe) & counted["method"].eq(method)
        counted = counted[wanted]
    paper = sizes.paper
    if len(paper):
        wanted = paper["method"].eq(method) & paper["metric"].eq("parameters") & paper["network"].eq(network)
        paper = paper[wanted]
    return {
        "parameters": float(counted["value"].iloc[0]) if len(counted) else math.nan,
        "paper_parameters": float(paper["value"].iloc[0]) if len(paper) else math.nan,
    }


# --- as tables


def mnist_table(frame: Any) -> Table:
    """Three columns a setting: paper, here, difference."""
    heading = ["Method"]
    for setting in SETTINGS:
        name = setting_name(*setting)
        heading += [f"{name} paper, %", f"{name} here, %", "difference"]
    lines = []
    for method, part in frame.groupby("method", sort=False):
        entries = [Entry(METHODS[method].label_on("mnist"))]
        for resolution, augmented in SETTINGS:
            cell = part[part["resolution"].eq(resolution) & part["augmented"].eq(augmented)].iloc[0]
            column = frame[frame["resolution"].eq(resolution) & frame["augmented"].eq(augmented)]
            entries += _triple(cell, column)
        lines.append((*entries, *_size_entries(part.iloc[0])))
    return Table((*heading, "# params paper", "# params counted"), tuple(lines), _rules(frame))


def stl10_table(frame: Any) -> Table:
    """Paper, here, difference, and sizes."""
    heading = ("Method", "error paper, %", "error here, %", "difference", "# params paper", "# params counted")
    lines = tuple(
        (Entry(METHODS[cell["method"]].label_on("stl10")), *_triple(cell, frame), *_size_entries(cell))
        for _, cell in frame.iterrows()
    )
    return Table(heading, lines, _rules(frame))


def reduced_table(frame: Any) -> Table:
    """The reduced network against the paper's full one: how far each method lies from the plain network."""
    lines = []
    base = frame[frame["method"].eq("wrn")].iloc[0]
    for _, cell in frame.iterrows():
        paper, here, _ = _triple(cell, frame)
        gaps = [
            _gap(cell[name] - base[name], cell[why]) for name, why in (("paper", "paper_reason"), ("here", "reason"))
        ]
        lines.append((Entry(METHODS[cell["method"]].label_on("stl10")), paper, here, *gaps))
    heading = ("Method", "error paper (full), %", "error here (reduced), %", "paper − its WRN", "here − our WRN")
    return Table(heading, tuple(lines), _rules(frame))


def _gap(value: float, reason: str) -> Entry:
    return absent(reason or "the plain network was not run") if math.isnan(value) else Entry(f"{value:+.2f}", value)


def _triple(cell: Any, column: Any) -> list[Entry]:
    paper = _rate(cell["paper"], cell["paper_deviation"], _lowest(column["paper"]), cell["paper_reason"])
    here = _rate(cell["here"], cell["deviation"], _lowest(column["here"]), cell["reason"])
    if math.isnan(cell["difference"]):
        reason = cell["reason"] or cell["paper_reason"] or "not comparable"
        return [paper, here, absent(reason)]
    return [paper, here, Entry(f"{cell['difference']:+.2f} {cell['within']}".strip(), cell["difference"])]


def _lowest(column: Any) -> float:
    """Of several; one number alone is the lowest of nothing."""
    return float(column.min()) if column.notna().sum() > 1 else math.nan


def _rate(mean: float, deviation: float, best: float, reason: str) -> Entry:
    if math.isnan(mean):
        return absent(reason or "the run gave no number")
    spread = f" ± {deviation:.2f}" if math.isfinite(deviation) else ""
    return Entry(f"{mean:.2f}{spread}", mean, bold=mean == best)


def _size_entries(cell: Any) -> tuple[Entry, Entry]:
    paper, counted = cell["paper_parameters"], cell["parameters"]
    return (
        absent(NOT_PUBLISHED) if math.isnan(paper) else Entry(_thousands(paper), paper),
        absent("not counted yet") if math.isnan(counted) else Entry(f"{int(counted):,}", counted),
    )


def _thousands(count: float) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} K"


def _rules(frame: Any) -> tuple[int, ...]:
    """A rule above the first SESN, as in the paper."""
    methods = list(dict.fromkeys(frame["method"]))
    own = [place for place, method in enumerate(methods) if METHODS[method].ours]
    return (own[0], own[-1] + 1) if own else ()


# --- what they say


def mnist_says(frame: Any) -> list[Statement]:
    """Is SESN the best of each setting, and do the errors agree?"""
    return [*_best_of_settings(frame), *_agreeing(frame)]


def _best_of_settings(frame: Any) -> Iterator[Statement]:
    for resolution, augmented in SETTINGS:
        part = frame[frame["resolution"].eq(resolution) & frame["augmented"].eq(augmented) & frame["here"].notna()]
        own, others = (part[part["method"].isin(_of_the_paper(ours=ours))] for ours in (True, False))
        if not len(own) or not len(others):
            continue
        best, rival = (side.loc[side["here"].idxmin()] for side in (own, others))
        name = setting_name(resolution, augmented)
        text = (
            f"MNIST-scale {name}: {METHODS[best['method']].label} has {best['here']:.2f} %, and the best of the others "
            f"({METHODS[rival['method']].label}, {len(others)} compared) {rival['here']:.2f} %; "
            f"{_certainty(best, rival)} (the paper: SESN is best in all four settings)."
        )
        decided = _beyond_chance(best, rival) and len(others) == len(_of_the_paper(ours=False))
        yield claim(bool(best["here"] < rival["here"]), text) if decided else Statement("measured", text)


def _of_the_paper(*, ours: bool) -> list[str]:
    """The methods of the paper's table that are SESN, or those that are not."""
    return [row.key for row in methods_on("mnist") if row.ours is ours and not row.digest]


def _beyond_chance(best: Any, rival: Any) -> bool | None:
    """Whether the difference of two methods is more than their spreads explain; None if that cannot be told."""
    one, other = (Sample(line["here"], line["deviation"], int(line["n"])) for line in (best, rival))
    within = agreement(other, one).within
    return None if within is None else not within


def _certainty(best: Any, rival: Any) -> str:
    beyond = _beyond_chance(best, rival)
    if beyond is None:
        return "with fewer than three realisations, chance cannot be told from difference"
    return f"the difference is {'beyond' if beyond else 'within'} its 95 % interval"


def _agreeing(frame: Any) -> Iterator[Statement]:
    """One sentence on all, or one on each while there are few; the same on those that are too few to judge by."""
    compared = frame[frame["within"].isin(["in", "out"])]
    if 0 < len(compared) <= FEW:
        for _, line in compared.iterrows():
            yield Statement("reproduced" if line["within"] == "in" else "differs", _agreement_words(line))
    elif len(compared):
        inside = int(compared["within"].eq("in").sum())
        worst = compared.loc[compared["difference"].abs().idxmax()]
        text = (
            f"{inside} of {len(compared)} test errors lie within the combined 95 % interval of the published ones; "
            f"the largest difference is {worst['difference']:+.2f} % ({METHODS[worst['method']].label})."
        )
        yield Statement("reproduced" if inside == len(compared) else "differs", text)
    unjudged = frame[frame["difference"].notna() & frame["within"].eq("")]
    if 0 < len(unjudged) <= FEW:
        yield from (Statement("measured", _agreement_words(line)) for _, line in unjudged.iterrows())
    elif len(unjudged):
        worst = unjudged.loc[unjudged["difference"].abs().idxmax()]
        text = (
            f"{len(unjudged)} test errors are of fewer than three realisations, too few to judge by; the largest "
            f"difference to a published one is {worst['difference']:+.2f} % ({METHODS[worst['method']].label})."
        )
        yield Statement("measured", text)


def _agreement_words(line: Any) -> str:
    where = f" at {setting_name(line['resolution'], line['augmented'])}" if "resolution" in line else ""
    runs = f"{int(line['n'])} realisation{'s' if line['n'] > 1 else ''}"
    spread = f" ± {line['paper_deviation']:.2f}" if math.isfinite(line["paper_deviation"]) else ""
    sides = {"in": "within their combined 95 % interval", "out": "outside their combined 95 % interval"}
    verdict = sides.get(line["within"], "too few realisations to judge by")
    return (
        f"{METHODS[line['method']].label}{where} has a test error of {line['here']:.2f} % ({runs}) and the paper's is "
        f"{line['paper']:.2f}{spread} %: {verdict}."
    )


def stl10_says(frame: Any) -> list[Statement]:
    """Order of the designs, and agreement."""
    errors = {row["method"]: row["here"] for _, row in frame.iterrows() if not math.isnan(row["here"])}
    if not errors:
        return []
    ranked = [f"{METHODS[key].label_on('stl10')} {errors[key]:.2f} %" for key in sorted(errors, key=errors.__getitem__)]
    findings = [Statement("measured", f"STL-10, from the best: {listed(ranked)}.")]
    if {"sesn-b", "wrn", "dss-vector"} <= errors.keys():
        rival = min(errors["wrn"], errors["dss-vector"])
        text = f"SESN-B has {number(errors['sesn-b'], 4)} %, the better of WRN and DSS {number(rival, 4)} %"
        findings.append(claim(errors["sesn-b"] < rival, text + " (the paper: SESN-B improves on both)."))
    return findings + list(_agreeing(frame))


def reduced_says(frame: Any) -> list[Statement]:
    """The order of the designs beside the paper's; too small a network, trained too briefly, to test a claim."""
    known = frame[frame["here"].notna() & frame["paper"].notna()]
    if len(known) < 3:
        return []
    order = [
        listed([METHODS[key].label_on("stl10") for key in known.sort_values(side)["method"]])
        for side in ("here", "paper")
    ]
    text = (
        f"On the reduced STL-10 network the order from the best is {order[0]}; in the paper (full network) {order[1]}."
    )
    return [Statement("measured", text), *_beyond_plain(known)]


def _beyond_plain(known: Any) -> Iterator[Statement]:
    """Which methods lie further from the plain network than the choice of test images explains."""
    plain, others = known[known["method"].eq("wrn")], known[~known["method"].eq("wrn")]
    images = int(known["test_images"].max())
    if not len(plain) or not images:
        return
    base = float(plain["here"].iloc[0])
    apart = {
        METHODS[line["method"]].label_on("stl10"): found
        for _, line in others.iterrows()
        if not (found := counting_agreement(base, line["here"], images)).within
    }
    told = [f"{name} ({found.difference:+.2f} %)" for name, found in apart.items()]
    text = (
        f"On the reduced STL-10 network {len(apart)} of {len(others)} methods differ from WRN by more than the choice "
        f"of {images:,} test images explains (95 %){': ' + listed(told) if told else ''}; other starts were not tried."
    )
    yield Statement("measured", text)
