"""Steerable bases: fixed functions whose change of scale is a change of sigma (paper, section 2 and appendix C).

A function psi becomes steerable by psi_sigma(x, y) = sigma^-2 psi(x/sigma, y/sigma). The paper takes Hermite
polynomials under a Gaussian,

    psi_sigma(x, y) = A sigma^-2 He_n(y/sigma) He_m(x/sigma) exp(-(x^2 + y^2) / (2 sigma^2)),

with He_n the probabilists' polynomials (He_2(t) = t^2 - 1), y along rows (down) and x along columns (right). Each
function is a product of two one-dimensional profiles; a `SteerableBasis` keeps the profiles, and builds the
two-dimensional functions only when they are asked for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sesn._checks import complaint, numbers, odd, positive, require, whole
from sesn.errors import UsageError, WrongTypeError
from sesn.scales import ScaleGrid

#: Windows proportional to sigma with this odd side for the largest, as in the paper, or 4.5 sigma either side.
Window = int | Literal["wide"]

#: Half-width of a wide window in sigmas: orders up to 3 have decayed to rounding of float32 there.
WIDE_HALF_WIDTH = 4.5
#: Below this width a Gaussian sampled at whole pixels is no longer well resolved.
SMALLEST_RESOLVED_SIGMA = 1.2

#: Bases are built in float64 on the CPU, whatever torch's default device is.
_EXACT: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
#: psi(x, y): x is the column coordinate (to the right), y the row coordinate (downwards), both in units of sigma.
PlaneFunction = Callable[[Tensor, Tensor], Any]


@dataclass(frozen=True)
class Profile:
    """A one-dimensional Hermite-Gauss function of `order`, narrower than its scale's sigma by `divisor`."""

    order: int
    divisor: float = 1.0

    def sample(self, sigma: float, radius: int) -> Tensor:
        """(1/sigma) He_n(x/sigma) exp(-x^2/(2 sigma^2)) at x = -radius .. radius, in float64."""
        width = sigma / self.divisor
        x = np.arange(-radius, radius + 1, dtype=np.float64) / width
        hermite = np.polynomial.hermite_e.hermeval(x, [0.0] * self.order + [1.0])
        return torch.from_numpy(hermite * np.exp(-0.5 * x**2) / width)


