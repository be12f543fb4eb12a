"""Any module for maps on a field, every scale by itself."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from sesn import _checks
from sesn.errors import UsageError, WrongTypeError
from sesn.layers.typed import TensorModule


class EachScale(TensorModule):
    """Apply a module for maps [b, c, h, w] to every scale of a field [b, c, s, h, w] separately.

    Pooling, upsampling, padding and normalisation of torch count axes from the front or take all axes but the first two
    for space, so on a field they fail or, worse, treat the scales as pixels. Here the scales join the batch. A module
    that commutes with scale on maps then commutes on fields. One with a spatial kernel, such as a convolution, does
    not: its kernel has to grow with the scale, as that of `ScaleConv` does.

    Args:
        module: the module.

    Raises:
        UsageError: `module` is not a torch module.

    Example:
        >>> sesn.EachScale(nn.Upsample(scale_factor=2, mode="bilinear"))(torch.randn(2, 8, 3, 16, 16)).shape
        torch.Size([2, 8, 3, 32, 32])
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise WrongTypeError(_checks.complaint("module", module, "a torch module", "such as nn.MaxPool2d(2)"))
        self.module = module

    def forward(self, field: Tensor) -> Tensor:
        """Apply the module.

        Args:
            field: [b, c, s, h, w].

        Returns:
            The field [b, c', s, h', w'], or [b, c', s] if the module's output has no axes of space.

        Raises:
            UsageError: the field has another shape, or the module gives no tensor with an item for each map.
        """
        _checks.real_tensor("field", field, "b c s h w")
        return each_scale(self._maps, field)

    def _maps(self, maps: Tensor) -> Tensor:
        """What the module gives, if it is of use."""
        found = self.module(maps)
        if not isinstance(found, Tensor):
            remedy = "use a module that returns one, such as a pool without indices"
            raise WrongTypeError(_checks.complaint("module(maps)", type(found).__name__, "a tensor", remedy))
        if found.dim() == 0 or found.shape[0] != maps.shape[0]:
            rule = f"[{maps.shape[0]}, ...], with an item for every image and scale"
            remedy = "use a module that keeps the batch"
            raise UsageError(_checks.complaint("module(maps).shape", tuple(found.shape), rule, remedy))
        return found


def each_scale(function: Callable[[Tensor], Tensor], field: Tensor) -> Tensor:
    """What the function gives for the maps of every scale, as a field again."""
    b, _, s = field.shape[:3]
    maps = function(field.transpose(1, 2).flatten(0, 1))
    return maps.reshape(b, s, *maps.shape[1:]).transpose(1, 2)


def each_map(function: Callable[[Tensor], Tensor], field: Tensor) -> Tensor:
    """What the function, which takes every channel by itself, gives for the maps of a field, without copying it."""
    maps = function(field.flatten(1, 2))
    return maps.reshape(field.shape[0], *field.shape[1:3], *maps.shape[2:])
