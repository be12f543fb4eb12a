"""METHODS: which methods the experiments compare, one row each; its file holds all that there is to know of it.

Everything else refers to a method by its key. Methods from outside join the table: those of installed packages, and
those that are named as FILE.py:NAME.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

from torch import nn

from sesn._checks import complaint, looked_up
from sesn._source import names_file
from sesn.errors import UsageError
from sesn.methods import outside
from sesn.methods.cnn import CNN, WRN
from sesn.methods.disco import DISCO
from sesn.methods.dss import DSS_SCALAR, DSS_VECTOR
from sesn.methods.fourier_layers import FOURIER_LAYERS
from sesn.methods.gauss_der import GAUSS_DER
from sesn.methods.harmonic import HARM_WRN
from sesn.methods.method import Method as Method
from sesn.methods.method import Source as Source
from sesn.methods.method import scales_of as scales_of
from sesn.methods.method import vector_angles as vector_angles
from sesn.methods.riesz import RIESZ
from sesn.methods.scale_channels import FOV_AVG, FOV_MAX
from sesn.methods.sevf import SEVF_SCALAR, SEVF_VECTOR
from sesn.methods.si_convnet import SI_CONVNET
from sesn.methods.sicnn import SICNN_SCALAR, SICNN_VECTOR
from sesn.methods.ss_cnn import SS_CNN
from sesn.methods.steerable import SESN_A, SESN_B, SESN_C, SESN_SCALAR, SESN_VECTOR
from sesn.networks import Recipe
from sesn.networks.mnist import MNISTSkeleton

#: The colours stay apart for readers with any colour vision (a test simulates it), within each of the networks.
_ROWS = (
    *(CNN, WRN, SICNN_SCALAR, SICNN_VECTOR, SI_CONVNET, SEVF_SCALAR, SEVF_VECTOR, DSS_SCALAR, DSS_VECTOR, SS_CNN),
    *(SESN_SCALAR, SESN_VECTOR, SESN_A, SESN_B, SESN_C, HARM_WRN),
    # Those that appeared after the paper.
    *(FOV_AVG, FOV_MAX, RIESZ, FOURIER_LAYERS, DISCO, GAUSS_DER),
)

#: Every method by its key, in the order of the paper's tables; those that appeared later stand at the end.
METHODS: dict[str, Method] = {row.key: row for row in _ROWS}
#: The colours of methods that have none of their own: apart from those of the table and from each other.
SPARE_COLOURS = ("#101080", "#B0A0FF", "#B02068", "#E808FF", "#D8FFB0", "#FF0898", "#8808C0", "#B8E8FF")
#: Where the methods from outside came from, by key; FILE.py:NAME in full for those of files.
HOMES: dict[str, str] = {}
#: The variable by which a process tells those that it starts which files its methods came from.
PASSED_ON = "SESN_METHODS"
#: The key of the plain network on each skeleton.
PLAIN = {"mnist": CNN.key, "stl10": WRN.key, "stir": CNN.key}
#: The key of the plain network that times on MNIST-scale are compared with.
REFERENCE = PLAIN["mnist"]


def method(key: str) -> Method:
    """The method of that key, or of FILE.py:NAME; an unknown key is answered with the keys, and the nearest of them."""
    if names_file(key):
        return _joined(*outside.from_file(key))
    if isinstance(key, str) and key not in METHODS:
        discover()
    return looked_up("method", key, METHODS)


@cache
def discover() -> None:
    """Have the methods of installed packages join the table, and those of the process that started this one."""
    for text in filter(None, os.environ.get(PASSED_ON, "").split(",")):
        method(text)
    outside.installed(_joined)


def leave_out_bad_ones(asked: Collection[str] | None) -> None:
    """Try the methods from outside on two images; None asks for all.

    A method of an installed package that nobody named leaves the table with a warning, so that it stops nobody.

    Raises:
        UsageError: something is wrong with a method that was named, or that came from a file.
    """
    for row in [row for key, row in METHODS.items() if row.digest and (asked is None or key in asked)]:
        try:
            outside.check(row)
        except UsageError as error:
            if asked is not None or outside.GROUP not in HOMES.get(row.key, ""):
                raise
            outside.warn_of(row.key, HOMES.pop(row.key), error)
            del METHODS[row.key]


def passed_on() -> dict[str, str]:
    """Variables by which a process that is started finds the same methods."""
    files = [home for home in HOMES.values() if outside.GROUP not in home]
    return {PASSED_ON: ",".join(files)} if files else {}


def _joined(home: str, row: Method) -> Method:
    """The method as it stands in the table from now on, with a colour of its own."""
    if row.key in METHODS and HOMES.get(row.key) != home:
        rule = f"a key that no other method has; {HOMES.get(row.key, 'sesn')} has a method of this key"
        raise UsageError(complaint("key", row.key, rule, f"give the method of {home} another key"))
    used = {other.colour for key, other in METHODS.items() if key != row.key}
    spare = next((colour for colour in SPARE_COLOURS if colour not in used), SPARE_COLOURS[0])
    HOMES[row.key], METHODS[row.key] = home, replace(row, colour=row.colour or spare)
    return METHODS[row.key]


def build(
    key: str,
    network: str,
    *,
    recipe: Recipe = "paper",
    num_classes: int | None = None,
    in_channels: int | None = None,
    **options: Any,
) -> nn.Module:
    """A network of the paper, or of the scale-generalisation benchmark STIR, with fresh weights.

    Args:
        key: a key of `list_methods()`.
        network: "mnist", "stl10" or "stir".
        recipe: "paper" follows the paper's text, "released" its authors' code.
        num_classes: how many scores it returns, 10 by default.
        in_channels: of the images; by default 3 on "stl10" and 1 on the others.
        options: of "mnist" resolution (28 or 56), augmented and channels; of "stl10" depth, width and resolution; of
            "stir" channels and design, which for "sesn-vector" may be "wide": kernels over a factor of four in scale.

    Returns:
        A module from images [b, in_channels, 28, 28], [b, in_channels, 96, 96] or, on "stir", of any size to scores
        [b, num_classes].

    Raises:
        UsageError: a name is unknown (the message lists the names and the nearest), or the method lacks the network
            (the message says why).

    Example:
        >>> network = sesn.build("sesn-vector", "mnist", num_classes=5, in_channels=3)
        >>> network(torch.randn(2, 3, 28, 28)).shape
        torch.Size([2, 5])
    """
    sizes = {"num_classes": num_classes, "in_channels": in_channels}
    given = {name: size for name, size in sizes.items() if size is not None}
    return method(key).build(network, recipe, **given, **options)


def list_methods(network: str | None = None) -> list[str]:
    """List the methods, in the order of the paper's tables; those that appeared later come last.

    Args:
        network: "mnist", "stl10" or "stir" for those that have this network; all by default.

    Returns:
        Their keys.

    Raises:
        UsageError: the network is unknown.

    Example:
        >>> sesn.list_methods("stl10")[:3]
        ['wrn', 'sicnn-vector', 'si-convnet']
    """
    discover()
    return list(METHODS) if network is None else [row.key for row in methods_on(network)]


def methods_on(network: str, recipe: str = "paper") -> list[Method]:
    """The methods that have such a network, in order."""
    discover()
    return [row for row in METHODS.values() if row.lacks(network, recipe) is None]


def published_bases() -> dict[str, tuple[Method, MNISTSkeleton]]:
    """The families of bases that methods bring, by name: each method and its network, which makes the basis."""
    skeletons = [(row, row.networks.get("mnist")) for row in METHODS.values()]
    return {name: (row, own) for row, own in skeletons if isinstance(own, MNISTSkeleton) for name in own.bases}
