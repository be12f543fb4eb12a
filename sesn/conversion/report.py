"""What became of every layer of a converted network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fate = Literal["replaced", "kept", "cannot be"]
#: How many different reasons a message names.
NAMED = 3


@dataclass(frozen=True)
class Step:
    """One layer, or one call of a function in the network's own code.

    Attributes:
        name: of the layer in the network.
        fate: "replaced", "kept", or "cannot be" where it fits no field.
        before: what it was.
        after: what stands in its place, or the reason for its fate.
        residual: of kernels that were fitted, the part that the basis does not span; else None.
    """

    name: str
    fate: Fate
    before: str
    after: str
    residual: float | None = None


@dataclass(frozen=True)
class ConversionReport:
    """What `convert` did, layer by layer in the order in which they ran; `str` gives it as a table.

    Attributes:
        steps: the layers.
        reference: the index of the scale at which the network follows the original.
        error: the largest difference there between the two outputs over the largest output, measured on the example;
            None where the converted network does not run.

    Example:
        >>> _, report = sesn.convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
        >>> report.runs, report.error < 1e-5
        (True, True)
        >>> print(report)
        2 layers: 1 replaced, 1 kept, 0 cannot be; ...
        layer  fate      before        after
        0      replaced  Conv2d 3 x 3  ScaleLift, residual ...
        1      kept      ReLU          does the same on fields
    """

    steps: tuple[Step, ...]
    reference: int
    error: float | None

    @property
    def runs(self) -> bool:
        """Whether nothing stands in the way of the converted network."""
        return not self.having("cannot be")

    @property
    def residual(self) -> float:
        """The largest residual of a layer: 0 where every basis spans its kernels."""
        return max((step.residual for step in self.steps if step.residual is not None), default=0.0)

    def having(self, fate: Fate) -> tuple[Step, ...]:
        """The layers of one fate.

        Args:
            fate: "replaced", "kept" or "cannot be".

        Returns:
            These layers, in the order in which they ran.
        """
        return tuple(step for step in self.steps if step.fate == fate)

    def obstacles(self) -> str:
        """Say in one line what cannot be converted.

        Returns:
            The first few layers and why.
        """
        found = self.having("cannot be")
        words = [f"{step.name or 'the network'} ({step.before}): {step.after}" for step in found[:NAMED]]
        return "; ".join([*words, f"and {len(found) - NAMED} more"] if len(found) > NAMED else words)

    def __str__(self) -> str:
        fates: tuple[Fate, ...] = ("replaced", "kept", "cannot be")
        counts = ", ".join(f"{len(self.having(fate))} {fate}" for fate in fates)
        error = "it does not run" if self.error is None else f"error {self.error:.2g}"
        title = f"{len(self.steps)} layers: {counts}; residual {self.residual:.2g}; at scale {self.reference} {error}"
        rows = [("layer", "fate", "before", "after"), *(_cells(step) for step in self.steps)]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows]
        return "\n".join([title, *lines])


def _cells(step: Step) -> tuple[str, str, str, str]:
    residual = "" if step.residual is None else f", residual {step.residual:.2g}"
    return step.name, step.fate, step.before, step.after + residual
