"""METHODS: which methods the experiments compare, one row each; its file holds all that there is to know of it.

Everything else refers to a method by its key.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from sesn._lookup import looked_up
from sesn.methods.cnn import CNN, WRN
from sesn.methods.dss import DSS_SCALAR, DSS_VECTOR
from sesn.methods.harmonic import HARM_WRN
from sesn.methods.method import Method as Method
from sesn.methods.method import Source as Source
from sesn.methods.method import scales_of as scales_of
from sesn.methods.method import vector_angles as vector_angles
from sesn.methods.sevf import SEVF_SCALAR, SEVF_VECTOR
from sesn.methods.si_convnet import SI_CONVNET
from sesn.methods.sicnn import SICNN_SCALAR, SICNN_VECTOR
from sesn.methods.ss_cnn import SS_CNN
from sesn.methods.steerable import SESN_A, SESN_B, SESN_C, SESN_SCALAR, SESN_VECTOR
from sesn.networks import Recipe

#: The colours stay apart for readers with any colour vision (a test simulates it), within each of the two networks.
_ROWS = (
    *(CNN, WRN, SICNN_SCALAR, SICNN_VECTOR, SI_CONVNET, SEVF_SCALAR, SEVF_VECTOR, DSS_SCALAR, DSS_VECTOR, SS_CNN),
    *(SESN_SCALAR, SESN_VECTOR, SESN_A, SESN_B, SESN_C, HARM_WRN),
)

#: Every method by its key, in the order of the paper's tables.
METHODS: dict[str, Method] = {row.key: row for row in _ROWS}
#: The key of the plain network that times are compared with.
REFERENCE = CNN.key


def method(key: str) -> Method:
    """The method of that key; an unknown key is answered with the keys, and the nearest of them."""
    return looked_up("method", key, METHODS)


def build(key: str, network: str, *, recipe: Recipe = "paper", **options: Any) -> nn.Module:
    """A network of the paper with fresh weights.

    Args:
        key: a key of `list_methods()`.
        network: "mnist" or "stl10".
        recipe: "paper" follows the paper's text, "released" its authors' code.
        options: of "mnist" resolution (28 or 56), augmented and channels; of "stl10" depth, width and resolution.

    Returns:
        A module from images [b, 1, 28, 28] or [b, 3, 96, 96] to scores [b, 10].

    Raises:
        ValueError: for an unknown name, which is answered with the names and the nearest, and for a network that the
            method lacks, with the reason.

    Example:
        >>> import sesn, torch
        >>> network = sesn.build("sesn-vector", "mnist", resolution=28, recipe="paper")
        >>> network(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return method(key).build(network, recipe, **options)


def list_methods(network: str | None = None) -> list[str]:
    """The keys of all methods, or of those that have a network, in the order of the paper's tables.

    Example:
        >>> import sesn
        >>> sesn.list_methods("stl10")[:3]
        ['wrn', 'sicnn-vector', 'si-convnet']
    """
    return list(METHODS) if network is None else [row.key for row in methods_on(network)]


def methods_on(network: str, recipe: str = "paper") -> list[Method]:
    """The methods that have such a network, in order."""
    return [row for row in METHODS.values() if row.lacks(network, recipe) is None]
