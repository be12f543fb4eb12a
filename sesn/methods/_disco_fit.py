"""The fit of DISCO's kernels at scales that are no whole numbers (Sosnovik et al. 2021).

At a whole scale s the kernel of pixel a is a one at s a: correlating with it and shrinking by s commute exactly. At
other scales the kernels [E^2, V, V] are free, and minimise the sum over all pairs of scales s_i < s_j of the norm of

    shrunk(x) * k_i  -  shrunk(x * k_j),      shrunk by s_i / s_j,

on images x of noise: circular borders, bicubic shrinking with half-pixel centres and no antialiasing, a frame of
V // 2 + 1 pixels left out. The difference is linear in the kernels, so the square of its norm on a batch of images is a
quadratic form in them, whose matrix (the *moments* of the batch) is computed once. Steps of the optimiser then need no
images, and have the gradient that they would have with them.

`python -c "from sesn.methods import _disco_fit; _disco_fit.write()"` repeats the fits and writes them, with their
settings, to the files of the package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sesn.basis.steerable import EXACT

#: Where the fits are kept, and what is known of how they were made.
KERNELS, PROVENANCE = (Path(__file__).with_name(name) for name in ("disco_kernels.npz", "disco_kernels.json"))
#: Side of the images.
IMAGE_SIDE = 154
#: The spread of noise of eight bits. Its mean is taken off: with it the schedule of Adam ends four times above
#: the least loss on MNIST-scale, and without it within one percent.
SPREAD = math.sqrt((256**2 - 1) / 12) / 255


@dataclass(frozen=True)
class FitSettings:
    """What decides a fit. The defaults are those of the published fit but for the numbers of images.

    Attributes:
        scales: ascending, from 1.
        side: V, of the kernels.
        size: E, of the square of pixels at scale 1.
        images, batch: how many images of noise there are, and in a batch. The published fit had 10,000 in batches of
            64. A single image has thousands of places for the few hundred numbers of a kernel.
        steps: of the optimiser in an epoch: as many as there were batches in the published fit.
        epochs, rate, drops: Adam's rate is divided by ten after these epochs; the best epoch is kept.
        seed: of the images, the order of the batches and the kernels at the start.
    """

    scales: tuple[float, ...]
    side: int
    size: int
    images: int = 32
    batch: int = 8
    steps: int = 157
    epochs: int = 40
    rate: float = 1e-3
    drops: tuple[int, ...] = (20, 30)
    seed: int = 0


#: The published bases: of the MNIST-scale networks, and of the wide residual network.
FITS = {"mnist": FitSettings((1.0, 1.26, 1.59, 2.0), 15, 7), "stl10": FitSettings((1.0, 1.41, 2.0), 5, 3)}


@dataclass(frozen=True)
class Fit:
    """Fitted kernels [E^2, V, V] of every scale in float64, and the mean loss of each epoch."""

    kernels: tuple[Tensor, ...]
    losses: tuple[float, ...]


def whole_kernels(scale: int, size: int, side: int) -> Tensor:
    """The E x E pixels, rows before columns, each a kernel of one tap, `scale` pixels apart: [E^2, side, side]."""
    kernels, places = torch.zeros(size, size, side, side, **EXACT), torch.arange(size, device="cpu")
    taps = side // 2 + scale * (places - size // 2)
    kernels[places[:, None], places[None, :], taps[:, None], taps[None, :]] = 1.0
    return kernels.reshape(size**2, side, side)


def shrunk(maps: Tensor, ratio: float) -> Tensor:
    """Maps [b, c, h, w] shrunk by a ratio below 1: bicubic, half-pixel centres, no antialiasing."""
    return F.interpolate(maps, scale_factor=ratio, mode="bicubic", align_corners=False)


def taps_of(maps: Tensor, side: int) -> Tensor:
    """Every circular shift of maps [b, 1, h, w] by the taps of a kernel: [b, V^2, h, w]."""
    half = side // 2
    columns = F.unfold(F.pad(maps, (half,) * 4, mode="circular"), side)
    return columns.reshape(*columns.shape[:2], *maps.shape[-2:])


def noise(settings: FitSettings) -> Tensor:
    """The images [n, 1, 154, 154]: noise of eight bits, from -1/2 to 1/2."""
    generator = torch.Generator().manual_seed(settings.seed)
    shape = settings.images, 1, IMAGE_SIDE, IMAGE_SIDE
    return torch.randint(0, 256, shape, generator=generator, device="cpu").to(**EXACT) / 255 - 0.5


def moments(images: Tensor, ratio: float, side: int) -> Tensor:
    """The matrix [2 V^2, 2 V^2] of the squared norm of one pair of scales, for the kernels (k_i, k_j) in a row."""
    total = torch.zeros(2 * side**2, 2 * side**2, **EXACT)
    frame = side // 2 + 1
    for image in torch.split(images, 1):
        before, after = taps_of(shrunk(image, ratio), side), shrunk(taps_of(image, side), ratio)
        both = torch.cat([before, -after], dim=1)[0, :, frame:-frame, frame:-frame].flatten(1)
        total += both @ both.t()
    return total


def expected_moments(ratio: float, side: int, image_side: int = IMAGE_SIDE) -> Tensor:
    """What `moments` is for one image on average over noise.

    Shrinking works along rows and columns apart and noise is white, so the matrix is the product of one matrix for each
    axis.
    """
    eye = torch.eye(image_side, **EXACT)
    rows = shrunk(eye[None, None].expand(1, 1, -1, -1), ratio).shape[-1]
    # The matrix of shrinking along one axis: lines that are constant along the other keep their values there.
    matrix = shrunk(eye[None, :, :, None].expand(-1, -1, -1, image_side), ratio)[0, :, :, 0].t()
    half, frame = side // 2, side // 2 + 1
    shifts = range(-half, half + 1)
    before = torch.stack([matrix.roll(-v, 0) for v in shifts])[:, frame : rows - frame]
    after = torch.stack([matrix.roll(v, 1) for v in shifts])[:, frame : rows - frame]
    line = torch.einsum("aun,bun->ab", both := torch.cat([before, after]), both)
    blocks = [
        [torch.kron(line[i : i + side, j : j + side], line[i : i + side, j : j + side]) for j in (0, side)]
        for i in (0, side)
    ]
    signs = torch.tensor([1.0, -1.0], **EXACT).repeat_interleave(side**2)
    white = torch.cat([torch.cat(row, dim=1) for row in blocks])
    return SPREAD**2 * white * signs[:, None] * signs


def loss_of(kernels: Sequence[Tensor], matrices: dict[tuple[int, int], Tensor]) -> Tensor:
    """The sum over pairs of scales of the norm of the difference, of all functions and images together."""
    total = torch.zeros((), **EXACT)
    for (i, j), matrix in matrices.items():
        pair = torch.cat([kernels[i].flatten(1), kernels[j].flatten(1)], dim=1)
        total = total + ((pair @ matrix) * pair).sum().clamp_min(0).sqrt()
    return total


def fit(settings: FitSettings) -> Fit:
    """Fit the kernels of the scales that are no whole numbers; the same settings give the same kernels."""
    pairs = [
        (i, j)
        for i, j in combinations(range(len(settings.scales)), 2)
        if not (settings.scales[i].is_integer() and settings.scales[j].is_integer())
    ]
    batches = [
        {(i, j): moments(part, settings.scales[i] / settings.scales[j], settings.side) for i, j in pairs}
        for part in torch.split(noise(settings), settings.batch)
    ]
    return descend(settings, batches)


def descend(settings: FitSettings, batches: Sequence[dict[tuple[int, int], Tensor]]) -> Fit:
    """Adam from random kernels, the batches in random order; the kernels after the best epoch."""
    generator = torch.Generator().manual_seed(settings.seed + 1)
    kernels = [
        whole_kernels(int(scale), settings.size, settings.side)
        if scale.is_integer()
        else torch.randn(settings.size**2, settings.side, settings.side, generator=generator, **EXACT).requires_grad_()
        for scale in settings.scales
    ]
    optimiser = torch.optim.Adam([one for one in kernels if one.requires_grad], settings.rate)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, list(settings.drops), 0.1)
    losses: list[float] = []
    best = [one.detach().clone() for one in kernels]
    for _ in range(settings.epochs):
        total = 0.0
        for index in torch.randint(len(batches), (settings.steps,), generator=generator, device="cpu").tolist():
            optimiser.zero_grad()
            loss = loss_of(kernels, batches[index])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += float(loss.detach())
        schedule.step()
        losses.append(total / settings.steps)
        if losses[-1] == min(losses):
            best = [one.detach().clone() for one in kernels]
    return Fit(tuple(best), tuple(losses))


@cache
def least_kernels(scale: float, size: int, side: int) -> Tensor:
    """The kernels [E^2, side, side] of one scale beside scale 1 that have the least expected loss.

    With a single pair the least norm is the least square, which is the solution of linear equations.
    """
    whole = whole_kernels(1, size, side).flatten(1)
    matrix, taps = expected_moments(1 / scale, side), side**2
    cross, own = matrix[:taps, taps:], matrix[taps:, taps:]
    solution: Tensor = torch.linalg.lstsq(own, -(whole @ cross).t(), driver="gelsd").solution
    return solution.t().reshape(size**2, side, side)


def write(folder: Path = KERNELS.parent) -> None:
    """Repeat the published fits, and write the kernels and what made them."""
    arrays: dict[str, np.ndarray] = {}
    told: dict[str, object] = {"torch": torch.__version__}
    for name, settings in FITS.items():
        found = fit(settings)
        free = [k for k, scale in enumerate(settings.scales) if not scale.is_integer()]
        arrays |= {f"{name}-{settings.scales[k]:g}": found.kernels[k].to(torch.float32).numpy() for k in free}
        told[name] = {**asdict(settings), "first_loss": found.losses[0], "least_loss": min(found.losses)}
    np.savez_compressed(folder / KERNELS.name, **arrays)  # type: ignore[arg-type]
    (folder / PROVENANCE.name).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
