"""Following images through a module: how far each tensor looks, which scales it has, and what could not be read.

Hooks on every module see the layers that say how far they look; a mode sees the functions that are called between
them, so that a path leads from each tensor back to the images, and branches beside each other do not add up.
"""

from __future__ import annotations

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

from sesn.meter.receptive import POINTWISE, Receptive, spoilt_by, window
from sesn.scales import ScaleGrid

#: Functions that look at other pixels. Pooling to a given size is left out: it makes scores of maps.
_LOOKS = re.compile(
    r"_?(conv|(max|avg|lp|fractional_max)_pool|interpolate|upsample|grid_sample|(un)?fold|fft_"
    r"|scaled_dot_product|(native_)?multi_head_attention|transformer_encoder)"
)


@dataclass(frozen=True)
class Path:
    """How a tensor came about from the images, along the longest of the ways that led to it."""

    seen: Receptive = field(default_factory=Receptive)  # how far it looks
    spoiled: int = 0  # scale channels at the large end that interscale layers filled with zeros
    grids: tuple[ScaleGrid, ...] = ()  # the scales of the layers that it comes from; several if these differ
    #: Of the smallest map on the way, the stride and how many image pixels its centre lies off the image's.
    coarsest: tuple[float, float] = (1, 0)
    unread: frozenset[str] = frozenset()  # what it went through that does not say how far it looks
    hidden: frozenset[str] = frozenset()  # those of them that a layer may hide behind, with all that it says of itself
    stages: frozenset[int] = frozenset()  # the last on the way that were marked

    def hiding(self, what: str) -> Path:
        """Followed by something that a layer may hide behind."""
        return replace(self, unread=self.unread | {what}, hidden=self.hidden | {what})

    def as_known(self) -> Path:
        """As if what it went through and could not be read looked at one pixel."""
        return replace(self, unread=frozenset(), hidden=frozenset())

    def through(self, layer: nn.Module, made: Tensor, side: int) -> Path:
        """Followed by a layer that says how far it looks, on images of this side."""
        seen = self.seen.then(*(window(layer) or POINTWISE))
        left, coarsest = _side(made), self.coarsest
        # Where something else has made the map smaller, the places of its pixels are not known.
        fits = abs(left * seen.stride - side) <= 2 * seen.radius + seen.stride
        if left > 1 and fits and seen.stride > 1 and seen.stride >= coarsest[0]:
            coarsest = seen.stride, seen.off_centre(side, left)
        return replace(self, seen=seen, coarsest=coarsest)


def _joined(paths: Sequence[tuple[Tensor, Path]]) -> Path:
    """Of several tensors that became one: the largest is the map, into which the others are spread."""
    if len(paths) == 1:
        return paths[0][1]
    every = [path for _, path in paths]
    _, main = max(paths, key=lambda each: (_side(each[0]), each[1].seen.radius))
    return Path(
        replace(main.seen, radius=max(path.seen.radius for path in every)),
        max(path.spoiled for path in every),
        tuple(dict.fromkeys(grid for path in every for grid in path.grids)),
        max((path.coarsest for path in every), key=lambda sampling: (sampling[0], abs(sampling[1]))),
        frozenset().union(*(path.unread for path in every)),
        frozenset().union(*(path.hidden for path in every)),
        frozenset().union(*(path.stages for path in every)),
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
        self._paths[images] = self.start
        with self._by_itself():
            self._owned = {id(p) for m in module.modules() if _is_pointwise(m) for p in m.parameters(recurse=False)}
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
            self._note(func, (args, kwargs), made)
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

    def mark(self, tensor: Tensor, stage: int) -> None:
        """Let what is made of a tensor, if it comes from the images, be known to come from here."""
        if tensor in self._paths:
            self._paths[tensor] = replace(self._paths[tensor], stages=frozenset({stage}))

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
        path, speaks = self._source(inputs), window(layer) is not None
        if speaks and path is not None:
            return path.through(layer, made, self.side)
        if speaks and inputs:
            return None
        by_name = " that is given its input by name" if speaks else ""
        return (path or Path()).hiding(f"a {type(layer).__name__}{by_name}")

    def _source(self, tensors: list[Tensor]) -> Path | None:
        found = [(tensor, self._paths[tensor]) for tensor in tensors if tensor in self._paths]
        return _joined(found) if found else None

    def _note(self, function: Any, given: tuple[Any, ...], made: Any) -> None:
        """A function was called between the layers that say how far they look."""
        outputs = () if self._reading else [*_tensors((made,))]
        if not outputs:
            return
        inputs = [*_tensors(given)]
        path = self._source(inputs)
        if any(isinstance(tensor, nn.Parameter) and id(tensor) not in self._owned for tensor in inputs):
            path = (path or Path()).hiding("a parameter of a layer that was not called")
        name, _, overload = getattr(function, "__name__", "").partition(".")
        if path is not None and _LOOKS.match(name):  # a person calls functions, an exported graph overloads
            path = path.hiding(f"an exported {name}") if overload else replace(path, unread=path.unread | {name})
        if path is not None:
            for output in outputs:
                self._paths[output] = path


def _is_pointwise(layer: nn.Module) -> bool:
    """Whether it is one of torch's layers that look at one pixel: its forward may be called past its hooks."""
    return type(layer).__module__.startswith("torch.nn.modules.") and window(layer) is None
