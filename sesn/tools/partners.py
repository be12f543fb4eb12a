"""Projections over the scales that have a partner: they take truncation of the scale axis out of a projected output.

A maximum over scale sees all channels, also those whose partner lies beyond the grid: the largest in Phi(f), the
smallest in Phi(L_s f). Delta of the projection is then mostly theirs. Restricted to the partnered channels, which
differ between the two branches, the projection commutes with the action.
"""

from __future__ import annotations

from torch import Tensor, nn

from sesn import ScaleConv, ScaleLift, ScaleProjection
from sesn.tools.surgery import changed


class PartneredProjection(nn.Module):
    """The maximum over the channels j in the original branch, over their partners k in the rescaled one."""

    def __init__(self, pairs: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.pairs = pairs
        self.rescaled = False

    def forward(self, field: Tensor) -> Tensor:
        """Project a field [b, c, s, ...]."""
        chosen = [k if self.rescaled else j for k, j in self.pairs]
        return field[:, :, chosen].amax(dim=2)


class TwoBranches(nn.Module):
    """A network whose partnered projections know which branch they are in: images of this side are the original."""

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.network = network
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        """Tell the projections, then run the network."""
        for module in self.network.modules():
            if isinstance(module, PartneredProjection):
                module.rescaled = images.shape[-1] != self.side
        result: Tensor = self.network(images)
        return result


def partnered(module: nn.Module, factor: float, spoiled: int) -> nn.Module | None:
    """Every ScaleProjection over the partnered and unspoilt scales only; None if there is none, or none are left."""
    grids = [layer.grid for layer in module.modules() if isinstance(layer, ScaleLift | ScaleConv)]
    if not grids:
        return None
    whole = len(grids[-1]) - spoiled
    pairs = tuple((k, j) for k, j in grids[-1].match(factor).pairs if max(k, j) < whole)
    if not pairs or len(pairs) == len(grids[-1]):
        return None
    return changed(module, lambda m: PartneredProjection(pairs) if isinstance(m, ScaleProjection) else None)


def aware(module: nn.Module, side: int) -> nn.Module:
    """The module, wrapped if it has partnered projections."""
    needed = any(isinstance(m, PartneredProjection) for m in module.modules())
    return TwoBranches(module, side).eval() if needed else module
