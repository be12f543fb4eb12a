"""Separable convolution in one kernel for GPUs, written in Triton: the responses are never written to memory."""

from sesn.algorithms.fused.convolution import fused_convolution as fused_convolution
from sesn.algorithms.fused.geometry import Geometry as Geometry
from sesn.algorithms.fused.geometry import Tables as Tables
from sesn.algorithms.fused.geometry import make_tables as make_tables
from sesn.algorithms.fused.geometry import terms_of as terms_of
from sesn.algorithms.fused.trust import checked_way as checked_way
