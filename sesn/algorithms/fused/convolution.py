"""The fused convolution as layers and others call it."""

from __future__ import annotations

import torch
from torch import Tensor

from sesn._torch import casting
from sesn.algorithms.fused.geometry import Geometry, Tables
from sesn.algorithms.fused.operators import fused


def fused_convolution(
    field: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tables: Tables,
    geometry: Geometry,
    *,
    relu: bool = False,
    project: bool = False,
) -> Tensor:
    """Correlate field [b, g i, s, h, w] with w x Psi, weight [o, i, k, n], and finish, all in one kernel.

    Args:
        field: the input; an image is a field of one scale.
        weight: the layer's, with an axis of neighbouring scales.
        bias: one number per output channel, or None.
        tables: the profiles, made by `make_tables`.
        geometry: where windows lie, and which scales see which.
        relu: whether to replace negative numbers by zero before they are written.
        project: whether to write the maximum over the scales only, so that memory never holds the scale axis.

    Returns:
        The field [b, o, s', h', w'], or the map [b, o, h', w'] if it was projected.
    """
    packed = tables.packed(weight)
    if casting(field):
        dtype = torch.get_autocast_dtype(field.device.type)
        field, packed, bias = field.to(dtype), packed.to(dtype), None if bias is None else bias.to(dtype)
    out: Tensor = fused(field, packed, bias, tables.down, tables.across, geometry.encoded(), relu, project)[0]
    return out.squeeze(2) if project else out
