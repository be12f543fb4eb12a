"""A likely cause of an error, and the case that causes are looked for in."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from sesn.basis import SteerableBasis
from sesn.layers.conv import ScaleConv, ScaleLift
from sesn.meter.branches import Branches
from sesn.meter.compare import EquivarianceError
from sesn.meter.meter import Meter
from sesn.meter.reading import Reading


@dataclass(frozen=True)
class Finding:
    """One likely cause of an error.

    Attributes:
        cause: what it is.
        evidence: what was seen.
        remedy: what to do.
        code: a line of Python that does it, where one does; `module`, `images` and `output` are those of the user.
        option: the options of `sesn check` that do it; None where it takes Python, and empty where it is done already.

    Example:
        >>> print(sesn.Finding("padding", "Delta is 0.1 at the border", "Use larger images"))
        padding: Delta is 0.1 at the border. Use larger images.
    """

    cause: str
    evidence: str
    remedy: str
    code: str = ""
    option: str | None = None

    def __str__(self) -> str:
        return self._told(f"`{self.code}`" if self.code else "")

    def on_the_command_line(self) -> str:
        """Say the same to somebody who runs `sesn check`: its options in place of Python where there are some.

        Returns:
            The cause, what was seen, and what to do.
        """
        return str(self) if self.option is None else self._told(self.option)

    def _told(self, example: str) -> str:
        return f"{self.cause}: {self.evidence}. {self.remedy}{f', for example {example}' if example else ''}."


@dataclass(frozen=True)
class Case:
    """What the suspects look at."""

    module: nn.Module
    images: Tensor  # a few
    meter: Meter
    before: Reading  # of both branches, on those images
    after: Reading
    error: EquivarianceError
    repeated: float  # how far an image's output alone lies from that among others, relative to its size
    branches: Branches | None  # both outputs on those images, where they have scales and space
    #: By how much rescaling changes the spread of what a layer normalises, by the layer's name.
    spreads: dict[str, float] = field(default_factory=dict)

    @property
    def bases(self) -> list[SteerableBasis]:
        """The distinct bases of the steerable layers."""
        return list(dict.fromkeys(m.basis for m in self.module.modules() if isinstance(m, ScaleLift | ScaleConv)))
