"""What the steerable convolutions share: the parameters, the samples of the basis, and one scale's convolution.

Axes everywhere: b batch, c (i in, o out) channels, s scales from small to large, h rows, w columns, n basis functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sesn import _checks
from sesn._meaning import Constants, WithMeaning
from sesn._torch import casting, picked, recording, transforming
from sesn.algorithms import (
    ALGORITHMS,
    DEVICE_ALGORITHMS,
    Axis,
    compose_kernel,
    dense_convolution,
    plane_taps,
    separable_convolution,
    spectral_convolution,
)
from sesn.algorithms.choose import Algorithm
from sesn.algorithms.decide import Ways
from sesn.algorithms.fused import (
    Geometry,
    Tables,
    fused_convolution,
    make_tables,
    terms_of,
)
from sesn.algorithms.separable import Passes, ScaleTask, make_passes
from sesn.basis import SteerableBasis, default_basis
from sesn.errors import UsageError, WrongTypeError
from sesn.layers.choice import ChoosesAlgorithms
from sesn.layers.each import each_map
from sesn.layers.store import Store
from sesn.layers.typed import TensorModule
from sesn.scales import ScaleGrid

#: A number for rows and columns alike, or one for each.
Sides = int | tuple[int, int]
#: What lies past the border of an image.
Border = Literal["zeros", "circular", "reflect", "replicate"]
#: Borders of the image's own pixels, which are put around it first.
MIRRORS = ("reflect", "replicate")


class SteerableConv(WithMeaning, ChoosesAlgorithms, TensorModule):
    """A convolution with kernels sum_n w[o, i, n] psi_n; a subclass says which input scales an output scale sees.

    The samples of the basis are buffers that are not saved, in the dtype and on the device of the weight:
    one-dimensional profiles where the basis has them, the two-dimensional functions otherwise. What is derived from
    them for a map size is in the layer's store.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None
    #: The axes of the weight after those of the channels.
    _weight_tail: Callable[[], tuple[int, ...]]
    #: The input scales that each output scale sees, the last exclusive.
    _windows: Callable[[], list[tuple[int, int]]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        basis: SteerableBasis | None = None,
        *,
        stride: Sides = 1,
        padding: str | Sides = "same",
        padding_mode: Border = "zeros",
        groups: int = 1,
        bias: bool = True,
        algorithm: Algorithm = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = _checks.whole("in_channels", in_channels, 1)
        self.out_channels = _checks.whole("out_channels", out_channels, 1)
        basis = self.basis = known_basis(basis)
        self.stride = sides_of(stride)
        self.padding = _padding(padding, basis.kernel_size)
        self.padding_mode = _checks.one_of("padding_mode", padding_mode, ("zeros", "circular", *MIRRORS))
        self.groups = _checks.whole("groups", groups, 1)
        for name in ("in_channels", "out_channels"):
            channels, rule = getattr(self, name), f"a multiple of groups (={groups})"
            _checks.require(channels % self.groups == 0, name, channels, rule)
        self.algorithm = _checks.one_of("algorithm", algorithm, (*ALGORITHMS, *DEVICE_ALGORITHMS))
        if algorithm in ("separable", "fused") and not basis.separable:
            raise UsageError(
                f"`algorithm` (={algorithm!r}) needs products of one-dimensional functions, which {basis!r} is not; "
                "use 'dense', 'spectral' or 'auto'"
            )
        _checks.float_dtype(dtype)
        biased = _checks.flag("bias", bias)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        shape = out_channels, in_channels // self.groups, *self._weight_tail()
        self.weight = nn.Parameter(torch.empty(shape, **options))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels, **options)) if biased else None)
        self._store = Store()
        self._sample(self.weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights uniformly in +-1/sqrt(C_in K_S N_b) and set biases to zero, as the released models start."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def grid(self) -> ScaleGrid:
        """The scales of the output."""
        return self.basis.grid

    @property
    def kernel_size(self) -> int:
        """The side of the widest kernel, V."""
        return self.basis.kernel_size

    @property
    def receptive_radius(self) -> int:
        """Pixels that the widest kernel sees to each side."""
        return self.basis.kernel_size // 2

    def meaning(self) -> Constants:
        """What the weights multiply.

        Returns:
            The sigmas, the windows and numbers that tell the functions apart.
        """
        return self.basis.signature

    def kernels(self) -> list[Tensor]:
        """Compose the kernel of every output scale from the weights and the functions, in float64 on the CPU.

        Returns:
            [o, seen i, box, box] for each scale: the channels of a group in all input scales that it sees, scale by
            scale.
        """
        weight, basis = self.weight.cpu().double(), self.basis
        return [
            _composed(weight, stop - start, basis.scale_functions(k)) for k, (start, stop) in enumerate(self._windows())
        ]

    def multiply_adds(self, shape: Sequence[int]) -> int:
        """Count the multiply-adds of the textbook convolution, with each scale's whole box at every output.

        Args:
            shape: the shape of the input.

        Returns:
            The number for the whole batch.
        """
        positions = math.prod(axis.outputs for axis in self._axes(shape[-2:], pair_of(self.padding)))
        taps = sum((b - a) * self.basis.boxes[k] ** 2 for k, (a, b) in enumerate(self._windows()))
        return shape[0] * self.in_channels * self.out_channels // self.groups * taps * positions

    def _load_from_state_dict(self, *args: Any) -> None:
        self._store.clear()  # as for `_apply`
        super()._load_from_state_dict(*args)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Move or cast the layer; the basis is taken afresh from float64, so that .double() loses nothing."""
        self._store.clear()  # first: it has a weak reference to the weight, which torch then cannot swap
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._sample(self.weight)
        return self

    # The samples of the basis

    @torch.inference_mode(False)  # else a layer made in inference mode could keep nothing of use outside
    def _sample(self, like: Tensor) -> None:
        """Put the samples on the layer as buffers, in the dtype and on the device of `like`."""
        for scale in range(len(self.grid)):
            samples = self.basis.scale_profiles if self.basis.separable else self.basis.scale_functions
            values = samples(scale).to(device=like.device, dtype=like.dtype)
            self.register_buffer(f"_samples_{scale}", values, persistent=False)

    def _follow(self, weight: Tensor) -> None:
        """Make the samples anew if the weight has come to another device or dtype without the layer being told."""
        samples = self._samples(0)
        moved = samples.device != weight.device or samples.dtype != weight.dtype
        if not recording() and (moved or samples.is_inference()):
            self._store.clear()
            self._sample(weight)

    def _samples(self, scale: int) -> Tensor:
        samples: Tensor = getattr(self, f"_samples_{scale}")  # get_buffer, which compilers of torch 2.6 do not know
        return samples

    def _taps(self, scale: int, rows: Axis, columns: Axis) -> Tensor:
        """The functions of one scale [n, y, x], cropped to the taps that can see data."""
        samples = self._samples(scale)
        pairs = self.basis.pairs

        def plane() -> Tensor:
            if pairs is None:
                return plane_taps(samples, rows, columns)
            centre = samples.shape[-1] // 2
            radii = (axis.useful_radius(centre) for axis in (rows, columns))
            down, across = (samples[:, centre - radius : centre + radius + 1] for radius in radii)
            return picked(down, pairs.rows)[:, :, None] * picked(across, pairs.columns)[:, None, :]

        return self._store.get(("taps", scale, rows, columns), samples, plane)

    def _passes(self, scale: int, rows: Axis, columns: Axis) -> Passes:
        """The two one-dimensional passes of one scale, as matrices."""
        samples = self._samples(scale)
        pairs = self.basis.pairs
        assert pairs is not None  # the constructor refuses the separable algorithm for other bases
        key = "passes", scale, rows, columns
        return self._store.get(key, samples, lambda: make_passes(samples, pairs, rows, columns))

    def _tables(self) -> Tables:
        """The profiles of all scales, as the fused kernels look them up."""
        samples, pairs = [self._samples(k) for k in range(len(self.grid))], self.basis.pairs
        assert pairs is not None  # as for the passes
        return self._store.get("tables", samples[0], lambda: make_tables(samples, pairs))

    # The convolution

    def _check_input(self, field: Tensor, weight: Tensor) -> None:
        """Reject what is no field for this layer."""
        _checks.with_channels("field", field, "b c s h w", self.in_channels, "in_channels")
        meaning = "number of scales of the layer's basis"
        _checks.extent("field", field, 2, len(self.basis.grid), meaning, "use the `grid` of the layer before")
        _checks.same_dtype("field", field, weight)

    def _convolve(self, field: Tensor, weight: Tensor) -> Tensor:
        """field [b, i, s, h, w], the layer's weight to [b, o, s', h', w'].

        The weight is handed down, not read again: a parametrised one is computed at each reading.
        """
        self._follow(weight)
        if self.padding_mode in MIRRORS:
            field = _mirrored(field, pair_of(self.padding), self.padding_mode)
        rows, columns = self._axes(field.shape[-2:], (0, 0) if self.padding_mode in MIRRORS else pair_of(self.padding))
        return self._by(self._ways(field, weight, rows, columns), field, weight, self.bias, rows, columns)

    def _by(self, ways: Ways, field: Tensor, weight: Tensor, bias: Tensor | None, rows: Axis, columns: Axis) -> Tensor:
        """The convolution by the algorithm that is given for each output scale."""
        together: dict[str, Tensor] = {
            way: self._together(
                way, [k for k, each in enumerate(ways) if each == way], field, weight, bias, rows, columns
            )
            for way in ("separable", "fused")
            if way in ways
        }
        if together and len(set(ways)) == 1:
            return together[ways[0]]
        done = {way: iter(maps.unbind(2)) for way, maps in together.items()}
        slices = field.unbind(2)
        maps = [
            next(done[way])
            if way in done
            else self._kernel_scale(way, k, slices[start:stop], weight, bias, rows, columns)
            for k, (way, (start, stop)) in enumerate(zip(ways, self._windows(), strict=True))
        ]
        return torch.stack(maps, dim=2)

    def _together(
        self,
        way: str,
        scales: list[int],
        field: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rows: Axis,
        columns: Axis,
    ) -> Tensor:
        """Several scales at once by the algorithms that take one-dimensional profiles."""
        windows, weight = self._windows(), per_scale(weight)
        if way == "separable" or transforming():
            tasks = [ScaleTask(*windows[k], self._passes(k, rows, columns)) for k in scales]
            return separable_convolution(field, weight, bias, tasks)
        terms = terms_of([windows[k] for k in scales], scales, self.basis.boxes)
        geometry = Geometry(rows, columns, self.groups, field.shape[2], len(scales), weight.shape[2], terms)
        return fused_convolution(field, weight, bias, self._tables(), geometry)

    def _kernel_scale(
        self,
        way: str,
        scale: int,
        seen: Sequence[Tensor],
        weight: Tensor,
        bias: Tensor | None,
        rows: Axis,
        columns: Axis,
    ) -> Tensor:
        """One scale by the algorithms that take a composed kernel."""
        x = side_by_side(seen, self.groups)
        kernel = self._kernel(scale, len(seen), weight, rows, columns)
        convolution = spectral_convolution if way == "spectral" else dense_convolution
        return convolution(x, kernel, bias, rows, columns)

    def _axes(self, sides: Sequence[int], padding: tuple[int, int]) -> tuple[Axis, Axis]:
        circular, places = self.padding_mode == "circular", zip(sides, pair_of(self.stride), padding, strict=True)
        rows, columns = (Axis.of(size, self.kernel_size, step, pixels, circular) for size, step, pixels in places)
        return rows, columns

    def _placed(self, sides: Sequence[int]) -> tuple[Axis, Axis]:
        """The axes of the convolution of maps with these sides, before borders are put around them."""
        padding = pair_of(self.padding)
        if self.padding_mode not in MIRRORS:
            return self._axes(sides, padding)
        return self._axes([side + 2 * pixels for side, pixels in zip(sides, padding, strict=True)], (0, 0))

    def _kernel(self, scale: int, seen: int, weight: Tensor, rows: Axis, columns: Axis) -> Tensor:
        """The kernel of one output scale for the input scales that it sees, as channels [o, seen i, y, x]."""
        taps = self._taps(scale, rows, columns)
        if self.training or torch.is_grad_enabled() or casting(taps):
            return _composed(weight, seen, taps)
        return self._store.kernel((scale, taps.shape), weight, lambda: _composed(weight, seen, taps))

    def extra_repr(self) -> str:
        """`in -> out` and what differs from the defaults."""
        same = self.kernel_size // 2
        defaults = {"stride": 1, "padding": same, "padding_mode": "zeros", "groups": 1, "bias": True}
        defaults["algorithm"] = "auto"
        own = {**vars(self), "bias": self.bias is not None}
        parts = [f"{self.in_channels} -> {self.out_channels}", f"basis={self.basis!r}"]
        return ", ".join(parts + [f"{name}={own[name]!r}" for name, value in defaults.items() if own[name] != value])


def per_scale(weight: Tensor) -> Tensor:
    """The weights as [o, i, k, n]: a lift sees one scale, the image's."""
    return weight if weight.dim() == 4 else weight.unsqueeze(2)


