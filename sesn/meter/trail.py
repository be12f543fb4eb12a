"""Following images through a module: how far each tensor looks, which scales it has, and what could not be read.

Hooks on every module see the layers that say how far they look; a mode sees the functions that are called outside of
them, so that a path leads from each tensor back to the images, and branches beside each other do not add up.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from sesn.meter.receptive import Receptive, Window, spoilt_by, window, window_of
from sesn.scales import ScaleGrid

#: Functions that look at other pixels, or may: a product of matrices mixes channels in one network, places in another.
_LOOKS = re.compile(
    r"_?_?(conv|(max|avg|lp|fractional_max|adaptive_avg|adaptive_max)_pool|upsample|grid_sample|(un)?fold|fft_"
    r"|pixel_(un)?shuffle|roll|flip|cumsum|r?matmul|bmm|baddbmm|einsum|linear"
    r"|scaled_dot_product|(native_)?multi_head_attention|transformer_encoder)"
)
#: Functions that ask their other tensor for its dtype and device, not for its values.
_CASTS = ("to", "type_as")
#: Functions that look at the whole map; layer norm does where it is over several axes.
_LOOKS_EVERYWHERE = ("group_norm", "instance_norm")


@dataclass(frozen=True)
class Path:
    """How a tensor came about from the images, along the longest of the ways that led to it."""

    seen: Receptive = field(default_factory=Receptive)  # how far it looks
    left: int = 0  # the side of the map that this was told of; 0 if of none yet
    spoiled: int = 0  # scale channels at the large end that interscale layers filled with zeros
    grids: tuple[ScaleGrid, ...] = ()  # the scales of the layers that it comes from; several if these differ
    #: Of the smallest map on the way, the stride and how many image pixels its centre lies off the image's.
    coarsest: tuple[float, float] = (1, 0)
    unread: frozenset[str] = frozenset()  # what it went through that does not say how far it looks
    hidden: frozenset[str] = frozenset()  # those of them that a layer may hide behind, with all that it says of itself

    def hiding(self, what: str) -> Path:
        """Followed by something that a layer may hide behind."""
        return replace(self, unread=self.unread | {what}, hidden=self.hidden | {what})

    def as_known(self) -> Path:
        """As if what it went through and could not be read looked at one pixel."""
        return replace(self, unread=frozenset(), hidden=frozenset())

    def through(self, seen: Window, before: int, after: int, side: int) -> Path:
        """Followed by a window that made `after` pixels a side of `before`, on images of this side."""
        now, coarsest = self.seen_on(before).then(*seen[:3]), self.coarsest
        if seen.samples and after > 1 and now.stride > 1 and now.stride >= coarsest[0]:
            coarsest = now.stride, now.off_centre(side, after)
        return replace(self, seen=now, left=after, coarsest=coarsest)

    def seen_on(self, left: int) -> Receptive:
        """How far a map with so many pixels a side looks; it has others if what is not known rearranged them."""
        return self.seen.rearranged(self.left, left)


def _joined(paths: Sequence[tuple[Tensor, Path]]) -> Path:
    """Of several tensors that became one: the largest and finest is the map, into which the others are spread.

    Where several are, it lies where the one does that came the most direct way.
    """
    if len(paths) == 1:
        return paths[0][1]
    every = [path for _, path in paths]

    def rank(tensor: Tensor, path: Path) -> tuple[float, ...]:
        side, seen = _side(tensor), path.seen
        return side, path.left == side, not math.isnan(seen.first), -seen.stride, -seen.radius

    main = max(paths, key=lambda each: rank(*each))[1]
    return Path(
        replace(main.seen, radius=max(path.seen.radius for path in every)),
        main.left,
        max(path.spoiled for path in every),
        tuple(dict.fromkeys(grid for path in every for grid in path.grids)),
        max((path.coarsest for path in every), key=lambda sampling: (sampling[0], abs(sampling[1]))),
        frozenset().union(*(path.unread for path in every)),
        frozenset().union(*(path.hidden for path in every)),
    )


def _on_scales(path: Path, layers: Sequence[nn.Module], spoils: bool) -> Path:
    """Followed by a layer, as it says it of the scale axis or else what ran in it, which comes after it."""
    grids = [grid for layer in layers if isinstance(grid := getattr(layer, "grid", None), ScaleGrid)]
    own = isinstance(getattr(layers[0], "grid", None), ScaleGrid)
    if grids:
        path = replace(path, grids=(grids[0] if own else grids[-1],))
    if not spoils:
        return path
    counted = layers[:1] if hasattr(layers[0], "interscale") else layers[1:]
    return replace(path, spoiled=path.spoiled + sum(map(spoilt_by, counted)))


def _side(tensor: Tensor) -> int:
    return min(tensor.shape[-2:]) if tensor.dim() >= 4 and not tensor.is_nested else 1


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


class Trail(TorchFunctionMode):
    """What a forward pass went through."""

    def __init__(self, start: Path | None = None, side: int | None = None) -> None:
        super().__init__()
        self.side = side or 0  # of the images, or of those that `start` says how these came about from
        self.start = start or Path()
        self.end: Path | None = None  # how the output came about; None if not from the images, or nobody saw how
        self.bug: Exception | None = None  # raised by the trail itself, not by the module that it follows
        self._paths: MutableMapping[Tensor, Path] = WeakTensorKeyDictionary()
        self._entered: list[nn.Module] = []
        self._reading = 0  # how many of those say how far they look
        self._within: list[nn.Module] = []  # the outermost of them, and what ran in it
        self._owned: set[int] = set()

    @contextmanager
    def following(self, module: nn.Module, images: Tensor) -> Iterator[None]:
        """See what happens to these images, which must be those that the module is given."""
        self.side = self.side or _side(images)
        self._paths[images] = replace(self.start, left=self.start.left or _side(images))
        with self._by_itself():
            # The forward of one of torch's layers may be called past its hooks: the functions in it are seen.
            known = [m for m in module.modules() if type(m).__module__.startswith("torch.nn.modules.")]
            self._owned = {id(p) for m in known for p in m.parameters(recurse=False)}
        thread = threading.get_ident()

        def hook(note: Callable[..., None]) -> Callable[..., None]:
            def noted(*seen: Any) -> None:
                if threading.get_ident() == thread:  # the hooks are every thread's
                    with self._by_itself():
                        note(*seen)

            return noted

        # Not with_kwargs, of which torch 2.13 leaves a trace for ever, and warns of it in every compiled module.
        handles = (
            register_module_forward_pre_hook(hook(self._enter)),
            register_module_forward_hook(hook(self._leave)),
        )
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        with self._by_itself():
            self._note(func, args, kwargs or {}, made)
        return made

    @contextmanager
    def _by_itself(self) -> Iterator[None]:
        """Where an error is the trail's own."""
        try:
            yield
        except Exception as error:
            self.bug = error
            raise

    def end_at(self, output: Any) -> None:
        """The module has returned this."""
        with self._by_itself():
            self.end = self.path_to(output) if isinstance(output, Tensor) else None

    def path_to(self, tensor: Tensor) -> Path | None:
        """How a tensor came about; None if it does not come from the images, or nobody saw how."""
        return self._paths.get(tensor)

    def _enter(self, layer: nn.Module, _: Any) -> None:
        self._within = [*self._within, layer] if self._reading else [layer]
        self._entered.append(layer)
        self._reading += window(layer) is not None
        self._owned.update(id(p) for p in layer.parameters(recurse=False))

    def _leave(self, layer: nn.Module, inputs: Any, made: Any) -> None:
        while self._entered:  # those above it raised, and somebody caught it
            left = self._entered.pop()
            self._reading -= window(left) is not None
            if left is layer:
                break
        speaks = window(layer) is not None
        for output in [] if self._reading else _tensors((made,)):
            path = self._paths.get(output)
            if speaks or isinstance(layer, torch.jit.ScriptModule):
                path = self._through(layer, [*_tensors(inputs)], output)
            if path is not None:
                self._paths[output] = _on_scales(path, self._within if speaks else [layer], speaks)

    def _through(self, layer: nn.Module, inputs: list[Tensor], made: Tensor) -> Path | None:
        """The path that a layer continues; None if it was given nothing that comes from the images."""
        path, told = self._source(inputs), window(layer)
        if told is not None and path is not None:
            return path.through(told, max(map(_side, inputs)), _side(made), self.side)
        if told is not None and inputs:
            return None
        by_name = " that is given its input by name" if told is not None else ""
        return (path or Path()).hiding(f"a {type(layer).__name__}{by_name}")

    def _source(self, tensors: list[Tensor]) -> Path | None:
        found = [(tensor, self._paths[tensor]) for tensor in tensors if tensor in self._paths]
        return _joined(found) if found else None

    def _note(self, function: Any, args: tuple[Any, ...], named: dict[str, Any], made: Any) -> None:
        """A function was called outside of the layers that say how far they look."""
        outputs = () if self._reading else [*_tensors((made,))]
        if not outputs:
            return
        casts = getattr(function, "__name__", "") in _CASTS
        inputs = [*_tensors(args[:1] if casts else (args, named))]
        path = self._source(inputs)
        if any(isinstance(tensor, nn.Parameter) and id(tensor) not in self._owned for tensor in inputs):
            path = (path or Path()).hiding("a parameter of a layer that was not called")
        if path is not None:
            path = self._after(path, function, args, named, outputs[0])
            for output in outputs:
                self._paths[output] = path

    def _after(self, path: Path, function: Any, args: tuple[Any, ...], named: dict[str, Any], made: Tensor) -> Path:
        """The path followed by a function."""
        sources = [tensor for tensor in _tensors((args, named)) if tensor in self._paths]
        before, after = max(map(_side, sources), default=1), _side(made)
        name, _, overload = getattr(function, "__name__", "").partition(".")
        looks = made.dim() > 2 and _LOOKS.match(name) and not (name.startswith("adaptive") and after == 1)
        # Tokens have three axes. Of other shapes, what has no space is said of a whole map.
        of_all = after > 1 and any(_side(tensor) == 1 and tensor.dim() != 3 for tensor in sources)
        # A map becomes the vector of its image where the images stay apart; rows of pixels are no vector.
        apart = any(tensor.shape[:1] == made.shape[:1] for tensor in sources)
        flattens = made.dim() == 2 and before > 1 and apart and name in ("flatten", "reshape", "view")
        if looks and overload:  # a person calls functions, an exported graph overloads
            return path.hiding(f"an exported {name}")
        if of_all or name in _LOOKS_EVERYWHERE or (name == "layer_norm" and len(args[1]) > 1):
            return replace(path, seen=replace(path.seen, radius=max(path.seen.radius, self.side)))
        if (known := window_of(name, args, named, before, after)) is not None:
            return path.through(known, before, after, self.side) if before > 1 else path
        return replace(path, unread=path.unread | {self._called(name)}) if looks or flattens else path

    def _called(self, name: str) -> str:
        """A function in words: the layer of torch that called it, or the function and where it was called."""
        if not self._entered:
            return name
        layer = type(self._entered[-1])
        return layer.__name__ if layer.__module__.startswith("torch.nn.") else f"{name} in {layer.__name__}"
