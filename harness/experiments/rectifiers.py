"""What rectifiers do to Delta by themselves: between sizes that they list, at other sizes, and under translations.

Maps repeat at their borders and the resampler is Fourier's, so that nothing but the rectifier is measured. Smooth maps
stand for those between the layers of a network with wide kernels, and maps as they are for the hardest case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from harness.experiment import CellSettings, Context, Draft, Request
from harness.experiments.delta import DELTA_DEPTH, rounded
from harness.experiments.properties import SIDE
from harness.records import Budget, Cell, Measurement, Scalar
from sesn import BandlimitedReLU, Meter, NestedReLU, ScaleTranslation
from sesn._checks import looked_up
from sesn.methods.method import COLOURS
from sesn.tools.images import image_set

#: The smaller of the two sizes that nested rectifiers list, beside that of the maps.
LISTED = 68
#: Others, to which maps shrink: two near it, one of them odd, and half the side.
UNLISTED = (80, 67, 48)
#: The fewest pixels of the rectifiers that list every size.
FEWEST = 8
RECTIFIERS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "bandlimited": partial(BandlimitedReLU, "circular"),
    "nested": partial(NestedReLU, (SIDE, LISTED)),
    "nested, oversample 1": partial(NestedReLU, (SIDE, LISTED), oversample=1),
    "all sizes": partial(NestedReLU, range(FEWEST, SIDE + 1)),
    "all sizes, oversample 1": partial(NestedReLU, range(FEWEST, SIDE + 1), oversample=1),
}
#: The width in pixels of the Gaussian that maps are smoothed with; 0 leaves them as they are.
WIDTHS = (0.0, 1.5)
#: Pixels to the right.
SHIFTS = (1.0, 0.5)
#: Images.
AMOUNTS: dict[Budget, int] = {"smoke": 2, "lite": 16, "paper": 64}


@dataclass(frozen=True, kw_only=True)
class RectifierSettings(CellSettings):
    """The images, how they are smoothed, and which rectifier."""

    images: str
    image_count: int
    width: float
    rectifier: str


def _cells(request: Request) -> Iterator[Draft]:
    count = AMOUNTS[request.budget]
    for width in WIDTHS if request.methods is None else ():
        for name in RECTIFIERS:
            yield "", RectifierSettings(images=request.images, image_count=count, width=width, rectifier=name), 0, ""


def delta_rectifier(cell: Cell, context: Context) -> list[Measurement]:
    """Delta of one rectifier from 96 pixels to each smaller size, and under translations at each of several sizes."""
    settings = RectifierSettings.of(cell)
    rectify = looked_up("rectifier", settings.rectifier, RECTIFIERS)()
    drawn, name = image_set(settings.images, COLOURS, SIDE, SIDE, settings.image_count, data_root=context.data_root)
    maps = smoothed(drawn, settings.width).to(context.device)
    meter = Meter("fourier", crop=0, kind="map")
    tried = [("scaling", size, 0.0) for size in (LISTED, *UNLISTED)]
    tried += [("translation", size, shift) for size in (SIDE, LISTED, *UNLISTED) for shift in SHIFTS]
    found = []
    for done, (action, size, shift) in enumerate(tried):
        context.on_progress(done / len(tried), f"{action}, {size} pixels")
        if action == "scaling":
            error = meter.measure(rectify, maps, size / SIDE, context=False, repeat=False)
        else:
            moved = ScaleTranslation(1.0, (0.0, shift))
            error = meter.measure(rectify, meter.move(maps, size / SIDE), moved, context=False, repeat=False)
        at: dict[str, Scalar] = {"action": action, "pixels": size, "shift": shift, "data_name": name}
        found.append(Measurement("delta", rounded(error.all), at))
    return found


def smoothed(maps: Tensor, width: float) -> Tensor:
    """Maps [..., h, w] that repeat, after a Gaussian of so many pixels."""
    down, across = (
        torch.exp(-2 * (math.pi * width * torch.fft.fftfreq(side, dtype=maps.dtype, device=maps.device)).square())
        for side in maps.shape[-2:]
    )
    found: Tensor = torch.fft.ifft2(torch.fft.fft2(maps) * down[:, None] * across).real
    return found


DELTA_RECTIFIER = replace(
    DELTA_DEPTH,
    key="delta-rectifier",
    title="Delta of rectifiers by themselves, under scaling and translation.",
    version=1,
    settings=RectifierSettings,
    cells=_cells,
    run=delta_rectifier,
    work=lambda settings: float(settings.image_count),
    axes=("width", "rectifier"),
    sizes=(),
)
