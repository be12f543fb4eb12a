"""Scale generalisation: accuracy by scale, what it is outside training, and the same beside Delta and as published."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.data.at_scales import FAMILIES
from harness.report.findings import sentence
from harness.report.panels import look
from harness.report.select import Selection, first, where
from harness.report.summaries import LEAST_RUNS, counting_interval, mean_of, medians, octaves_near_the_best, summarised
from harness.report.tables import Table, TableEntry, numeric
from sesn.methods import METHODS
from sesn.networks.stir import PUBLISHED
from sesn.tools.drawing import FULL, HALF, Drawing, Hover, log_axis, styled

EXPERIMENT = "scale-generalisation"
PLACE, SERIES = ["family", "scenario"], ["method", "design", "augmented"]
#: How the line of a design looks; its colour is that of the method.
LINES = {PUBLISHED: "-", "wide": "--", "wide-bandlimited": ":", "wide-nested": "-."}
AUGMENTED = (0, (1, 1))
#: On the axis of scales, which is logarithmic to base 2.
TICKS = (0.5, 1, 2, 4, 8, 17, 24, 32, 40, 48, 64)
#: Accuracy within so many points of the best is as good.
POINTS = 2.0
SUMMARY = ["everywhere", "outside", "worst", "octaves", "consistency", "delta", "largest_delta", "largest_delta_scale"]
SUMMARY += ["epoch_time", "least_epoch_time", "runs"]


def curves_frame(selections: Mapping[str, Selection]) -> Any:
    """Accuracy by scale: its mean, and the standard deviation of three or more runs.

    Of fewer runs, the interval that the choice of test pictures explains.
    """
    keys = [*PLACE, *SERIES, "scale"]
    columns = [*keys, "trained", "mean", "low", "high", "draws", "pictures"]
    rows = _accuracies(selections[EXPERIMENT])
    if not len(rows):
        return pd.DataFrame(columns=columns)
    told = rows.groupby(keys, observed=True).agg(pictures=("pictures", "sum"), trained=("trained", "first"))
    points = summarised(rows, keys).merge(told.reset_index(), on=keys)
    counted = [counting_interval(line.mean, int(line.pictures)) for line in points.itertuples()]
    few, spread = points["draws"].lt(LEAST_RUNS), points["standard_deviation"].fillna(0)
    points["low"] = (points["mean"] - spread).mask(few, [low for low, _ in counted])
    points["high"] = (points["mean"] + spread).mask(few, [high for _, high in counted])
    return _ordered(points)[columns]


def _accuracies(chosen: Selection) -> Any:
    rows = chosen.metric("accuracy")
    return rows.assign(scale=rows["scale"].astype(float)) if len(rows) else rows


def _ordered(points: Any) -> Any:
    """Families and methods as their tables list them, designs as they are drawn."""
    order = {
        "family": list(FAMILIES),
        "method": list(METHODS),
        "design": [*LINES, *sorted(set(points["design"]) - LINES.keys())],
    }
    ranks = points.assign(**{name: points[name].map(known.index) for name, known in order.items()})
    return points.loc[ranks.sort_values([*PLACE, *SERIES, *(["scale"] if "scale" in points else [])]).index]


def summary_frame(selections: Mapping[str, Selection]) -> Any:
    """One line per series: accuracy at all scales, outside training, at the worst, the octaves near the best, Delta."""
    chosen, points = selections[EXPERIMENT], curves_frame(selections)
    columns = [*PLACE, *SERIES, *SUMMARY, "published", "published_by_scale", "rival", "published_rival"]
    if not len(points):
        return pd.DataFrame(columns=columns)
    lines = []
    for place, part in points.groupby([*PLACE, *SERIES], sort=False, observed=True):
        at = dict(zip([*PLACE, *SERIES], place, strict=True))
        known = {"published": _published(chosen.paper, at), "published_by_scale": _by_scale(chosen.paper, at, part)}
        lines.append(at | _summary(part, where(chosen.rows, **at)) | known | _rival(chosen.paper, at))
    return pd.DataFrame(lines, columns=columns)


def _summary(part: Any, rows: Any) -> dict[str, float]:
    outside = part[~part["trained"].astype(bool)]
    everywhere = where(rows, metric="delta")
    delta = everywhere[~everywhere["trained"].astype(bool)] if len(everywhere) else everywhere
    by_scale = medians(everywhere, "scale") if len(everywhere) else pd.Series({math.nan: math.nan})
    times = where(rows, metric="epoch_time")

    def middle(metric: str) -> float:
        found = where(rows, metric=metric)
        return float(medians(found, "metric").iloc[0]) if len(found) else math.nan

    return {
        "everywhere": mean_of(part["mean"]),
        "outside": mean_of(outside["mean"]),
        "worst": float(part["mean"].min()),
        "octaves": octaves_near_the_best(part["scale"], part["mean"], POINTS),
        "consistency": middle("consistency"),
        "delta": float(medians(delta, "metric").iloc[0]) if len(delta) else math.nan,
        "largest_delta": float(by_scale.max()),
        "largest_delta_scale": float(by_scale.idxmax()) if by_scale.notna().any() else math.nan,
        "epoch_time": middle("epoch_time"),
        "least_epoch_time": float(times["value"].min()) if len(times) else math.nan,
        "runs": int(part["draws"].max()),
    }


def _published(paper: Any, at: Mapping[str, Any]) -> float:
    """The mean over all scales, where it is known."""
    if "scale" not in paper:
        return math.nan
    return first(where(paper[paper["scale"].isna()], metric="accuracy", **at), "value")


def _rival(paper: Any, at: Mapping[str, Any]) -> dict[str, Any]:
    """The method with the best published mean over all scales, SESN left out, and that mean."""
    at = {name: at[name] for name in PLACE} | {"design": PUBLISHED, "augmented": False}
    others = [row.key for row in METHODS.values() if not row.ours]
    means = {key: _published(paper, at | {"method": key}) for key in others}
    best = max((key for key in others if math.isfinite(means[key])), key=means.__getitem__, default="")
    return {"rival": best, "published_rival": means.get(best, math.nan)}


def _by_scale(paper: Any, at: Mapping[str, Any], points: Any) -> str:
    """The published accuracy at single scales, each with that measured here, in words; empty if there is none."""
    known = where(paper, metric="accuracy", **at).dropna(subset=["scale"]) if "scale" in paper else paper[:0]
    here = dict(zip(points["scale"], points["mean"], strict=True))
    pairs = [(float(line["scale"]), line["value"]) for line in known.to_dict("records")]
    parts = [
        sentence("accuracy-pair" if scale in here else "accuracy-alone", scale=scale, paper=value, here=here.get(scale))
        for scale, value in pairs
    ]
    source = ", ".join(dict.fromkeys(known["claimed_in"])) if parts else ""
    return f"{', '.join(parts)} ({source})" if parts else ""


# --- drawing


def series_label(method: str, design: str, augmented: bool) -> str:
    """The method, its design if it is not the published one, and + with scaling augmentation."""
    label = METHODS[method].label + (" +" if augmented else "")
    return label if design == PUBLISHED else f"{label}, {design}"


def place_label(family: str, scenario: str) -> str:
    """The data set and what it was trained at."""
    return sentence("trained-at", title=FAMILIES[family].title, scenario=scenario)


def _style(method: str, design: str, augmented: bool) -> dict[str, Any]:
    colour, marker = look(method)
    return {"color": colour, "marker": marker, "ls": AUGMENTED if augmented else LINES.get(design, "-")}


def _dot(method: str, design: str, augmented: bool) -> dict[str, Any]:
    """Hollow where the network or its training is not the published one."""
    hollow = {} if design == PUBLISHED and not augmented else {"mfc": "white"}
    return _style(method, design, augmented) | {"ls": ""} | hollow


@styled
def draw_curves(points: Any) -> Drawing:
    """A panel for each data set and training; the scales of training are shaded."""
    places = points[PLACE].drop_duplicates().to_dict("records")
    figure = Figure(figsize=(FULL if len(places) > 1 else HALF, 3.4), layout="constrained")
    hovers: list[Hover] = []
    for axes, place in zip(figure.subplots(1, len(places), squeeze=False)[0], places, strict=True):
        family = FAMILIES[place["family"]]
        trained = family.trainings[place["scenario"]]
        axes.axvspan(min(trained) / 1.02, max(trained) * 1.02, color="0.9", lw=0)
        for series, line in where(points, **place).groupby(SERIES, sort=False, observed=True):
            style = _style(*series)
            axes.plot(line["scale"], line["mean"], ms=3, lw=1.1, **style)
            axes.fill_between(line["scale"], line["low"], line["high"], color=style["color"], alpha=0.1, lw=0)
            for point in line.to_dict("records"):
                text = sentence("generalisation-point", label=series_label(*series), unit=family.unit, **point)
                hovers.append(Hover(axes, point["scale"], point["mean"], text))
        axes.set_xscale("log", base=2)
        shown = [tick for tick in TICKS if family.tests[3][0] <= tick <= family.tests[3][-1]]
        axes.set_xticks(shown, [f"{tick:g}" for tick in shown], minor=False)
        axes.set(xlabel=family.unit, ylabel="accuracy, %")
        axes.set_title(place_label(**place), fontsize=8)
    _legend(figure, points, lines=True)
    return Drawing(figure, tuple(hovers))


@styled
def draw_delta(points: Any) -> Drawing:
    """Delta across, accuracy outside training up."""
    points = points.dropna(subset=["delta", "outside"])
    places = points[PLACE].drop_duplicates().to_dict("records")
    figure = Figure(figsize=(FULL if len(places) > 1 else HALF, 3.2), layout="constrained")
    hovers: list[Hover] = []
    for axes, place in zip(figure.subplots(1, len(places), squeeze=False)[0], places, strict=True):
        for point in where(points, **place).to_dict("records"):
            series = [point[name] for name in SERIES]
            axes.plot(point["delta"], point["outside"], ms=5, **_dot(*series))
            text = sentence("outside-point", label=series_label(*series), **point)
            hovers.append(Hover(axes, point["delta"], point["outside"], text))
        log_axis(axes, "x", (1, 2, 5))
        axes.set(xlabel="Δ of the scores outside training", ylabel="accuracy outside training, %")
        axes.set_title(place_label(**place), fontsize=8)
    _legend(figure, points, lines=False)
    return Drawing(figure, tuple(hovers))


def _legend(figure: Figure, points: Any, lines: bool) -> None:
    shown = [
        tuple(line[name] for name in SERIES) for line in _ordered(points.drop_duplicates(SERIES)).to_dict("records")
    ]
    shown = list(dict.fromkeys(shown))
    looks = [_style(*series) | {"lw": 1.1} if lines else _dot(*series) for series in shown]
    handles = [Line2D([], [], ms=4, **look) for look in looks]
    columns = max(2, int(figure.get_figwidth() / 1.6))
    names = [series_label(*series) for series in shown]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=7)


# --- as a table

#: Heading, column and form of each number.
NUMBERS = (
    ("published, all scales", "published", "{:.1f}"),
    ("all scales", "everywhere", "{:.1f}"),
    ("outside training", "outside", "{:.1f}"),
    ("worst scale", "worst", "{:.1f}"),
    ("octaves within 2 points of the best", "octaves", "{:.2f}"),
    ("same class at all scales, %", "consistency", "{:.0f}"),
    ("Δ outside training", "delta", "{:.1e}"),
    ("runs", "runs", "{:.0f}"),
)


def table(frame: Any) -> Table:
    """One line per series, the data sets one after the other."""
    lines: list[tuple[TableEntry, ...]] = []
    rules: list[int] = []
    for place, part in frame.groupby(PLACE, sort=False, observed=True):
        rules += [len(lines)] if lines else []
        for line in part.to_dict("records"):
            label = series_label(*(line[name] for name in SERIES))
            entries = [numeric(line[name], form, sentence("no-number")) for _, name, form in NUMBERS]
            lines.append((TableEntry(place_label(*place)), TableEntry(label), *entries))
    return Table(("Data", "Method", *(heading for heading, *_ in NUMBERS)), tuple(lines), tuple(rules))


def by_scale(frame: Any) -> list[str]:
    """What was published of single scales, beside what was measured there."""
    told = frame[frame["published_by_scale"].ne("")]
    return [
        sentence(
            "published-by-scale",
            label=series_label(*(line[name] for name in SERIES)),
            place=place_label(line["family"], line["scenario"]),
            accuracies=line["published_by_scale"],
        )
        for line in told.to_dict("records")
    ]
