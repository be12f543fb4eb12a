"""`sesn compare`: several networks in one table and one picture."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from sesn.errors import UsageError
from sesn.tools import options
from sesn.tools.consoles import consoles, progress_bar
from sesn.tools.wording import in_options

#: What has to be the same for all, or their numbers cannot be compared.
SIZES = ("input_", "downscale", "canvas")
#: What may differ between the networks.
OF_ONE = ("with_", "weights", "output", "tokens")


def compare(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE.py:NAME|package.module:NAME ...", help="Torch modules, or functions that return them."
        ),
    ],
    names: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="What to call them. By default the targets, shortened.")
    ] = None,
    with_: options.EachWith = None,
    weights: options.EachWeights = None,
    output: options.EachOutput = None,
    tokens: options.EachTokens = None,
    input_: options.InputShape = None,
    downscale: Annotated[
        str | None,
        typer.Option(
            metavar="D,D,...",
            help="How many times smaller to make images; 2 halves them. By default 1.41,2,2.83,4 or near these.",
        ),
    ] = None,
    images: options.ImageSet = options.USUAL_IMAGES,
    count: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many images. By default 16 (8 or 4 for costly networks), or all if there are fewer."
        ),
    ] = None,
    data: options.DataRoot = None,
    mean: options.Mean = None,
    std: options.Std = None,
    resampler: options.ResamplerName = "lanczos3",
    ends: options.EndsName = "auto",
    canvas: options.CanvasName = "follow",
    tolerance: options.Tolerance = None,
    json: options.JsonPath = None,
    picture: options.PicturePath = None,
    force: options.Force = False,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
) -> None:
    """Measure the relative Δ of several networks at several downscales, on the same images, and draw it as curves.

    The exit status is 1 above the tolerance and 2 on bad usage. It is also 2 if one of the networks cannot be measured,
    but the others are measured all the same.
    """
    with consoles(quiet, json == options.STDOUT) as (console, progress):
        from sesn import Meter
        from sesn._checks import require
        from sesn.tools import compare as comparing
        from sesn.tools.machine import machine_line
        from sesn.tools.output import OutputFiles
        from sesn.tools.verdict import leniency

        how: Any = {"resampler": resampler, "ends": ends, "canvas": canvas}
        meter, files = Meter(**how), OutputFiles(context.params)
        require(tolerance is None or tolerance >= 0, "tolerance", tolerance, "at least 0")
        called = comparing.short_names(targets) if names is None else [name.strip() for name in names.split(",")]
        require(len(called) == len(targets), "names", names, f"{len(targets)} names, one for each target")
        subjects, common = _subjects(context, meter, comparing.USUAL_CURVE)
        found = []
        with progress_bar(progress, total=len(targets)) as on_step:
            for name, subject in zip(comparing.numbered(called), subjects, strict=True):
                if isinstance(subject, UsageError):
                    on_step(1.0)
                    found.append(comparing.Compared(name, failure=in_options(str(subject))))
                else:
                    given = subject.target.build(seed), subject.images, subject.factors, subject.meter
                    found.append(comparing.compare_one(name, *given, on_step, subject.measuring()))
        console.print(comparing.compare_table(found, tolerance))
        known = {one.name: subject for one, subject in zip(found, subjects, strict=True) if hasattr(subject, "images")}
        shown = "; ".join(dict.fromkeys(subject.images_name for subject in known.values()))
        alone = [f"{name}: {subject.how()}" for name, subject in known.items()]
        own = ["no size fits all of them, so each is measured at its own", *alone]
        sizes = "--input {input_} --downscale {downscale} --canvas {canvas} for all".format(**context.params)
        for words in [shown, sizes] if common else own:
            console.print(words, highlight=False)
        console.print(f"resampler {resampler}; in eval mode; {machine_line()}", highlight=False)
        for line in [*comparing.sentences(found, tolerance), *leniency(images)]:
            console.print(line, highlight=False)

        def draw() -> Any:
            from sesn.tools.curves import draw_curves

            return draw_curves(found, tolerance)

        rows = [{"target": target, **one.row(tolerance)} for target, one in zip(targets, found, strict=True)]
        well = all(one.passes(tolerance) for one in found)
        if any(one.results for one in found):
            files.write(shown, {"passes": well, "common": common, "networks": rows}, console, draw)
    raise typer.Exit(2 if any(one.failure for one in found) else 0 if well else 1)


Loaded = tuple[Any, dict[str, Any]]  # what is measured of a target, or why it cannot be; and its sizes, if it can


def _subjects(context: typer.Context, meter: Any, curve: Sequence[float]) -> tuple[list[Any], bool]:
    """What is measured of each target, or why it cannot be; and whether all have the same images and downscales.

    Sizes that one network needs are tried on all of them, and kept where they fit.
    """
    asked, load = context.params, _loader(context, meter, curve)
    own = load({})
    if len(counts := {len(subject.images) for subject, sizes in own if sizes}) > 1:
        asked["count"] = min(counts)  # the same images for all, as many as the costliest network allows
        own = load({})
    wanted = [sizes for _, sizes in own if sizes]
    if all(sizes == wanted[0] for sizes in wanted):
        asked.update(*wanted[:1])
        return [subject for subject, _ in own], True
    # One that cannot be measured at sizes of its own choice is asked at no others.
    able = [bool(sizes) and _fits(subject, asked["seed"]) for subject, sizes in own]
    for sizes in (sizes for (_, sizes), can in zip(own, able, strict=True) if can):
        trial = [new if can else old for (new, _), (old, _), can in zip(load(sizes), own, able, strict=True)]
        if all(_fits(one, asked["seed"]) for one, can in zip(trial, able, strict=True) if can):
            asked.update(sizes)
            return trial, True
    return [subject for subject, _ in own], False


def _loader(context: typer.Context, meter: Any, curve: Sequence[float]) -> Callable[[dict[str, Any]], list[Loaded]]:
    """A function that loads every target at the sizes that it is given."""
    from sesn.tools.arguments import load_subject
    from sesn.tools.check import BATCH
    from sesn.tools.compare import each_network

    told = {name: context.params[name] or [] for name in OF_ONE}
    several = [*zip(context.params["targets"], each_network(told, len(context.params["targets"])), strict=True)]

    def load(place: int, sizes: dict[str, Any]) -> Loaded:
        one, (target, own) = copy.copy(context), several[place]
        one.params = {**context.params, **own, **sizes, "target": target, "told": told, "place": place}
        try:
            subject = load_subject(one, replace(meter, canvas=one.params["canvas"]), BATCH, curve)
        except UsageError as refusal:
            return refusal, {}
        return subject, {name: one.params[name] for name in SIZES}

    return lambda sizes: [load(place, sizes) for place in range(len(several))]


def _fits(subject: Any, seed: int) -> bool:
    """Whether a network can be measured at the sizes that it was loaded for."""
    if isinstance(subject, UsageError):
        return False
    try:
        with subject.measuring():
            subject.meter.branches(subject.target.build(seed), subject.images[:1], subject.factors[0])
    except UsageError:
        return False
    return True
