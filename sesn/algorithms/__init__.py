"""The same scale convolution computed several ways, the chooser, and resampling as matrices. All ways are exact."""

from sesn.algorithms.axis import Axis as Axis
from sesn.algorithms.banded import banded_matrix as banded_matrix
from sesn.algorithms.choose import ALGORITHMS as ALGORITHMS
from sesn.algorithms.choose import DEVICE_ALGORITHMS as DEVICE_ALGORITHMS
from sesn.algorithms.choose import Cost as Cost
from sesn.algorithms.choose import Work as Work
from sesn.algorithms.choose import convolution_cost as convolution_cost
from sesn.algorithms.dense import compose_kernel as compose_kernel
from sesn.algorithms.dense import dense_convolution as dense_convolution
from sesn.algorithms.dense import padded_convolution as padded_convolution
from sesn.algorithms.dense import plane_taps as plane_taps
from sesn.algorithms.separable import separable_convolution as separable_convolution
from sesn.algorithms.spectral import spectral_convolution as spectral_convolution