def _composed(weight: Tensor, seen: int, taps: Tensor) -> Tensor:
    """The kernel [o, seen i, y, x] of a scale that sees so many scales, from its functions [n, y, x]."""
    return compose_kernel(per_scale(weight)[:, :, :seen].transpose(1, 2).flatten(1, 2), taps)


def side_by_side(seen: Sequence[Tensor], groups: int) -> Tensor:
    """Maps [b, c, h, w] of several scales as channels: in every group of channels, scale by scale."""
    if len(seen) == 1:
        return seen[0]
    parts = zip(*(maps.chunk(groups, dim=1) for maps in seen), strict=True)
    return torch.cat([maps for group in parts for maps in group], dim=1)


def _mirrored(field: Tensor, padding: tuple[int, int], mode: str) -> Tensor:
    """The field with borders of its own pixels, which convolutions need no longer pad."""
    down, across = padding
    for side, pixels in zip(field.shape[-2:], padding, strict=True):
        rule = f"more than {pixels}, the padding, for padding_mode='reflect'"
        _checks.require(mode != "reflect" or side > pixels, "input side", side, rule, "use 'replicate'")
    return each_map(lambda maps: F.pad(maps, (across, across, down, down), mode), field)


def pair_of(sides: Sides) -> tuple[int, int]:
    """One number for rows and columns, or each its own."""
    return (sides, sides) if isinstance(sides, int) else sides


def sides_of(stride: Any, name: str = "stride", least: int = 1, remedy: str = "") -> Sides:
    """The number for rows and columns alike, or both; checked."""
    rows, columns = _checks.pair(name, stride, least, remedy)
    return rows if rows == columns else (rows, columns)


def _padding(padding: str | Sides, kernel_size: int) -> Sides:
    if isinstance(padding, str):
        return kernel_size // 2 if _checks.one_of("padding", padding, ("same", "valid")) == "same" else 0
    return sides_of(padding, "padding", 0, "or use 'same' or 'valid'")


def known_basis(basis: Any) -> SteerableBasis:
    """Return the basis, the one for all layers that were given none, or say how one is made."""
    if basis is None:
        return default_basis()
    if not isinstance(basis, SteerableBasis):
        raise WrongTypeError(
            _checks.complaint("basis", basis, "a SteerableBasis", "make one with basis_for or basis_a")
        )
    return basis
