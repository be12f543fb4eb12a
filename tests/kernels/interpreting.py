"""Triton's interpreter, quicker, and with a count of what kernels read and write."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from triton.runtime import interpreter

from sesn.algorithms.fused import Geometry, launch, terms_of
from sesn.layers.steerable import pair_of


def quicken(patch: pytest.MonkeyPatch) -> None:
    """Without checks of overflow, which one test has, without patching Triton anew in every call, and few shares."""
    call = interpreter.InterpretedFunction.__call__

    def ours(self, *args, **kwargs):
        if self.fn.__module__ != "sesn.algorithms.fused.kernels":
            return call(self, *args, **kwargs)
        return self.rewrite()(*args, **kwargs)  # the launch has patched what the module of the kernel uses

    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    patch.setattr(interpreter.interpreter_builder, "options", options)
    patch.setattr(interpreter.InterpretedFunction, "__call__", ours)
    patch.setattr(launch, "PROGRAMS", 8)


class Counted:
    """Bytes that kernels load from and store to each of some tensors; masked elements are not counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes: Counter[str] = Counter()
        self._places: list[tuple[str, int, int]] = []
        builder = interpreter.interpreter_builder
        load, store = builder.create_masked_load, builder.create_masked_store

        def counted_load(ptrs, mask, *rest):
            self._count("load", ptrs, mask)
            return load(ptrs, mask, *rest)

        def counted_store(ptrs, value, mask, *rest):
            self._count("store", ptrs, mask)
            return store(ptrs, value, mask, *rest)

        patch.setattr(builder, "create_masked_load", counted_load)
        patch.setattr(builder, "create_masked_store", counted_store)

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Count what is asked of this tensor under this name."""
        start = tensor.data_ptr()
        self._places.append((name, start, start + tensor.numel() * tensor.element_size()))

    def _count(self, kind: str, ptrs, mask) -> None:
        size = ptrs.get_element_ty().primitive_bitwidth // 8
        addresses = ptrs.data[mask.data]
        named = 0
        for name, start, stop in self._places:
            found = int(((addresses >= start) & (addresses < stop)).sum())
            self.bytes[name] += found * size
            named += found
        self.bytes[f"other {kind}"] += (len(addresses) - named) * size


@st.composite
def tiles(draw: st.DrawFn) -> dict[str, Any]:
    """Other tiles than those for GPUs, so that small maps have many, and windows several pieces."""
    sides = st.sampled_from([64, 32, 16])
    return {
        "MIX_TILE": (draw(sides), draw(sides)),
        "WEIGH_TILE": (draw(sides), draw(sides)),
        "PIECE": draw(st.sampled_from([16, 4])),
        "PROGRAMS": draw(st.sampled_from([1, 20])),
    }


@contextlib.contextmanager
def tiled(sizes: dict[str, Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(launch, name, size)
        yield


def geometry_of(layer: Any, sides: Sequence[int]) -> Geometry:
    """What a layer tells the kernels of fields with these sides."""
    scales, windows = range(len(layer.grid)), layer._windows()
    sources, neighbours = windows[-1][1], 1 if layer.weight.dim() == 3 else layer.weight.shape[2]
    axes = layer._axes(sides, pair_of(layer.padding))
    terms = terms_of(windows, scales, layer.basis.boxes)
    return Geometry(*axes, layer.groups, sources, len(scales), neighbours, terms)
