"""Scale-Equivariant Steerable Networks: layers, the group acting on images and fields, and the equivariance error.

Axes everywhere: b batch, c channels, s scales (small to large), h rows, w columns. Examples assume

    import sesn, torch
    from torch import nn

A public name is imported from its module when it is first used, so that `sesn --help` and the start of pytest, which
import this package, do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sesn.basis import SteerableBasis as SteerableBasis
    from sesn.basis import basis_a as basis_a
    from sesn.basis import basis_b as basis_b
    from sesn.errors import Inadmissible as Inadmissible
    from sesn.errors import UsageError as UsageError
    from sesn.errors import WrongTypeError as WrongTypeError
    from sesn.layers.conv import ScaleConv as ScaleConv
    from sesn.layers.conv import ScaleConv1x1 as ScaleConv1x1
    from sesn.layers.conv import ScaleLift as ScaleLift
    from sesn.layers.nonlinearity import BandlimitedReLU as BandlimitedReLU
    from sesn.layers.pool import GlobalPool as GlobalPool
    from sesn.layers.pool import ScaleBatchNorm as ScaleBatchNorm
    from sesn.layers.pool import ScaleProjection as ScaleProjection
    from sesn.layers.pool import SpatialAvgPool as SpatialAvgPool
    from sesn.layers.pool import SpatialMaxPool as SpatialMaxPool
    from sesn.meter.action import ScaleTranslation as ScaleTranslation
    from sesn.meter.action import rescale as rescale
    from sesn.meter.action import rescale_field as rescale_field
    from sesn.meter.action import translate as translate
    from sesn.meter.assertions import assert_equivariant as assert_equivariant
    from sesn.meter.compare import EquivarianceError as EquivarianceError
    from sesn.meter.diagnosis import Finding as Finding
    from sesn.meter.diagnosis import diagnose as diagnose
    from sesn.meter.meter import Meter as Meter
    from sesn.meter.meter import equivariance_error as equivariance_error
    from sesn.meter.resample import resampling_matrix as resampling_matrix
    from sesn.methods import Method as Method
    from sesn.methods import Source as Source
    from sesn.methods import build as build
    from sesn.methods import list_methods as list_methods
    from sesn.scales import ScaleGrid as ScaleGrid

#: Where each public name is. A test compares it with the imports above, which are for type checkers and editors.
_HOMES = {
    "sesn.basis": "SteerableBasis basis_a basis_b",
    "sesn.errors": "Inadmissible UsageError WrongTypeError",
    "sesn.layers.conv": "ScaleConv ScaleConv1x1 ScaleLift",
    "sesn.layers.nonlinearity": "BandlimitedReLU",
    "sesn.layers.pool": "GlobalPool ScaleBatchNorm ScaleProjection SpatialAvgPool SpatialMaxPool",
    "sesn.meter.action": "ScaleTranslation rescale rescale_field translate",
    "sesn.meter.assertions": "assert_equivariant",
    "sesn.meter.compare": "EquivarianceError",
    "sesn.meter.diagnosis": "Finding diagnose",
    "sesn.meter.meter": "Meter equivariance_error",
    "sesn.meter.resample": "resampling_matrix",
    "sesn.methods": "Method Source build list_methods",
    "sesn.scales": "ScaleGrid",
}
__all__ = sorted(name for names in _HOMES.values() for name in names.split())  # noqa: PLE0605 - no list by hand


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            globals()[name] = found = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
