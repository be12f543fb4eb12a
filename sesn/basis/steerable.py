"""SteerableBasis: fixed functions whose change of scale is a change of sigma (paper, section 2 and appendix C).

A function psi becomes steerable by psi_sigma(x, y) = sigma^-2 psi(x/sigma, y/sigma), with y along rows (down) and x
along columns (right). Where each function is a product of two one-dimensional profiles, a `SteerableBasis` keeps the
profiles, and builds the two-dimensional functions only when they are asked for. The families are in the files beside
this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from sesn._checks import complaint, odd, require
from sesn.errors import UsageError, WrongTypeError
from sesn.scales import ScaleGrid

#: Windows proportional to sigma with this odd side for the largest, as in the paper, or as wide as the family needs.
Window = int | Literal["wide"]

#: Half-width of a wide window in sigmas: orders up to 3 have decayed to rounding of float32 there.
WIDE_HALF_WIDTH = 4.5
#: Bases are built in float64 on the CPU, whatever torch's default device is.
EXACT: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
#: psi(x, y): x is the column coordinate (to the right), y the row coordinate (downwards), both in units of sigma.
PlaneFunction = Callable[[Tensor, Tensor], Any]


class LineFunction(Protocol):
    """A one-dimensional function that can be sampled at every scale, and compared and hashed."""

    #: As `SteerableBasis.reach`.
    reach: ClassVar[float]

    def sample(self, sigma: float, radius: int) -> Tensor:
        """(1/sigma) times the function for this scale at x = -radius .. radius, in float64."""
        ...


@dataclass(frozen=True)
class ProfilePairs:
    """Function i of the basis is profiles[rows[i]] down times profiles[columns[i]] across."""

    profiles: tuple[LineFunction, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @classmethod
    def of(cls, functions: Sequence[tuple[LineFunction, LineFunction]]) -> ProfilePairs:
        """From (row profile, column profile) pairs, each distinct profile kept once."""
        profiles = tuple(dict.fromkeys(profile for pair in functions for profile in pair))
        index = {profile: i for i, profile in enumerate(profiles)}
        return cls(profiles, tuple(index[row] for row, _ in functions), tuple(index[col] for _, col in functions))


class SteerableBasis:
    """N_b functions sampled at every scale of a grid, each on its own centred box, normalised at the smallest scale.

    Made by `basis_for`, by the function of a family (`basis_a`, `basis_b`, `basis_bspline`, `basis_fourier_bessel`,
    `basis_log_radial`), or by `SteerableBasis.from_function` or `SteerableBasis.from_samples`.

    Args:
        grid: the scales.
        boxes: the odd side of each scale's box; outside it the functions are zero.
        pairs: the functions as products of one-dimensional profiles.
        functions: any functions of the plane in their place.
        samples: the functions [N_b, box, box] of every scale in their place. Exactly one of the three is given.
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
        samples: Sequence[Tensor] | None = None,
        name: str = "SteerableBasis",
    ) -> None:
        if [pairs, functions, samples].count(None) != 2:
            raise UsageError(
                "give exactly one of `pairs` (products of profiles), `functions` (of the plane) and `samples` (numbers)"
            )
        self.grid = grid
        self.boxes = tuple(odd(f"boxes[{k}]", box) for k, box in enumerate(boxes))
        require(len(self.boxes) == len(grid), "boxes", self.boxes, f"one per scale ({len(grid)})")
        self.kernel_size = max(self.boxes)
        self.pairs = pairs
        self.name = name
        self._plane_functions = tuple(functions or ())
        self._given = tuple(samples or ())
        _ = self._samples  # a function of the wrong shape, or that vanishes, is reported here rather than at first use

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
            UsageError: `psi` is not a function, or what it returns has the wrong shape or vanishes.

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
        return cls(grid, window_boxes(grid, window), functions=functions, name="from_function")

    @classmethod
    def from_samples(cls, samples: Sequence[Tensor], grid: ScaleGrid) -> SteerableBasis:
        """Make a basis of functions that are given pixel by pixel at every scale, such as fitted ones.

        They are taken as they are, except for the normalisation. Whoever makes them has to see to it that the functions
        of one scale are those of another, enlarged. They cannot be sampled on another grid or window.

        Args:
            samples: for every scale a tensor [n, box, box] of the same n functions on that scale's own odd box.
            grid: the scales.

        Returns:
            The basis.

        Raises:
            UsageError: the samples do not fit the grid or each other, or a function vanishes at the smallest scale.

        Example:
            >>> small, large = torch.ones(1, 1, 1), torch.zeros(1, 3, 3)
            >>> large[:, ::2, ::2] = 0.25
            >>> sesn.SteerableBasis.from_samples([small, large], sesn.ScaleGrid([1.0, 2.0]))
            from_samples(1 functions, sigmas [1.0, 2.0], boxes [1, 3])
        """
        known_grid(grid)
        counts = {len(plane) for plane in samples if isinstance(plane, Tensor) and plane.dim() == 3}
        for k, plane in enumerate(samples):
            rule = "[n, box, box] with the same n >= 1 at every scale"
            if not isinstance(plane, Tensor):
                raise WrongTypeError(complaint(f"samples[{k}]", plane, f"a tensor {rule}"))
            good = plane.dim() == 3 and plane.shape[1] == plane.shape[2] and len(counts) == 1 and len(plane) > 0
            require(good, f"samples[{k}].shape", tuple(plane.shape), rule)
        exact = [plane.detach().to(**EXACT) for plane in samples]
        return cls(grid, [plane.shape[-1] for plane in exact], samples=exact, name="from_samples")

    #: Bases that were pickled before there were samples have none.
    _given: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        """The number of functions, N_b."""
        return len(self.pairs.rows) if self.pairs is not None else self._samples[0].shape[0]

    @property
    def separable(self) -> bool:
        """Whether every function is a product of one-dimensional profiles."""
        return self.pairs is not None

    @property
    def reach(self) -> float | None:
        """Sigmas to each side that hold all of the functions: a narrower window cuts off some of them.

        It is 0 for functions that are defined on their box, whatever its size, and None where it is not known.
        """
        parts: Sequence[Any] = self.pairs.profiles if self.pairs is not None else self._plane_functions
        return getattr(parts[0], "reach", None) if parts else None

    def resampled(self, grid: ScaleGrid, boxes: Sequence[int]) -> SteerableBasis:
        """Sample the same functions on another grid and on other boxes.

        Args:
            grid: the scales.
            boxes: the odd side of each scale's box.

        Returns:
            The basis, normalised anew.

        Raises:
            UsageError: the basis is made of samples, or of functions of which nothing is known.

        Example:
            >>> narrow = sesn.basis_a(sesn.ScaleGrid([1.0, 2.0]), 7, 2)
            >>> narrow.resampled(sesn.ScaleGrid([2.0, 4.0]), [5, 13])
            basis_a(4 functions, sigmas [2.0, 4.0], boxes [5, 13])
        """
        if self.reach is None:
            raise UsageError(f"a basis made by {self.name} cannot be sampled on another window or grid")
        functions = self._plane_functions or None
        return SteerableBasis(grid, boxes, pairs=self.pairs, functions=functions, name=self.name)

    @cached_property
    @torch.inference_mode(False)  # else functions first asked for in inference mode could not be trained with
    def functions(self) -> Tensor:
        """All functions on the common V x V window, [N_b, S, V, V] in float64."""
        window = torch.zeros(len(self), len(self.grid), self.kernel_size, self.kernel_size, **EXACT)
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
        elif self._given:
            samples = list(self._given)
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
            waves = torch.arange(1, box**2 + 1, **EXACT).sqrt().cos()  # nothing that a function could be blind to
            numbers += (self.scale_functions(scale).flatten(1) @ waves).tolist()
        return {"sigmas": self.grid.sigmas, "boxes": self.boxes, "functions": tuple(numbers)}

    def __repr__(self) -> str:
        sigmas = [round(sigma, 4) for sigma in self.grid]
        return f"{self.name}({len(self)} functions, sigmas {sigmas}, boxes {list(self.boxes)})"


