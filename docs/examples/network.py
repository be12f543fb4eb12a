"""Networks to check, as in docs/checking-your-network.md."""

from torch import nn

from sesn import BandlimitedReLU, ScaleConv, ScaleGrid, ScaleLift, basis_a


def ordinary() -> nn.Module:
    """An ordinary CNN: fixed kernels see one scale."""
    return nn.Sequential(nn.Conv2d(3, 8, 7, padding=3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))


def published() -> nn.Module:
    """Two layers with the kernels of the paper's STL-10 networks."""
    basis = basis_a(ScaleGrid.geometric(0.9, 1.41, 3), 7, 3)
    return nn.Sequential(ScaleLift(3, 8, basis), nn.ReLU(), ScaleConv(8, 8, basis))


def steerable() -> nn.Module:
    """Two layers with wide windows and a band-limited nonlinearity."""
    basis = basis_a(ScaleGrid.geometric(1.5, 2**0.5, 5), "wide", 3, max_order=2)
    return nn.Sequential(ScaleLift(3, 8, basis), BandlimitedReLU(), ScaleConv(8, 8, basis))


def wide() -> nn.Module:
    """One linear layer on windows of 4.5 sigma, from 96 pixels to 68 and on to 24: nothing but the border is left."""
    basis = basis_a(ScaleGrid.geometric(2.0, 96 / 68, 5), "wide", 3, max_order=2)
    return nn.Sequential(ScaleLift(3, 8, basis, bias=False))
