"""Made-up rows of every experiment, for tests of the report only: smooth curves with seeded noise, no measurement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.experiments import EXPERIMENTS, Request
from harness.records import Cell, Measurement, Result
from harness.store.frame import frame_of
from harness.store.lines import StoredCell, Values, encode
from sesn.methods import METHODS, Method, methods_on

PROVENANCE = {"code": "abc", "machine": "Synthetic CPU", "torch": "0.0", "device": "cpu", "threads": 2}
STARTED = "2026-01-01T00:00:00+00:00"
SWEEP: dict[str, Any] = {"images": "stl10", "image_count": 3, "channels": 8}
#: Settings that the window decides.
KERNELS: dict[str, dict[str, Any]] = {
    "published": {"kernel_size": 13},
    "wide": {"half_width": 4.5},
    "periodic": {"half_width": 6.0, "padding_mode": "circular"},
}
#: Levels of the networks that only the depth sweep has.
NESTED = {("published", "nested"): 6e-2, ("wide", "nested"): 4e-5, ("periodic", "linear"): 2e-13}
NESTED |= {("periodic", "relu"): 6e-5, ("periodic", "bandlimited"): 2e-6, ("periodic", "nested"): 3e-12}


def rows(cell: Cell, measurements: list[Measurement]) -> Iterator[Result]:
    """A cell that was measured."""
    yield Result(cell, "ok", tuple(measurements), "", PROVENANCE, STARTED, 1.0)


def absent(cell: Cell, status: Any, reason: str) -> Iterator[Result]:
    """A cell that has no numbers."""
    yield Result(cell, status, (), reason, PROVENANCE, STARTED, 1.0)


def results(budget: str = "lite", seed: int = 0) -> Iterator[Result]:
    """Cells of every experiment."""
    noise = np.random.default_rng(seed)
    for part in (
        _depth,
        _downscale,
        _interscale,
        _properties,
        _parameters,
        _times,
        _mnist,
        _stl10,
        _projections,
        _bases,
        _generalisation,
        _gpu,
        _rectifiers,  # last, so that the numbers drawn for the others stay the same
    ):
        yield from part(budget, noise)


def frame(found: Iterable[Result]) -> Any:
    """The frame that the store would load."""
    return frame_of([_entry(result) for result in found])


def _entry(result: Result) -> StoredCell:
    facts = {"source": "measured", "status": result.status, "reason": result.reason, **result.provenance}
    facts |= {"started": result.started, "seconds": result.seconds}
    values = [Values(seen.metric, seen.at, list(seen.values)) for seen in result.measurements]
    return StoredCell(result.cell, facts, values)


def store(folder: Path, found: Iterable[Result]) -> Path:
    """A folder of rows as the store writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in found:
        with (folder / f"{result.cell.experiment}.jsonl").open("ab") as file:
            file.write(encode(result))
    return folder


def _values(noise: Any, level: float, count: int = 3) -> tuple[float, ...]:
    return tuple(float(level * math.exp(0.3 * x)) for x in noise.standard_normal(count))


def _sweep() -> Iterator[tuple[str, str, int, float]]:
    for window, level in (("published", 2e-2), ("wide", 1e-5)):
        for nonlinearity, factor in (("linear", 1.0), ("relu", 6.0), ("bandlimited", 2.0)):
            for draw in range(2):
                yield window, nonlinearity, draw, level * factor


def _depth(budget: Any, noise: Any) -> Iterator[Result]:
    nested = [(*series, draw, level) for series, level in NESTED.items() for draw in range(2)]
    for sweep, noises in ((_sweep(), noise), (nested, np.random.default_rng(1))):
        for window, nonlinearity, draw, level in sweep:
            settings = SWEEP | KERNELS[window] | {"window": window, "nonlinearity": nonlinearity}
            settings |= {"side": 96, "scales": 5, "extent": 1, "layers": 50}
            found = []
            for depth in (1, 2, 3, 5, 10, 20, 30, 40, 50):
                at = {"depth": depth}
                found += [Measurement("delta", _values(noises, min(1.2, level * depth)), at)]
                floor = 1e-6 * depth if window != "periodic" else 1e-10
                found += [Measurement("floor", _values(noises, floor), at)] if depth in (1, 50) else []
            yield from rows(Cell("delta-depth", 1, budget, "", settings, draw), found)