def known_grid(grid: Any) -> ScaleGrid:
    """Return the grid, or say how one is made."""
    if not isinstance(grid, ScaleGrid):
        raise WrongTypeError(complaint("grid", grid, "a ScaleGrid", "for example ScaleGrid.geometric(1.5, 1.41, 4)"))
    return grid


def window_boxes(grid: ScaleGrid, window: Window) -> tuple[int, ...]:
    """The odd side of each scale's box: proportional to sigma up to this side, or 4.5 sigma either side ("wide")."""
    known_grid(grid)
    if window == "wide":
        return tuple(2 * math.ceil(WIDE_HALF_WIDTH * sigma) + 1 for sigma in grid)
    if window is None or isinstance(window, str):
        wrong = UsageError if isinstance(window, str) else WrongTypeError
        raise wrong(complaint("window", window, "an odd number or 'wide'", "such as 7"))
    size = odd("window", window)
    return tuple(2 * (math.floor(size * sigma / grid.largest) // 2) + 1 for sigma in grid)


def boxes_for(grid: ScaleGrid, window: Window, effective_size: int) -> tuple[int, ...]:
    """The boxes, once it is known that an E x E set of functions fits the largest."""
    boxes = window_boxes(grid, window)
    rule = f"at most the kernel's side ({max(boxes)})"
    remedy = "an E x E box larger than the kernel has more functions than the kernel has taps; raise `window`"
    require(effective_size <= max(boxes), "effective_size", effective_size, rule, remedy)
    return boxes


def _sample_plane(functions: Sequence[PlaneFunction], sigma: float, box: int) -> Tensor:
    """Evaluate the functions on a box x box grid in units of sigma, with the steering prefactor sigma^-2."""
    axis = torch.arange(-(box // 2), box // 2 + 1, **EXACT) / sigma
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    planes = [torch.as_tensor(function(x, y), **EXACT) for function in functions]
    rule = f"[{box}, {box}] or [n, {box}, {box}], like its arguments"
    for plane in planes:
        good = plane.shape[-2:] == (box, box) and plane.dim() in (2, 3)
        require(good, "psi(x, y).shape", tuple(plane.shape), rule)
    return torch.cat([plane.reshape(-1, box, box) for plane in planes]) / sigma**2