@dataclass(frozen=True)
class ProfilePairs:
    """Function i of the basis is profiles[rows[i]] down times profiles[columns[i]] across."""

    profiles: tuple[Profile, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @classmethod
    def of(cls, functions: Sequence[tuple[Profile, Profile]]) -> ProfilePairs:
        """From (row profile, column profile) pairs, each distinct profile kept once."""
        profiles = tuple(dict.fromkeys(profile for pair in functions for profile in pair))
        index = {profile: i for i, profile in enumerate(profiles)}
        return cls(profiles, tuple(index[row] for row, _ in functions), tuple(index[col] for _, col in functions))


class SteerableBasis:
    """N_b functions sampled at every scale of a grid, each on its own centred box, normalised at the smallest scale.

    Made by `basis_for`, `basis_a`, `basis_b` or `SteerableBasis.from_function`.

    Args:
        grid: the scales.
        boxes: the odd side of each scale's box; outside it the functions are zero.
        pairs: the functions as products of one-dimensional profiles.
        functions: any functions of the plane in their place; exactly one of the two is given.
        name: how the basis was made, for its repr.

    Attributes:
        grid, boxes, pairs, name: as given.
        kernel_size: V, the side of the largest box.
        functions: the float64 tensor [N_b, S, V, V], built on first access.

    Raises:
        UsageError: the boxes do not fit the grid, or a function vanishes on its box.

    Example:
        >>> basis = sesn.basis_a(sesn.ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)
        >>> len(basis), basis.boxes, basis.functions.shape
        (9, (3, 5, 7), torch.Size([9, 3, 7, 7]))
    """

    def __init__(
        self,
        grid: ScaleGrid,
        boxes: Sequence[int],
        *,
        pairs: ProfilePairs | None = None,
        functions: Sequence[PlaneFunction] | None = None,
        name: str = "SteerableBasis",
    ) -> None:
        if (pairs is None) == (functions is None):
            raise UsageError("give exactly one of `pairs` (products of profiles) and `functions` (any functions)")
        self.grid = grid
        self.boxes = tuple(odd(f"boxes[{k}]", box) for k, box in enumerate(boxes))
        require(len(self.boxes) == len(grid), "boxes", self.boxes, f"one per scale ({len(grid)})")
        self.kernel_size = max(self.boxes)
        self.pairs = pairs
        self.name = name
        self._plane_functions = tuple(functions or ())
        if pairs is not None:
            self.scale_profiles(0)  # reports a function that vanishes on its box here rather than at first use

    @classmethod
    def from_function(
        cls, psi: PlaneFunction | Sequence[PlaneFunction], grid: ScaleGrid, window: Window
    ) -> SteerableBasis:
        """Make any function, or several, steerable: psi_sigma(x, y) = sigma^-2 psi(x/sigma, y/sigma).

        Such a basis has no one-dimensional factors, so the separable algorithm does not apply.

        Args:
            psi: a function that gets two float64 tensors [V, V] of coordinates in units of sigma (x to the right, y
                downwards) and returns a tensor of that shape, or several stacked [n, V, V]; or a list of those.
            grid: the scales.
            window: as in `basis_a`, and so is the normalisation.

        Returns:
            The basis.

        Raises:
            UsageError: `psi` is no function, or what it returns has the wrong shape or vanishes.

        Example:
            >>> ring = lambda x, y: (x**2 + y**2) * torch.exp(-(x**2 + y**2))
            >>> sesn.SteerableBasis.from_function(ring, sesn.ScaleGrid([1.5, 3.0]), 13)
            from_function(1 functions, sigmas [1.5, 3.0], boxes [7, 13])
        """
        functions = tuple(psi) if isinstance(psi, Sequence) else (psi,)
        require(len(functions) > 0, "psi", psi, "a function or a non-empty sequence of functions")
        for function in functions:
            if not callable(function):
                raise WrongTypeError(complaint("psi", function, "callable", "give psi(x, y) on tensors"))
        basis = cls(grid, window_boxes(grid, window), functions=functions, name="from_function")
        basis.scale_functions(0)  # so that a psi of the wrong shape or norm is reported here, not at first use
        return basis

    def __len__(self) -> int:
        """The number of functions, N_b."""
        return len(self.pairs.rows) if self.pairs is not None else self._samples[0].shape[0]

    @property
    def separable(self) -> bool:
        """Whether every function is a product of one-dimensional profiles."""
        return self.pairs is not None

    @cached_property
    @torch.inference_mode(False)  # else functions first asked for in inference mode could not be trained with
    def functions(self) -> Tensor:
        """All functions on the common V x V window, [N_b, S, V, V] in float64."""
        window = torch.zeros(len(self), len(self.grid), self.kernel_size, self.kernel_size, **_EXACT)
        for k, box in enumerate(self.boxes):
            margin = (self.kernel_size - box) // 2
            window[:, k, margin : margin + box, margin : margin + box] = self.scale_functions(k)
        return window

    def scale_functions(self, scale: int) -> Tensor:
        """Sample the functions of one scale on that scale's own box.

        Args:
            scale: the index of the scale.

        Returns:
            [N_b, box, box] in float64.
        """
        if self.pairs is None:
            return self._samples[scale]
        profiles = self.scale_profiles(scale)
        return profiles[list(self.pairs.rows), :, None] * profiles[list(self.pairs.columns), None, :]

    def scale_profiles(self, scale: int) -> Tensor:
        """Sample the one-dimensional profiles of one scale, each of norm 1 at scale 0.

        Args:
            scale: the index of the scale.

        Returns:
            [F, box] in float64.

        Raises:
            UsageError: the basis is not made of products.
        """
        if self.pairs is None:
            raise UsageError(f"a basis made by {self.name} has no one-dimensional profiles; use algorithm='dense'")
        return self._samples[scale]

    @cached_property
    @torch.inference_mode(False)
    def _samples(self) -> tuple[Tensor, ...]:
        """The profiles [F, box] of every scale, or the functions [N_b, box, box] of a basis that has none.

        A product has the product of the norms, so normalising the profiles normalises the functions.
        """
        places = list(zip(self.grid, self.boxes, strict=True))
        if self.pairs is not None:
            profiles = self.pairs.profiles
            samples = [torch.stack([one.sample(sigma, box // 2) for one in profiles]) for sigma, box in places]
        else:
            samples = [_sample_plane(self._plane_functions, sigma, box) for sigma, box in places]
        norms = samples[0].flatten(1).norm(dim=1)
        for index, norm in enumerate(norms.tolist()):
            if not (math.isfinite(norm) and norm > 0):
                raise UsageError(
                    f"basis function {index} has norm {norm} on the smallest scale's box, so it cannot be normalised; "
                    "raise `window` or the smallest sigma, or drop that function"
                )
        return tuple(sample / norms.reshape(-1, *[1] * (sample.dim() - 1)) for sample in samples)

    @cached_property
    @torch.inference_mode(False)
    def signature(self) -> dict[str, tuple[float, ...]]:
        """Numbers that differ wherever two bases do: the sigmas, the boxes, and one number a function and scale."""
        numbers: list[float] = []
        for scale, box in enumerate(self.boxes):
            waves = torch.arange(1, box**2 + 1, **_EXACT).sqrt().cos()  # nothing that a function could be blind to
            numbers += (self.scale_functions(scale).flatten(1) @ waves).tolist()
        return {"sigmas": self.grid.sigmas, "boxes": self.boxes, "functions": tuple(numbers)}

    def __repr__(self) -> str:
        sigmas = [round(sigma, 4) for sigma in self.grid]
        return f"{self.name}({len(self)} functions, sigmas {sigmas}, boxes {list(self.boxes)})"


def basis_a(grid: ScaleGrid, window: Window, effective_size: int, *, max_order: int | None = None) -> SteerableBasis:
    """Make a basis of type A: the order pairs (n, m) of an E x E grid, one sigma per scale.

    The order along rows runs fastest.

    Args:
        grid: the scales.
        window: an odd side V gives scale s the box 2 floor(floor(V s / s_max) / 2) + 1, as in the paper; "wide" gives
            it the half-width ceil(4.5 s), which cuts nothing off.
        effective_size: E.
        max_order: the highest total order n + m that is kept (E = 3, max_order = 2: six functions); all by default.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> grid = sesn.ScaleGrid.geometric(1.5, 2.0, 2)
        >>> len(sesn.basis_a(grid, 7, 3)), len(sesn.basis_a(grid, "wide", 3, max_order=2))
        (9, 6)
    """
    size = whole("effective_size", effective_size, 1)
    limit = 2 * size if max_order is None else whole("max_order", max_order, 0)
    boxes = _hermite_boxes(grid, window, size)
    functions = [
        (Profile(row), Profile(column)) for column in range(size) for row in range(size) if row + column <= limit
    ]
    return SteerableBasis(grid, boxes, pairs=ProfilePairs.of(functions), name="basis_a")


def basis_b(
    grid: ScaleGrid, window: Window, effective_size: int, *, max_order: int = 4, mult: float = 1.4
) -> SteerableBasis:
    """Make a basis of type B: E x E functions at the sub-sigmas sigma, sigma/mult, sigma/mult^2, and so on.

    The functions are listed sub-sigma by sub-sigma and the first E^2 are kept. The sub-sigmas of a scale share that
    scale's box. Its narrowest functions are resolved, and Delta is low, only while the smallest sub-sigma is at least
    1.2 pixels: a wide window that goes below warns.

    Args:
        grid: the scales.
        window: as in `basis_a`.
        effective_size: E.
        max_order: the highest total order n + m.
        mult: the step between sub-sigmas.

    Returns:
        The basis.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.basis_b(sesn.ScaleGrid([1.7, 5.1]), 15, 7, mult=1.5)
        basis_b(49 functions, sigmas [1.7, 5.1], boxes [5, 15])
    """
    size = whole("effective_size", effective_size, 1)
    order = whole("max_order", max_order, 0)
    remedy = "each sub-sigma is the last one divided by mult"
    require(positive(mult) and mult > 1, "mult", mult, "greater than 1", remedy)
    boxes = _hermite_boxes(grid, window, size)
    orders = [(row, column) for column in range(order + 1) for row in range(order + 1 - column)]
    sub_sigmas = math.ceil(size**2 / len(orders))
    functions = [
        (Profile(row, mult**j), Profile(column, mult**j)) for j in range(sub_sigmas) for row, column in orders
    ][: size**2]
    narrowest = grid.smallest / mult ** (sub_sigmas - 1)
    if window == "wide" and narrowest < SMALLEST_RESOLVED_SIGMA:
        warnings.warn(
            f"the smallest sub-sigma is {narrowest:.3g} pixels, below {SMALLEST_RESOLVED_SIGMA}: wide windows will not "
            "make Delta small; raise the grid's smallest sigma, lower `mult` or `effective_size`, or use basis_a",
            stacklevel=2,
        )
    return SteerableBasis(grid, boxes, pairs=ProfilePairs.of(functions), name="basis_b")


def basis_for(
    sizes: Sequence[float] = (0.5, 2.0), scales: int = 4, *, smallest: float = SMALLEST_RESOLVED_SIGMA
) -> SteerableBasis:
    """Make a good basis from the range of object sizes that a network should cover.

    It has `scales` widths in equal ratios, the largest as many times the smallest as the largest object is the
    smallest one; the ten functions of type A up to order 3; and wide windows. The documentation's page
    "Which grid?" has its Delta and cost. Layers without a basis use `basis_for()`.

    Args:
        sizes: the smallest and the largest size of the objects, in any unit, since their ratio alone counts:
            (0.5, 2.0) is for objects of half to twice the size of those that the network is trained on.
        scales: how many scale channels cover that range.
        smallest: the smallest sigma in pixels; below 1.2 a Gaussian is not resolved by the pixels.

    Returns:
        The basis. Make it once and give it to every layer of a network.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.basis_for(sizes=(0.5, 2.0), scales=3)
        basis_for(10 functions, sigmas [1.2, 2.4, 4.8], boxes [13, 23, 45])
    """
    ends = numbers("sizes", sizes, "the smallest and the largest size, such as (0.5, 2.0)")
    rule = "two positive numbers, the smaller first"
    require(len(ends) == 2 and all(map(positive, ends)) and ends[0] < ends[1], "sizes", ends, rule)
    count = whole("scales", scales, 2, "one scale covers one size")
    resolved = positive(smallest) and smallest >= SMALLEST_RESOLVED_SIGMA
    require(resolved, "smallest", smallest, f"at least {SMALLEST_RESOLVED_SIGMA}", "basis_a takes any width")
    basis = basis_a(
        ScaleGrid.geometric(smallest, (ends[1] / ends[0]) ** (1 / (count - 1)), count), "wide", 4, max_order=3
    )
    basis.name = "basis_for"
    return basis


@cache
def default_basis() -> SteerableBasis:
    """The basis of a layer that was given none; one for all of them, so that they agree."""
    return basis_for()


def window_boxes(grid: ScaleGrid, window: Window) -> tuple[int, ...]:
    """The odd side of each scale's box: proportional to sigma up to this side, or 4.5 sigma either side ("wide")."""
    if not isinstance(grid, ScaleGrid):
        raise WrongTypeError(complaint("grid", grid, "a ScaleGrid", "for example ScaleGrid.geometric(1.5, 1.41, 4)"))
    if window == "wide":
        return tuple(2 * math.ceil(WIDE_HALF_WIDTH * sigma) + 1 for sigma in grid)
    if window is None or isinstance(window, str):
        wrong = UsageError if isinstance(window, str) else WrongTypeError
        raise wrong(complaint("window", window, "an odd number or 'wide'", "such as 7"))
    size = odd("window", window)
    return tuple(2 * (math.floor(size * sigma / grid.largest) // 2) + 1 for sigma in grid)


def _hermite_boxes(grid: ScaleGrid, window: Window, effective_size: int) -> tuple[int, ...]:
    boxes = window_boxes(grid, window)
    rule = f"at most the kernel's side ({max(boxes)})"
    remedy = "an E x E box larger than the kernel has more functions than the kernel has taps; raise `window`"
    require(effective_size <= max(boxes), "effective_size", effective_size, rule, remedy)
    return boxes


def _sample_plane(functions: Sequence[PlaneFunction], sigma: float, box: int) -> Tensor:
    """Evaluate the functions on a box x box grid in units of sigma, with the steering prefactor sigma^-2."""
    axis = torch.arange(-(box // 2), box // 2 + 1, **_EXACT) / sigma
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    planes = [torch.as_tensor(function(x, y), **_EXACT) for function in functions]
    rule = f"[{box}, {box}] or [n, {box}, {box}], like its arguments"
    for plane in planes:
        good = plane.shape[-2:] == (box, box) and plane.dim() in (2, 3)
        require(good, "psi(x, y).shape", tuple(plane.shape), rule)
    return torch.cat([plane.reshape(-1, box, box) for plane in planes]) / sigma**2
