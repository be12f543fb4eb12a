"""The public names: what type checkers and editors read, and where `__init__.py` looks for the module of a name."""

from sesn import basis as basis
from sesn import errors as errors
from sesn import layers as layers
from sesn import meter as meter
from sesn import methods as methods
from sesn import networks as networks
from sesn import scales as scales
from sesn import strategies as strategies
from sesn import tools as tools
from sesn.basis import SteerableBasis as SteerableBasis
from sesn.basis import basis_a as basis_a
from sesn.basis import basis_b as basis_b
from sesn.basis import basis_for as basis_for
from sesn.errors import Inadmissible as Inadmissible
from sesn.errors import UsageError as UsageError
from sesn.errors import WrongTypeError as WrongTypeError
from sesn.layers.conv import ScaleConv as ScaleConv
from sesn.layers.conv import ScaleConv1x1 as ScaleConv1x1
from sesn.layers.conv import ScaleLift as ScaleLift
from sesn.layers.nonlinearity import BandlimitedReLU as BandlimitedReLU
from sesn.layers.pool import GlobalPool as GlobalPool
from sesn.layers.pool import ScaleBatchNorm as ScaleBatchNorm
from sesn.layers.pool import SpatialAvgPool as SpatialAvgPool
from sesn.layers.pool import SpatialMaxPool as SpatialMaxPool
from sesn.layers.project import PartneredProjection as PartneredProjection
from sesn.layers.project import ScaleProjection as ScaleProjection
from sesn.meter.action import ScaleTranslation as ScaleTranslation
from sesn.meter.action import rescale as rescale
from sesn.meter.action import rescale_field as rescale_field
from sesn.meter.action import translate as translate
from sesn.meter.assertions import assert_equivariant as assert_equivariant
from sesn.meter.assertions import equivariance_error as equivariance_error
from sesn.meter.compare import EquivarianceError as EquivarianceError
from sesn.meter.diagnosis import Finding as Finding
from sesn.meter.diagnosis import diagnose as diagnose
from sesn.meter.meter import Meter as Meter
from sesn.meter.outputs import OutputOf as OutputOf
from sesn.meter.resample import resampling_matrix as resampling_matrix
from sesn.methods import Method as Method
from sesn.methods import Source as Source
from sesn.methods import build as build
from sesn.methods import list_methods as list_methods
from sesn.scales import ScaleGrid as ScaleGrid

__version__: str
