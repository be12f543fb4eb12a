"""One run of a network on fields, which decides layer by layer what has to stand in a layer's place.

Little is decided by a layer's kind. Whether it meets an image or a field shows in the axes of what it gets. Whether it
can stay on fields is tried: it stays if it gives on five axes what it gives for the maps of every scale by itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sesn._source import is_our_bug, line_of
from sesn.basis import SteerableBasis
from sesn.conversion.functions import FIELD, axes
from sesn.conversion.inputs import Inputs
from sesn.conversion.report import Fate, Step
from sesn.layers.conv import ScaleConv, ScaleConv1x1, ScaleLift
from sesn.layers.each import EachScale, each_scale
from sesn.layers.fit import radii, refusal, tiles
from sesn.layers.norm import ScaleBatchNorm
from sesn.layers.transpose import ScaleConvTranspose
from sesn.layers.typed import TensorModule

#: Makes a basis for kernels of a side.
BasisOf = Callable[[int], SteerableBasis]
#: The axes of an image and of features.
IMAGE, FEATURES = 4, 2
#: A smaller residual is rounding. Then outputs that differ by more units in the last place were computed otherwise.
EXACT, UNITS = 1e-6, 1e4
#: Why a layer gets what it should not.
OTHERWISE = "code before it computes something else on fields, such as a mean or a view over fixed axes"
#: Names of functions with which code makes features [b, n] of maps.
FLATTENING = ("flatten", "view", "reshape")


class Trial(TorchFunctionMode):
    """Run a network whose layers are replaced as they are met.

    Args:
        network: a copy in eval mode, which is left as it is.
        original: what its layers got when it ran on the image.
        basis_of: makes the basis for kernels of a side.
        reference: the index of the scale that stands for the original where a field has to become a map.
        head: the name of the module before which the field becomes a map, if any.
        early: whether every convolution of the image makes a field: those that cannot be a lift by copies. Blocks that
            add what they got need this where they meet the image, since a map and a field cannot be added.
    """

    def __init__(
        self,
        network: nn.Module,
        original: Inputs,
        basis_of: BasisOf,
        reference: int,
        head: str | None,
        *,
        early: bool = False,
    ) -> None:
        super().__init__()
        self.early, self.original = early, original
        self.network, self.basis_of, self.reference, self.head = network, basis_of, reference, head
        self.names = {id(module): name for name, module in network.named_modules()}
        self.steps: list[Step] = []
        #: What stands in the place of a layer, by the layer's id.
        self.new: dict[int, nn.Module] = {}
        #: The functions of maps that the network's own code calls on fields.
        self.functions: set[str] = set()
        self._calls: dict[int, int] = {}
        self._astray = False
        self._projected = False
        self._running: list[str] = []
        self._inside_leaf = False

    def run(self, example: Tensor) -> Any:
        """The output; None, with a last step that cannot be, where the network's own code does not work on fields."""
        unmet = "did not run on the example"
        with self._watching(), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of what is tried on five axes
            try:
                with self:
                    return self.network(example)
            except Exception as error:
                if is_our_bug(error):
                    raise
                where = self._running[-1] if self._running else ""
                reason = f"fails on a field: {type(error).__name__}: {error}{line_of(error)}"
                self._tell(where, "cannot be", type(self.network.get_submodule(where)).__name__, reason)
                unmet = "not reached, because the network failed before"
                return None
            finally:
                for module in leaves(self.network):
                    if id(module) not in self._calls and any(True for _ in module.parameters()):
                        self._tell(self.names[id(module)], "kept", called(module), unmet)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Have every leaf ask what to do, and know which modules run."""
        handles = [module.register_forward_pre_hook(self._enter) for module in self.network.modules()]
        handles += [module.register_forward_hook(self._leave) for module in self.network.modules()]
        found = leaves(self.network)
        for leaf in found:
            leaf.forward = partial(self._leaf, leaf)
        try:
            yield
        finally:
            for leaf in found:
                del leaf.forward
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        name = self.names[id(module)]
        self._running.append(name)
        # A head that comes after means over positions gets [b, c, s].
        if name != self.head or self._projected or axes(inputs) not in (FIELD, 3):
            return None
        self._projected = True
        return inputs[0].select(2, self.reference), *inputs[1:]

    def _leave(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._running.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Try the functions of torch.nn that the network's own code calls on fields."""
        options = kwargs or {}
        if self._inside_leaf or axes(args) != FIELD:
            return func(*args, **options)
        if (name := getattr(func, "__name__", "")) in FLATTENING:
            return self._flattened(name, func, *args, **options)
        if not callable(vars(F).get(name)):
            return func(*args, **options)

        def on(x: Tensor) -> Any:
            return func(x, *args[1:], **options)

        if suits_fields(on, args[0]):
            return on(args[0])
        if any(isinstance(each, Tensor) and over_several_axes(each) for each in (*args[1:], *options.values())):
            reason = "its weights mix pixels or channels; make it a layer of the network, such as nn.Conv2d"
            self._tell(self._running[-1], "cannot be", f"F.{name}", reason)
        else:
            self._tell(self._running[-1], "replaced", f"F.{name}", f"F.{name} at every scale")
            self.functions.add(name)
        return each_scale(on, args[0])

    def _flattened(self, name: str, func: Any, field: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What a function gives that may make features of maps: those of one scale, as a head expects them."""
        try:
            features = func(field.select(2, self.reference), *args, **kwargs)
        except Exception:  # it is meant for fields, or its own error says why it does not work on them
            return func(field, *args, **kwargs)
        if features.dim() > FEATURES:
            return func(field, *args, **kwargs)
        reason = "puts scales among the features; make it the layer nn.Flatten, before which the field is projected"
        self._tell(self._running[-1], "cannot be", f"Tensor.{name}", reason)
        return features

    # A layer that is met

    def _leaf(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        own = partial(type(module).forward, module)
        if self._inside_leaf:  # of a layer in an EachScale
            return own(*args, **kwargs)
        self._inside_leaf = True
        try:
            call = self._calls.get(id(module), 0)
            self._calls[id(module)] = call + 1
            self._compare(module, call, *args)
            if call == 0:
                self._decide(module, own, *args, **kwargs)
            refused = id(module) not in self.new and axes(args) == FIELD and mixes(module)
            run = partial(each_scale, own) if refused else self.new.get(id(module), own)
            return run(*args, **kwargs)
        finally:
            self._inside_leaf = False

    def _compare(self, module: nn.Module, call: int, *args: Any) -> None:
        """Notice the first layer before which code computes something else on fields than on maps.

        The outputs of the network need not show it, for example where a branch begins with a weight of zero.
        """
        if self._astray or not args or not isinstance(args[0], Tensor) or self.residual > EXACT:
            return
        error = self.original.error(module, call, args[0], self.reference)
        self._astray = error > rounding(args[0].dtype)
        if self._astray:
            what = "numbers" if math.isfinite(error) else "shapes"
            told = f" (an error of {error:.2g})" if math.isfinite(error) else ""
            reason = f"gets other {what} than in the original{told}, so {OTHERWISE}"
            self._tell(self.names[id(module)], "cannot be", called(module), reason)

    @property
    def residual(self) -> float:
        """The largest of a layer until now."""
        return max((step.residual for step in self.steps if step.residual is not None), default=0.0)

    def _decide(self, module: nn.Module, own: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """What a layer becomes, from what it meets first."""
        name = self.names[id(module)]
        layer, after, residual = self._fate(module, own, *args, **kwargs)
        if layer is not None:
            self.new[id(module)] = layer.eval()
        fate: Fate = (
            "replaced" if layer is not None else "cannot be" if axes(args) == FIELD and mixes(module) else "kept"
        )
        self._tell(name, fate, called(module), after, residual)

    def _fate(
        self, module: nn.Module, own: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> tuple[nn.Module | None, str, float | None]:
        """What stands in its place, if anything, words for the report, and the residual of fitted kernels."""
        on_field = axes(args) == FIELD
        on_image = axes(args) == IMAGE and not self._projected
        if isinstance(module, nn.Conv2d) and on_image:
            return self._on_image(module)
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) and on_field:
            return self._on_field(module)
        if not on_field:
            seen = "the projection" if self._projected else "the image" if on_image else "no maps"
            return None, f"sees {seen}", None
        if isinstance(module, nn.BatchNorm2d) and type(module).forward is nn.BatchNorm2d.forward:
            return batch_norm(module), "ScaleBatchNorm", None
        if isinstance(module, nn.Dropout2d) and type(module).forward is nn.Dropout2d.forward:
            return nn.Dropout3d(module.p, module.inplace), "Dropout3d", None
        if mixes(module):
            return None, "its weights mix pixels or channels, and there is no such layer for fields", None
        future = isinstance(module, nn.Dropout2d)  # of which torch says that it will refuse five axes
        if not future and suits_fields(lambda x: own(x, *args[1:], **kwargs), args[0]):
            return None, "does the same on fields", None
        return EachScale(module), f"EachScale({type(module).__name__})", None

    def _on_image(self, conv: nn.Conv2d) -> tuple[nn.Module | None, str, float | None]:
        reason = refusal(conv)
        if reason is None and any(radii(conv)):
            return self._steerable(conv, ScaleLift)
        if self.early:
            return Copied(conv, len(self.basis_of(3).grid)), "itself, copied to every scale", None
        return None, reason or "sees the image", None

    def _on_field(self, conv: nn.Conv2d | nn.ConvTranspose2d) -> tuple[nn.Module | None, str, float | None]:
        reason = refusal(conv)
        if isinstance(conv, nn.Conv2d) and reason is None:
            return self._steerable(conv, ScaleConv)
        if tiles(conv):
            return EachScale(conv), f"EachScale({type(conv).__name__})", None
        if isinstance(conv, nn.Conv2d) or reason is not None:
            return None, reason or "", None
        basis = self.basis_of(2 * max(radii(conv)) + 1)
        layer, residual = ScaleConvTranspose.from_conv_transpose2d(conv, basis, reference=self.reference)
        return layer, "ScaleConvTranspose", residual

    def _steerable(
        self, conv: nn.Conv2d, kind: type[ScaleLift] | type[ScaleConv]
    ) -> tuple[nn.Module | None, str, float | None]:
        if not any(radii(conv)):
            return pointwise(conv)
        layer, residual = kind.from_conv2d(conv, self.basis_of(2 * max(radii(conv)) + 1), reference=self.reference)
        return layer, kind.__name__, residual

    def _tell(self, name: str, fate: Fate, before: str, after: str, residual: float | None = None) -> None:
        step = Step(name, fate, before, after, residual)
        if step not in self.steps:  # a function may be called many times
            self.steps.append(step)


def rounding(dtype: torch.dtype) -> float:
    """How far two computations of the same numbers may be apart, relative to the largest."""
    return UNITS * torch.finfo(dtype if dtype.is_floating_point or dtype.is_complex else torch.float64).eps


class Copied(TensorModule):
    """A layer of maps whose output is the same at every scale of a field."""

    def __init__(self, layer: nn.Module, scales: int) -> None:
        super().__init__()
        self.layer, self.scales = layer, scales

    def forward(self, image: Tensor) -> Tensor:
        """Turn the image [b, c, h, w] into a field [b, c', s, h', w']."""
        maps: Tensor = self.layer(image)
        return maps.unsqueeze(2).repeat(1, 1, self.scales, 1, 1)


def leaves(network: nn.Module) -> list[nn.Module]:
    """The modules without others in them, but for those that compute a weight."""
    return [m for m in network.modules() if all(name == "parametrizations" for name, _ in m.named_children())]


def called(module: nn.Module) -> str:
    """Its kind, and the size of a kernel."""
    sides = " x ".join(map(str, module.kernel_size)) if isinstance(module, nn.Conv2d | nn.ConvTranspose2d) else ""
    return f"{type(module).__name__} {sides}".rstrip()


def mixes(module: nn.Module) -> bool:
    """Whether a layer has weights over more than one axis: a kernel or a matrix."""
    return any(map(over_several_axes, module.parameters()))


def over_several_axes(weight: Tensor) -> bool:
    """Whether a weight is a kernel or a matrix, not one number for each channel."""
    return sum(extent > 1 for extent in weight.shape) > 1


def suits_fields(function: Callable[[Tensor], Any], field: Tensor) -> bool:
    """Whether a function of maps gives for a field what it gives for every scale by itself.

    It is tried on numbers that differ between scales, which those of the field may not. What it raises is an answer as
    well: code that was written for four axes may raise anything.
    """
    waves = torch.arange(field.numel(), dtype=torch.float64).sqrt().cos().reshape(field.shape)
    sizes = torch.arange(1.0, field.shape[2] + 1)[:, None, None]
    probe = (waves * sizes).to(field)
    try:
        wanted = each_scale(function, probe.clone())
    except Exception:
        return True  # not of maps alone: it works on the field, or its own error says why it does not
    try:
        found = function(probe.clone())
    except Exception:
        return False
    same = isinstance(found, Tensor) and found.shape == wanted.shape
    return same and torch.allclose(found, wanted, rtol=1e-4, atol=1e-6, equal_nan=True)


def pointwise(conv: nn.Conv2d) -> tuple[nn.Module, str, None]:
    """The same matrix at every scale; with groups or padding, which ScaleConv1x1 lacks, the convolution itself."""
    if conv.groups > 1 or conv.padding not in ("same", "valid", (0, 0)):
        return EachScale(conv), f"EachScale({type(conv).__name__})", None
    options: dict[str, Any] = {"device": conv.weight.device, "dtype": conv.weight.dtype, "stride": conv.stride}
    layer = ScaleConv1x1(conv.in_channels, conv.out_channels, bias=conv.bias is not None, **options)
    layer.weight = nn.Parameter(conv.weight.detach().flatten(1), conv.weight.requires_grad)
    if conv.bias is not None:
        layer.bias = nn.Parameter(conv.bias.detach(), conv.bias.requires_grad)
    return layer, "ScaleConv1x1", None


def batch_norm(norm: nn.BatchNorm2d) -> ScaleBatchNorm:
    """The same statistics, weights and biases at every scale."""
    options: dict[str, Any] = {"affine": norm.affine, "track_running_stats": norm.track_running_stats}
    layer = ScaleBatchNorm(norm.num_features, eps=norm.eps, momentum=norm.momentum, **options)
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(layer, name, getattr(norm, name))
    return layer
