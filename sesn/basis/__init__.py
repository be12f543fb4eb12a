"""Steerable bases: what the filters of the layers are made of. One file for each family, and what they share."""

from sesn.basis.bspline import basis_bspline as basis_bspline
from sesn.basis.fourier_bessel import basis_fourier_bessel as basis_fourier_bessel
from sesn.basis.hermite import SMALLEST_RESOLVED_SIGMA as SMALLEST_RESOLVED_SIGMA
from sesn.basis.hermite import Profile as Profile
from sesn.basis.hermite import basis_a as basis_a
from sesn.basis.hermite import basis_b as basis_b
from sesn.basis.hermite import basis_for as basis_for
from sesn.basis.hermite import default_basis as default_basis
from sesn.basis.hermite import orthogonal_profiles as orthogonal_profiles
from sesn.basis.log_radial import basis_log_radial as basis_log_radial
from sesn.basis.steerable import WIDE_HALF_WIDTH as WIDE_HALF_WIDTH
from sesn.basis.steerable import ProfilePairs as ProfilePairs
from sesn.basis.steerable import SteerableBasis as SteerableBasis
from sesn.basis.steerable import Window as Window
from sesn.basis.steerable import window_boxes as window_boxes
