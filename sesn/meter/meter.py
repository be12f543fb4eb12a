"""The meter: the one place that runs both branches of a module, moves outputs by the group and has them compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sesn._checks import one_of, require, whole
from sesn.algorithms.resample import Canvas, Ends, Resampler, resampled_size, resampler_ends
from sesn.errors import UsageError
from sesn.meter import reading
from sesn.meter.action import ScaleTranslation
from sesn.meter.attribution import Exact, shares
from sesn.meter.branches import Branches, scrambled
from sesn.meter.compare import Action, EquivarianceError, acted, compare, moved_channels
from sesn.meter.elements import Element, element_of
from sesn.meter.extent import automatic_crop, background, output_crop, seen_by, spoiled_along
from sesn.meter.floor import reference_error
from sesn.meter.reading import KINDS, Kind, Reading
from sesn.meter.stages import Key, Recorded, Stage, recorded
from sesn.scales import ScaleGrid


@dataclass(frozen=True)
class Meter:
    """How Delta is measured. The same meter measures any module, at any factor.

    Args:
        resampler: "lanczos3" for zero-padded modules, "fourier" for circular ones, "bicubic", "legacy".
        ends: what lies past the border for the resampler; by default "circular" for "fourier", else "zeros". With
            crop=0, "inside" keeps the resampler from darkening the border.
        crop: pixels to leave out at each border; by default min(receptive radius x s + 3, a quarter of the side).
        kind: what the output is: "field" [b, c, s, h, w], "map" [b, c, h, w], "scale" [b, c, s], "invariant" [b, c].
        grid: the output's scales; by default the module's `grid`, or that of the submodule that made the output.
        spoiled: scale channels at the large end that interscale layers fill with zeros; by default counted.
        action: how L_s acts on an output that is none of these: action(output, factor) -> output. If it has a method
            `partnered(output, direct, factor)`, a mask of what can be compared, `valid` is over that alone.
        canvas: "follow" for images that change their size with the picture in them; "keep" for networks that take one
            size: the picture is rescaled on its canvas, where `ends` is the background ("reflection" by default,
            "mean", "zeros", "circular"). Of maps, the background is left out with the border.

    Raises:
        UsageError: the resampler, the ends or the kind is unknown, `crop` or `spoiled` is negative, or an action is
            given with a grid.

    Example:
        >>> meter = sesn.Meter(crop=4)
        >>> images = torch.randn(2, 1, 32, 32)
        >>> error = meter.measure(nn.Identity(), images, 0.5)
        >>> error.valid.tolist(), error.meter == meter
        ([0.0, 0.0], True)
        >>> [error.factor for error in meter.sweep(nn.Identity(), images, [0.5, 0.75])]
        [0.5, 0.75]
    """

    resampler: Resampler = "lanczos3"
    ends: Ends | Literal["auto"] = "auto"
    crop: int | Literal["auto"] = "auto"
    kind: Kind = "auto"
    grid: ScaleGrid | None = None
    spoiled: int | None = None
    action: Action | None = None
    canvas: Canvas = "follow"

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if self.crop != "auto":
            whole("crop", self.crop, 0, "give pixels to leave out at each border, or 'auto'")
        if self.spoiled is not None:
            whole("spoiled", self.spoiled, 0, "give the scale channels to leave out, or None to have them counted")
        resampler_ends(self.resampler, self.ends, self.canvas)
        if self.action is not None and (self.grid is not None or self.spoiled is not None):
            raise UsageError(
                "`action` says how the whole output moves, scales included: give it without `grid` and `spoiled`"
            )

    def __str__(self) -> str:
        """The resampler, and what differs from the default."""
        named = ("kind", "crop", "ends")
        told = [f"{name} {getattr(self, name)}" for name in named if getattr(self, name) != "auto"]
        scales = [] if self.grid is None else ["grid " + ", ".join(f"{sigma:.4g}" for sigma in self.grid)]
        kept = [] if self.canvas == "follow" else [f"on a kept canvas, background {self._past}"]
        return "; ".join([f"resampler {self.resampler}", *told, *scales, *kept])

    @property
    def _past(self) -> Ends:
        return resampler_ends(self.resampler, self.ends, self.canvas)

    def move(self, images: Tensor, factor: Element, stride: float = 1) -> Tensor:
        """Apply L_s to the last two axes, or whatever else is done to images.

        Args:
            images: [..., h, w].
            factor: s > 0, or what else is done to the images: a `ScaleTranslation`, `Rotation` or `Transform`.
            stride: pixels between neighbours, by which a translation is divided; fractions are resampled.

        Returns:
            [..., round(h s), round(w s)], or [..., h, w] if the canvas is kept.

        Raises:
            UsageError: the images are not square, and have to be.
        """
        return element_of(factor).act(images, self.resampler, self._past, self.canvas, stride)

    def branches(self, module: nn.Module, images: Tensor, factor: Element, original: Reading | None = None) -> Branches:
        """Run both branches and move the output of the original one.

        Args:
            module, images, factor: as in `measure`.
            original: the original branch, where it was run before.

        Returns:
            Both outputs and how they came about, for `error`.
        """
        with torch.no_grad():
            exact = images.to(torch.float64)
            small = self.move(exact, factor)
            original = original or reading.read(module, exact)
            direct = original.output if small is exact else reading.call(module, small)
            return self._moved(module, exact, small, original, direct, factor)

    def measure(
        self,
        module: nn.Module,
        images: Tensor,
        factor: Element,
        *,
        context: bool = True,
        repeat: bool = True,
        apart: bool = False,
    ) -> EquivarianceError:
        """Measure Delta of a module under L_s, s = factor (< 1 shrinks).

        Args:
            module: any module in eval mode that takes images.
            images: f [b, c, h, w]; zero-mean images, or a large mean hides the error (see `centred`).
            factor: s > 0, or what else is done to the images: a `ScaleTranslation`, `Rotation` or `Transform`.
            context: measure also what Delta is judged by, the floor (else NaN) and the ceiling (else None).
            repeat: call the module once more, and refuse it if its output depends on state or chance; False saves the
                call for a module that is known to have neither.
            apart: let every channel of every image count as an image.

        Returns:
            Delta for each image, and what it is judged by.

        Raises:
            UsageError: the images, the factor or the module's output cannot be measured.
        """
        (error,) = self.sweep(module, images, [factor], context=context, repeat=repeat, apart=apart)
        return error

    def sweep(
        self,
        module: nn.Module,
        images: Tensor,
        factors: Sequence[Element],
        *,
        context: bool = True,
        repeat: bool = True,
        apart: bool = False,
    ) -> Iterator[EquivarianceError]:
        """Measure Delta at each factor, one after the other, from one Phi(f).

        Args:
            module, images, context, repeat, apart: as in `measure`.
            factors: factors, or elements of the group.

        Yields:
            The error at each.
        """
        reading.check_asked(module, images, *factors)
        exact = images.to(torch.float64)
        with torch.no_grad():
            original = reading.read(module, exact)
        for place, factor in enumerate(factors):
            with torch.no_grad():
                small = self.move(exact, factor)
                direct = reading.call(module, small)
                if repeat and place == 0:
                    smaller = (small, direct) if element_of(factor).scale < 1 else (exact, original.output)
                    reading.check_repeatable(module, *smaller)
                found = self._moved(module, exact, small, original, direct, factor)
                error = self.error(found, context=context, apart=apart)
            yield error

    def along(self, chain: Iterable[nn.Module], images: Tensor, factor: float) -> Iterator[EquivarianceError]:
        """Measure Delta after each module of a chain, from one pass of each branch; without floor and repetition.

        Args:
            chain: modules in eval mode that are called one after the other, such as a Sequential.
            images, factor: as in `measure`.

        Yields:
            The error after each module.
        """
        modules = [*chain]
        for module in modules:
            reading.check_asked(module, images, factor)
        exact = images.to(torch.float64)
        small = direct = self.move(exact, factor)
        original: Reading | None = None
        for place, module in enumerate(modules, start=1):
            with torch.no_grad():
                # From module to module in their own dtype: `call` gives back float64, which holds it exactly.
                original = reading.read(module, exact if original is None else original.output, original)
                direct = reading.call(module, direct)
                so_far = nn.Sequential(*modules[:place])
                error = self.error(self._moved(so_far, exact, small, original, direct, factor), context=False)
            yield error

    def inside(
        self,
        module: nn.Module,
        images: Tensor,
        factor: Element,
        on_step: Callable[[float], None] = lambda part: None,
    ) -> list[Stage]:
        """Measure Delta after every call of every submodule, in call order; without floor and repetition.

        Outputs are read by their rank, with the scales of the layers they come from; the meter's `grid` is for those
        that no layer with a `grid` was called before. Tokens are read as maps. What functions have made before a call
        is a stage of its own.

        Args:
            module, images, factor: as in `measure`.
            on_step: told which part of the comparisons was made now; the parts sum to 1.

        Returns:
            A stage for each call, with its error or the reason why there is none.
        """
        reading.check_asked(module, images, factor)
        with torch.no_grad():
            exact = images.to(torch.float64)
            small = self.move(exact, factor)
            original, direct = (recorded(module, x, self.grid) for x in (exact, small))
            other = recorded(module, scrambled(small), self.grid)
            found: dict[Key, tuple[Stage, Exact | None]] = {}
            known: dict[Any, tuple[Stage, Exact | None]] = {}  # by the very same outputs, which containers share
            # Each call with the same call in the other branch: a network may branch on its input.
            for key, one in original.items():
                moved = direct.get(key)
                same: Any = (id(one.output), id(moved.output), one.grid) if moved is not None else key
                if one.output is None or same not in known:
                    known[same] = self._stage(one, moved, other.get(key), exact, small, factor)
                (told, right) = known[same]
                found[key] = replace(one.stage, error=told.error, note=told.note), right
                on_step(0.5 / len(original))
            around = {stage.name.rpartition(".")[0] for stage, _ in found.values()} - {""}
            rights = {key: right for key, (_, right) in found.items() if right is not None}
            added = shares(module, small, rights, around, lambda part: on_step(part / 2))
            return [added.given_to(key, stage) for key, (stage, _) in found.items()]

    def _stage(
        self,
        one: Recorded,
        moved: Recorded | None,
        other: Recorded | None,
        images: Tensor,
        small: Tensor,
        factor: Element,
    ) -> tuple[Stage, Exact | None]:
        """Compare one call in the two branches and for unrelated images, or say why it cannot be done."""
        if moved is None:
            return replace(one.stage, note="not called for the rescaled images"), None
        before, after = one.reading, moved.reading
        if before is None or after is None:
            return replace(one.stage, note=one.stage.note or moved.stage.note), None
        meter = replace(self, grid=one.grid, kind="auto")
        # What layers are given may not darken at the border, which a mean over space would count.
        bright = replace(meter, ends="inside") if self._past == "zeros" and self.ends == "auto" else meter
        try:
            found, fed = (
                each._moved(one.stage.module, images, small, before, after.output, factor) for each in (meter, bright)
            )
            if found.moved.shape != found.direct.shape:
                got, expected = ("x".join(map(str, output.shape[1:])) for output in (found.direct, found.moved))
                note = f"its size does not follow the image's: {got}, {expected} expected"
                return replace(one.stage, note=note), None
            unrelated = None if other is None or other.reading is None else other.reading.output
            error = meter.error(found, context=False, unrelated=unrelated)
        except UsageError as problem:
            return replace(one.stage, note=str(problem)), None
        return replace(one.stage, error=error), Exact(meter, fed, unrelated, one.apart)

    def crop_for(self, module: nn.Module, images: Tensor, factor: float) -> int:
        """Tell the automatic crop of a module, as a number that can be given for others that look less far.

        Args:
            module, images, factor: as in `measure`.

        Returns:
            Pixels at each border of the output.
        """
        seen, smaller = seen_by(module, images), resampled_size(min(images.shape[-2:]), factor)
        reach = factor if self.canvas == "follow" else 1.0
        return automatic_crop(seen, reach, most=int(smaller / seen.stride / 4))

    def floor(self, images: Tensor, factor: Element, crop: int) -> Tensor:
        """Measure what the meter itself contributes: Delta of a well sampled reference lift on each image.

        Args:
            images: f [b, c, h, w].
            factor: s > 0, or what else is done to the images: a `ScaleTranslation`, `Rotation` or `Transform`.
            crop: pixels of the rescaled image to leave out at each border, at most a quarter of its side.

        Returns:
            One number per image.
        """
        return reference_error(images.to(torch.float64), element_of(factor), self.resampler, self._past, crop)

    def error(
        self, found: Branches, *, context: bool = True, apart: bool = False, unrelated: Tensor | None = None
    ) -> EquivarianceError:
        """Compare two branches that were run.

        Args:
            found: what `branches` returned.
            context, apart: as in `measure`.
            unrelated: outputs for unrelated images, where they are known and no context is measured.

        Returns:
            The error, with this meter in it.
        """
        margin = spoiled_along(found.original.path, self.spoiled) if found.grid is not None else 0
        edge = background(found.kind, found.direct, found.element, self.canvas)
        cut, seen = output_crop(found, self.crop, acted=self.action is not None, edge=edge)
        floor = torch.full((len(found.images),), math.nan, dtype=torch.float64, device="cpu")
        told: dict[str, Any] = {"measured": seen.measured, "meter": self}
        if context:
            floor = self.floor(found.images, found.element, math.ceil((cut - (edge or 0)) * seen.stride))
            unrelated = found.unrelated()
            told |= {"rounding": found.rounding(), "told_apart": found.told_apart(unrelated)}
        if apart:
            moved, direct = (x.flatten(0, 1)[:, None] for x in (found.moved, found.direct))
            found = replace(found, moved=moved, direct=direct)
            unrelated = None if unrelated is None else unrelated.flatten(0, 1)[:, None]
        whole = replace(compare(found, margin, cut, floor, unrelated), **told)
        partnered = getattr(self.action, "partnered", None)
        if partnered is None:
            return whole
        mask = partnered(found.original.output, found.direct, found.factor)
        masked = replace(found, moved=found.moved * mask, direct=found.direct * mask)
        return replace(compare(masked, margin, cut, floor, unrelated), all=whole.all, **told)

    def _moved(
        self, module: nn.Module, images: Tensor, small: Tensor, original: Reading, direct: Tensor, factor: Element
    ) -> Branches:
        """The branches with the output of the original one moved as its kind says."""
        element, output = element_of(factor), original.output
        if self.action is not None:
            scaled = isinstance(element, ScaleTranslation)
            rule = "left out here: it says how outputs move under scalings"
            require(scaled, "action", self.action, rule, "give a Transform with a function for outputs")
            kind, grid = "action" if self.kind == "auto" else str(self.kind), None
            moved = acted(self.action, output, element.scale)
        else:
            kind = reading.output_kind(self.kind, output)
            grid = reading.output_grid(module, self.grid, output, kind, original.path)
            told = element.act_on_outputs(output)
            if told is None and kind in reading.SPATIAL:
                move = partial(self.move, factor=element, stride=original.seen.stride)
                told = moved_channels(move, output, grid, element.scale)
            moved = output if told is None else told
        return Branches(module, images, small, original, direct, moved, kind, grid, element)