def _downscale(budget: Any, noise: Any) -> Iterator[Result]:
    for window, nonlinearity, draw, level in _sweep():
        for side, largest in ((96, 32.0), (384, 64.0)):
            settings = (
                SWEEP | KERNELS[window] | {"window": window, "nonlinearity": nonlinearity, "side": side, "scales": 13}
            )
            settings["image_count"] = 3 if side == 96 else 2
            found = []
            for m in range(1, int(2 * math.log2(largest)) + 1):
                at = {"downscale": math.sqrt(2) ** m, "pixels": side // 2}
                rise = level * (1 + (at["downscale"] / 16) ** 3)
                found += [Measurement("delta", _values(noise, min(1.5, rise), settings["image_count"]), at)]
                found += [Measurement("floor", _values(noise, 1e-6 * m), at)]
            cell = Cell("delta-downscale", 1, budget, "", settings | {"largest_downscale": largest}, draw)
            yield from rows(cell, found)


def _interscale(budget: Any, noise: Any) -> Iterator[Result]:
    for window, nonlinearity, draw, level in _sweep():
        for extent in range(1, 6):
            for scales in {5, 4 + extent}:
                settings = (
                    SWEEP
                    | KERNELS[window]
                    | {"window": window, "nonlinearity": nonlinearity, "side": 96, "extent": extent}
                )
                valid = _values(noise, level) if scales > 5 or extent < 5 else (math.nan,) * 3
                found = [Measurement("delta", valid), Measurement("floor", _values(noise, 1e-6))]
                found += [Measurement("delta_all", _values(noise, level + 0.09 * (extent - 1)))]
                found += [Measurement("channels_lost", (float(extent),))]
                yield from rows(Cell("delta-interscale", 1, budget, "", settings | {"scales": scales}, draw), found)


def compared(network: str) -> list[Method]:
    """The methods that the paper compares: what is made up here does not change with those that appeared later."""
    return [row for row in methods_on(network) if row.in_paper]


def _properties(budget: Any, noise: Any) -> Iterator[Result]:
    for method in (key for key, row in METHODS.items() if row.in_paper):
        settings = {"images": "stl10", "image_count": 3, "recipe": "paper"}
        found = [Measurement("interscale_reach", (1.0,), {"scale_axis": True})]
        found += [Measurement("translation_error", _values(noise, 1e-30), {"down": 1, "right": 0})]
        for family, downscale in (("own", 2.0), ("integer", 3.0), ("grid", 1.5), ("any", math.pi)):
            at = {"family": family, "downscale": downscale}
            found += [Measurement("delta", _values(noise, 0.02), at), Measurement("delta_cnn", _values(noise, 0.4), at)]
        yield from rows(Cell("properties", 1, budget, method, settings, 0), found)


def _parameters(budget: Any, _noise: Any) -> Iterator[Result]:
    for network in ("mnist", "stl10"):
        for row in compared(network):
            for recipe in ("paper", "released"):
                cell = Cell("parameters", 1, budget, row.key, {"network": network, "recipe": recipe})
                if reason := row.lacks(network, recipe):
                    yield from absent(cell, "skipped", reason)
                    continue
                total = float(len(row.key) * (1_000 if network == "mnist" else 100_000) + 489_000)
                found = [Measurement("parameters", (total,)), Measurement("parameters_used", (total - 5,))]
                yield from rows(cell, found)


def _times(budget: Any, noise: Any) -> Iterator[Result]:
    for resolution in (28, 56):
        settings = {
            "resolution": resolution,
            "recipe": "paper",
            "methods": "all",
            "batch": 128,
            "steps": 4,
            "warmup": 1,
        }
        found = []
        for place, row in enumerate(compared("mnist")):
            at = {"method": row.key}
            ratio = (1.0,) * 4 if not place else _values(noise, 1 + 0.6 * place, 4)
            found += [Measurement("time_ratio", ratio, at), Measurement("step_time", _values(noise, 50.0, 4), at)]
            found += [Measurement("epoch_time", tuple(4 * x for x in ratio), at)]
            found += [
                Measurement("multiply_adds", (1.5e7 * (place + 1),), at),
                Measurement("peak_memory", (200.0,), at),
            ]
        yield from rows(Cell("epoch-time", 1, budget, "", settings), found)


def _mnist(budget: Any, noise: Any) -> Iterator[Result]:
    for resolution in (28, 56):
        for augmented in (False, True):
            for place, row in enumerate(compared("mnist")):
                for seed in range(2):
                    settings = {"data": "mnist", "recipe": "paper", "epochs": 3, "test_images": 50_000}
                    settings |= {"resolution": resolution, "augmented": augmented}
                    cell = Cell("mnist-scale", 1, budget, row.key, settings, seed)
                    if resolution == 56 and not row.key.startswith(("cnn", "sesn")):
                        yield from absent(cell, "skipped", "the lite budget trains few methods at 56")
                        continue
                    yield from rows(cell, list(_training(noise, 4 - 0.2 * place - augmented, place)))


def _training(noise: Any, error: float, place: int) -> Iterator[Measurement]:
    test = {"data_name": "test"}
    yield Measurement("train_loss", tuple(1.5 / (1 + e) + 0.02 * place for e in range(3)), test)
    yield Measurement("validation_error", tuple(error + 3 / (1 + e) for e in range(3)), test)
    yield Measurement("best_epoch", (3.0,), test)
    for epoch in (0, 1, 2, 3):
        for of, level in (("logits", 0.5), ("trunk", 0.2)):
            for downscale in (math.sqrt(2), 2.0):
                at = {"epoch": epoch, "downscale": downscale, "of": of, "data_name": "probe"}
                yield Measurement("delta", _values(noise, level / (1 + place) * (1 + epoch / 3)), at)
    yield Measurement("test_error", (error + 0.05 * float(noise.standard_normal()),), test)
    for number in range(8):
        at = {"digit_size": 0.34375 + 0.0875 * number, "digits": 6250, **test}
        yield Measurement("test_error_by_size", (error * (2 - 0.2 * number),), at)


def _stl10(budget: Any, noise: Any) -> Iterator[Result]:
    for experiment, width in (("stl10", 8), ("stl10-reduced", 1)):
        for place, row in enumerate(compared("stl10")):
            settings = {"data": "stl10", "recipe": "paper", "depth": 16, "width": width, "test_images": 8000}
            settings["resolution"] = 96
            cell = Cell(experiment, 1, budget, row.key, settings)
            if experiment == "stl10" and place % 3:
                yield from absent(cell, "failed", "out of memory: 10 % of <b>RAM</b>")
            else:
                yield from rows(cell, [Measurement("test_error", (12.0 - 0.3 * place + float(noise.random()),))])


def _generalisation(budget: Any, noise: Any) -> Iterator[Result]:
    series = (("cnn", "published", False), ("cnn", "published", True), ("dss-vector", "published", False))
    series += (("sesn-vector", "published", False), ("sesn-vector", "wide", False))
    for family, scenario, scales in (("stir", "33-48", (17, 24, 40, 56, 64)), ("large-scale", "2", (0.5, 2.0, 8.0))):
        middle = 40 if family == "stir" else 2
        for place, (method, design, augmented) in enumerate(series):
            for seed in range(2):
                settings = {"data": "mnist", "recipe": "paper", "epochs": 5, "family": family, "scenario": scenario}
                settings |= {"design": design, "augmented": augmented, "resolution": 64}
                found = [Measurement("consistency", (40.0 + 8 * place,), {"pictures": 200})]
                for scale in scales:
                    away, at = abs(math.log2(scale / middle)), {"scale": float(scale), "trained": scale == middle}
                    right = 94 - (30 - 6 * place) * away + float(noise.standard_normal())
                    found += [Measurement("accuracy", (right,), {**at, "pictures": 200})]
                    if away:
                        level = 0.3 * away / (1 + place)
                        found += [Measurement("delta", _values(noise, level), {**at, "of": "logits"})]
                yield from rows(Cell("scale-generalisation", 1, budget, method, settings, seed), found)


def _projections(budget: Any, noise: Any) -> Iterator[Result]:
    for projection, level in (("max", 4e-2), ("mean", 5e-2), ("max-partnered", 1e-5)):
        for scales, draw in ((5, 0), (5, 1), (9, 0), (9, 1)):
            cell = Cell("delta-projection", 1, budget, "", SWEEP | {"projection": projection, "scales": scales}, draw)
            found = []
            for of, part in (("field", 1e-5), ("map", level), ("score", level / 10)):
                for downscale in (1.4118, 1.993):
                    at = {"of": of, "downscale": downscale}
                    found += [Measurement(name, _values(noise, part), at) for name in ("delta", "delta_relative")]
            yield from rows(cell, found)
    settings = {"data": "mnist", "recipe": "paper", "epochs": 3, "resolution": 28, "projection": "mean"}
    yield from rows(Cell("mnist-projection", 1, budget, "sesn-vector", settings), [Measurement("test_error", (2.5,))])


def _bases(budget: Any, noise: Any) -> Iterator[Result]:
    for basis, level in (("hermite", 2e-2), ("fourier-bessel", 1e-2), ("fitted", 5e-3)):
        for augmented in (False, True):
            settings = {"images": "stl10", "image_count": 4, "basis": basis, "augmented": augmented}
            found = [
                Measurement("delta", _values(noise, level * downscale), {"of": of, "downscale": downscale})
                for of in ("layer", "two layers")
                for downscale in (1.26, 2.0)
            ]
            yield from rows(
                Cell("delta-basis", 1, budget, "", settings, 0), [*found, Measurement("multiply_adds", (4e8,))]
            )
    settings = {
        "data": "mnist",
        "recipe": "released",
        "epochs": 3,
        "resolution": 56,
        "basis": "fitted",
        "augmented": True,
    }
    yield from rows(Cell("mnist-basis", 1, budget, "sesn-vector", settings), [Measurement("test_error", (2.2,))])


def _rectifiers(budget: Any, noise: Any) -> Iterator[Result]:
    for rectifier, level in (("relu", 1e-2), ("bandlimited", 1e-3), ("nested", 1e-12)):
        for width in (0.0, 1.5):
            settings = {"images": "stl10", "image_count": 3, "width": width, "rectifier": rectifier}
            found = [
                Measurement("delta", _values(noise, level), {"action": action, "pixels": pixels, "shift": shift})
                for action, pixels, shift in (("scaling", 68, 0.0), ("scaling", 48, 0.0), ("translation", 96, 1.0))
            ]
            yield from rows(Cell("delta-rectifier", 1, budget, "", settings), found)


def _gpu(budget: str, noise: Any) -> Iterator[Result]:
    """A GPU on which the fused kernels cannot run."""
    where = {**PROVENANCE, "machine": "Synthetic GPU", "device": "cuda:0"}
    for one in EXPERIMENTS["gpu"].plan(Request(budget, gpu="Synthetic GPU")):  # type: ignore[arg-type]
        cell = one.cell
        stage, fused = (
            cell.settings["stage"],
            cell.settings.get("algorithm") == "fused" or one.cell.settings["stage"] == "self-check",
        )
        seen = [Measurement("step_time", (float(noise.uniform(1, 9)),)), Measurement("time_ratio", (1.5,))]
        if stage in ("numerics", "graph", "compile"):
            seen = [Measurement("relative_error", (float(noise.uniform(1e-8, 1e-5)),), {"of": "output", "bound": 1e-4})]
        elif stage in ("machine", "tests"):
            seen = [Measurement("device_memory" if stage == "machine" else "tests_passed", (80_000.0,))]
        status = "skipped" if fused else "ok"
        reason = "Triton is not installed" if fused else ""
        yield Result(cell, status, () if fused else tuple(seen), reason, where, STARTED, 1.0)  # type: ignore[arg-type]
