"""Scale-Equivariant Steerable Networks: layers, the group acting on images and fields, and the equivariance error.

Axes everywhere: b batch, c channels, s scales (small to large), h rows, w columns.
"""

from torch.nn import ReLU as ReLU

from sesn.action import ScaleTranslation as ScaleTranslation
from sesn.action import rescale as rescale
from sesn.action import rescale_field as rescale_field
from sesn.action import translate as translate
from sesn.assertions import assert_equivariant as assert_equivariant
from sesn.basis import SteerableBasis as SteerableBasis
from sesn.basis import basis_a as basis_a
from sesn.basis import basis_b as basis_b
from sesn.conv import ScaleConv as ScaleConv
from sesn.conv import ScaleConv1x1 as ScaleConv1x1
from sesn.conv import ScaleLift as ScaleLift
from sesn.diagnosis import Finding as Finding
from sesn.diagnosis import diagnose as diagnose
from sesn.equivariance import EquivarianceError as EquivarianceError
from sesn.equivariance import equivariance_error as equivariance_error
from sesn.methods import Method as Method
from sesn.methods import Source as Source
from sesn.methods import build as build
from sesn.methods import list_methods as list_methods
from sesn.nonlinearity import BandlimitedReLU as BandlimitedReLU
from sesn.pool import GlobalPool as GlobalPool
from sesn.pool import ScaleBatchNorm as ScaleBatchNorm
from sesn.pool import ScaleProjection as ScaleProjection
from sesn.pool import SpatialAvgPool as SpatialAvgPool
from sesn.pool import SpatialMaxPool as SpatialMaxPool
from sesn.resample import resampling_matrix as resampling_matrix
from sesn.scales import ScaleGrid as ScaleGrid
