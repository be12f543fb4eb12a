"""Projections: a field [b, c, s, h, w] loses its scale axis.

A field is equivariant wherever a scale has a partner. A projection sees all scales, so it also sees those that
rescaling brings in at one end of the grid and takes away at the other: most of Delta of maps and scores is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, cast

import torch
from torch import Tensor

from sesn import _checks
from sesn._torch import numbers_like
from sesn.algorithms.axis import plain_number
from sesn.errors import WrongTypeError
from sesn.layers.store import Store
from sesn.layers.typed import TensorModule
from sesn.scales import ScaleGrid

Reduce = Literal["max", "mean", "soft"]
#: Of a soft maximum, for features of about unit size, as after a norm.
SHARPNESS = 4.0


class ScaleProjection(TensorModule):
    """One value for all scales: a field [b, c, s, h, w] becomes a map, equivariant up to the ends of the grid.

    Args:
        reduce: "max", "mean", or "soft", the soft maximum log(mean(exp(sharpness f))) / sharpness.
        sharpness: of the soft maximum: towards 0 it is the mean, towards infinity the maximum.
        taper: how many scales at each end count less, the outermost least; not for the maximum, which has no weights.
        leave_out: how many scales at the small and at the large end do not count. The meter says (`lost`) how many
            interscale layers have spoilt at the large end.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> sesn.ScaleProjection()(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 16, 16])
        >>> sesn.ScaleProjection(reduce="soft", sharpness=2.0, taper=1)
        ScaleProjection(reduce='soft', sharpness=2.0, taper=1)
    """

    def __init__(
        self,
        reduce: Reduce = "max",
        *,
        sharpness: float = SHARPNESS,
        taper: int = 0,
        leave_out: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.reduce = cast(Reduce, _checks.one_of("reduce", reduce, ("max", "mean", "soft")))
        _checks.require(_checks.positive(sharpness), "sharpness", sharpness, "a positive, finite number")
        self.sharpness = float(sharpness)
        self.taper = _checks.whole("taper", taper, 0)
        remedy = "use reduce='soft', the soft maximum"
        _checks.require(not (self.taper and reduce == "max"), "taper", taper, "0 for a maximum", remedy)
        if not isinstance(leave_out, Sequence) or len(leave_out) != 2:
            rule = "two whole numbers, of scales at the small and at the large end"
            raise WrongTypeError(_checks.complaint("leave_out", leave_out, rule))
        small, large = (_checks.whole(f"leave_out[{i}]", count, 0) for i, count in enumerate(leave_out))
        self.leave_out = (small, large)
        self._store = Store()

    def forward(self, field: Tensor) -> Tensor:
        """Project a field to a map.

        Args:
            field: [b, c, s, h, w], or [b, c, s] after a GlobalPool.

        Returns:
            The map [b, c, h, w], or [b, c].

        Raises:
            UsageError: the field has another shape, or too few scales for what is left out and tapered.
        """
        pooled = isinstance(field, Tensor) and field.dim() == 3
        _checks.real_tensor("field", field, "b c s" if pooled else "b c s h w")
        return self._projected(field, *self.leave_out)

    def _projected(self, field: Tensor, small: int, large: int) -> Tensor:
        count = field.shape[2] - small - large
        least = small + large + max(1, 2 * self.taper)
        rule = f"at least {least} scales: {small} and {large} are left out at the ends, and {self.taper} tapered"
        _checks.require(count >= max(1, 2 * self.taper), "field.shape[2]", field.shape[2], rule, "use a longer grid")
        kept = field.narrow(2, small, count)
        if self.reduce == "max":
            return kept.amax(dim=2)
        weights = self._store.get(count, kept, lambda: numbers_like(kept, _weights(count, self.taper)))
        weights = weights.reshape(-1, *[1] * (kept.dim() - 3))
        if self.reduce == "mean":
            return (weights * kept).sum(dim=2)
        # Exact for a small sharpness, too. The largest value is taken off for the range of exp: no gradient is its own.
        largest = kept.detach().amax(dim=2, keepdim=True)
        above = (weights * torch.expm1(self.sharpness * (kept - largest))).sum(dim=2)
        return largest.squeeze(2) + torch.log1p(above) / self.sharpness

    def extra_repr(self) -> str:
        """What is made of the scales, and which do not count, or count less."""
        told = [f"reduce={self.reduce!r}"]
        told += [f"sharpness={self.sharpness}"] if self.reduce == "soft" else []
        told += [f"taper={self.taper}"] if self.taper else []
        return ", ".join([*told, *([f"leave_out={self.leave_out}"] if any(self.leave_out) else [])])


def _weights(count: int, taper: int) -> list[float]:
    """Weights that sum to 1: equal ones in the middle, and those of the tapered scales on a cosine down to the ends."""
    inwards = (min(place, count - 1 - place) + 1 for place in range(count))
    heights = [math.sin(math.pi / 2 * min(1.0, step / (taper + 1))) ** 2 for step in inwards]
    return [height / sum(heights) for height in heights]


class PartneredProjection(ScaleProjection):
    """A projection over the scales that have a partner in the same picture at every other size.

    If images come in several sizes, the size of a field says which of its scales have a partner in all of them. In
    the largest images these are the scales at the large end, and in smaller images those as many steps further down.
    Over these the projection is as equivariant as the field. It does not help if objects change their size and the
    image does not.

    Args:
        grid: the field's scales.
        side: the shorter side of the fields that it is given for the largest images.
        steps: by how many steps of the grid the smallest images are smaller. This many scales are left out at each
            size.
        reduce, sharpness, taper: as in `ScaleProjection`.
        leave_out: scales that are left out in addition, as in `ScaleProjection`.

    Raises:
        UsageError: an argument breaks its rule.

    Example:
        >>> grid = sesn.ScaleGrid.geometric(1.5, 2.0, 4)
        >>> project = sesn.PartneredProjection(grid, side=32, steps=1)
        >>> field = torch.arange(4.0)[:, None, None].expand(1, 1, 4, 32, 32)
        >>> project(field).max(), project(field[..., ::2, ::2]).max()  # scales 1 to 3, and 0 to 2
        (tensor(3.), tensor(2.))
    """

    def __init__(
        self,
        grid: ScaleGrid,
        *,
        side: int,
        steps: int = 1,
        reduce: Reduce = "max",
        sharpness: float = SHARPNESS,
        taper: int = 0,
        leave_out: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(reduce=reduce, sharpness=sharpness, taper=taper, leave_out=leave_out)
        if not isinstance(grid, ScaleGrid):
            raise WrongTypeError(_checks.complaint("grid", grid, "a ScaleGrid", "give that of the layer before"))
        self.side, self.steps = _checks.whole("side", side, 1), _checks.whole("steps", steps, 1)
        rule = f"less than the number of scales ({len(grid)})"
        _checks.require(self.steps < len(grid), "steps", steps, rule, "use a longer grid")
        self.ratio = grid.ratio
        # Made here: torch.compile with dynamic=True takes the ratio for a variable, which no text can tell.
        self._rule = f"within {self.steps} step(s) of {self.ratio:.4g} below {self.side}, the `side` of the largest"
        downs = {here: self._down(here) for here in range(1, math.ceil(self.side * self.ratio) + 1)}
        self._downs = {here: down for here, down in downs.items() if 0 <= down <= self.steps}

    def _down(self, here: int) -> int:
        """How many steps a field of this side is below the largest."""
        return round(math.log(self.side / here) / math.log(self.ratio))

    def forward(self, field: Tensor) -> Tensor:
        """Project a field to a map.

        Args:
            field: [b, c, s, h, w].

        Returns:
            The map [b, c, h, w].

        Raises:
            UsageError: the field has another shape or size, or too few scales.
        """
        _checks.real_tensor("field", field, "b c s h w")
        here, remedy = plain_number(min(field.shape[-2:])), "give another `side` or more `steps`"
        _checks.require(here in self._downs, "side of the field", here, self._rule, remedy)
        down, (small, large) = self._downs[here], self.leave_out
        return self._projected(field, small + self.steps - down, large + down)

    def extra_repr(self) -> str:
        """The sizes, and what is made of the scales."""
        return f"side={self.side}, steps={self.steps} of {self.ratio:.4g}, {super().extra_repr()}"
