"""Where the outputs of a strided, padded window sit along one spatial axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sesn._checks import require

#: What lies outside an axis: zeros, or the signal again.
PaddingMode = Literal["zeros", "circular"]


def plain_number(size: int) -> int:
    """A side as a number, also where torch records a graph with open sides: matrices and algorithms are made for one.

    A range has plain ends, so torch fixes the side (and compiles anew for another one) rather than work on with a
    symbol, of which comparing costs would make conditions that take it minutes to solve.
    """
    return range(size).stop


@dataclass(frozen=True)
class Axis:
    """`outputs` window centres at first, first + stride, ... on an axis of `size` pixels.

    Outside the axis the signal is zero, or, if `circular`, repeats.
    """

    size: int
    outputs: int
    first: int
    stride: int
    circular: bool

    @classmethod
    def of(cls, size: int, kernel_size: int, stride: int, padding: int, circular: bool) -> Axis:
        """The axis of a convolution with an odd window of `kernel_size`, padded by `padding` before striding."""
        size = plain_number(size)
        room = size + 2 * padding - kernel_size
        least = max(1, kernel_size - 2 * padding)
        rule = f"at least {least} for kernel_size={kernel_size} and padding={padding}"
        require(room >= 0 and size > 0, "input side", size, rule, "use padding='same' or a larger image")
        return cls(size, room // stride + 1, kernel_size // 2 - padding, stride, circular)

    @property
    def numbers(self) -> tuple[int, int, int, int, bool]:
        """What it is made of."""
        return self.size, self.outputs, self.first, self.stride, self.circular

    @property
    def last(self) -> int:
        """The last window centre."""
        return self.first + (self.outputs - 1) * self.stride

    @property
    def reach(self) -> int:
        """The farthest a pixel can lie from a centre, as symmetric windows go: taps beyond only ever see padding."""
        return max(self.size - 1 - self.first, 0)

    def useful_radius(self, radius: int) -> int:
        """The radius of the taps that can see data; on a circular axis every tap does."""
        return radius if self.circular else min(radius, self.reach)

    def margins(self, radius: int) -> tuple[int, int]:
        """Pixels to add before and after the axis (negative: to cut) so that windows of this radius fit."""
        return radius - self.first, self.last + radius - (self.size - 1)
