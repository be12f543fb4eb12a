"""METHODS: which methods the experiments compare, one row each, and how their networks are built.

Everything else refers to a method by its key. A row says where its method has no network, no released network or no
published error, and why, so that a table can print a dash with a footnote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from harness.lookup import looked_up
from sesn import ScaleConv, ScaleGrid, ScaleLift
from sesn.baselines import DSSConv, SEVFConv, SEVFLift, SiCNNConv, SiCNNLift, SIConv, SSConv
from sesn.models import (
    MNISTScaleNet,
    ParameterCount,
    Recipe,
    Regime,
    WideResNet,
    cnn,
    dss,
    harmonic,
    mnist,
    parameter_count,
    sevf,
    si_convnet,
    sicnn,
    ss_cnn,
    steerable,
    wrn,
)
from sesn.models.recipes import known_recipe

#: The networks, each with the data it is for.
NETWORKS: tuple[str, ...] = ("mnist", "stl10")
#: What a method may lack: a network, a released network, or an error rate in the paper.
ABSENCES = tuple(f"{network}{what}" for network in NETWORKS for what in ("", "/released", "/error"))

#: What the networks can be built with besides a recipe.
OPTIONS = {"mnist": ("resolution", "augmented", "channels"), "stl10": ("depth", "width", "resolution")}


class Source(NamedTuple):
    """A citation, and the approach to scale in the words of the paper's Table 1."""

    citation: str
    approach: str = "none"


@dataclass(frozen=True)
class Method:
    """One method.

    Attributes:
        key: how everything else refers to it.
        label: its printed name; `label_on` gives the one of a table.
        source: where it comes from, and how it meets changes of scale.
        colour: its colour in every figure, distinct from the others' with any colour vision.
        mnist, stl10: what it puts into the two networks.
        labels: printed names that differ on one network.
        absences: reasons, by what is absent (see ABSENCES).
    """

    key: str
    label: str
    source: Source
    colour: str
    mnist: mnist.PartsOf | None = None
    stl10: wrn.PartsOf | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    absences: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for network, parts in (("mnist", self.mnist), ("stl10", self.stl10)):
            if (parts is None) != (network in self.absences):
                raise ValueError(f"method {self.key!r} must have either parts or a reason why not for {network}")
        if unknown := sorted(set(self.absences) - set(ABSENCES)):
            raise ValueError(f"method {self.key!r}: `absences` has {unknown}; it may have {', '.join(ABSENCES)}")

    def label_on(self, network: str) -> str:
        """The printed name in the tables of one network."""
        return self.labels.get(_known_network(network), self.label)

    def lacks(self, network: str, recipe: str = "paper") -> str | None:
        """Why there is no such network, or None if there is."""
        known_recipe(recipe)
        reason = self.absences.get(_known_network(network))
        return reason or (self.absences.get(f"{network}/released") if recipe == "released" else None)

    def build(self, network: str, recipe: Recipe = "paper", **options: Any) -> nn.Module:
        """A network with fresh weights.

        Args:
            network: "mnist" or "stl10".
            recipe: "paper" or "released".
            options: see OPTIONS, `Regime`, `MNISTScaleNet` and `WideResNet`.
        """
        if reason := self.lacks(network, recipe):
            released = "released " if network not in self.absences else ""
            raise ValueError(f"{self.label} (method {self.key!r}) has no {released}network for {network}: {reason}")
        if unknown := sorted(set(options) - set(OPTIONS[network])):
            raise TypeError(f"`options` (={unknown}) must be of {', '.join(OPTIONS[network])} on {network}")
        return _BUILDERS[network](self, recipe, **options)

    def first_layer(
        self, in_channels: int, out_channels: int, recipe: Recipe = "paper", network: str | None = None
    ) -> nn.Module:
        """The layer that a network begins with, by itself: all that stands before the first norm and nonlinearity.

        The MNIST-scale network is meant at 28, and preferred if `network` is not given.
        """
        chosen = network or next((name for name in NETWORKS if name not in self.absences), NETWORKS[0])
        if reason := self.lacks(chosen, recipe):
            raise ValueError(f"{self.label} (method {self.key!r}) has no layer for {chosen}: {reason}")
        if chosen == "mnist":
            assert self.mnist is not None
            return self.mnist(Regime(recipe=recipe)).layer(0, in_channels, out_channels)
        assert self.stl10 is not None
        return self.stl10(recipe).stem(in_channels, out_channels)

    def count(self, network: str, recipe: Recipe = "paper", **options: Any) -> ParameterCount:
        """How many parameters such a network has; nothing is computed."""
        with torch.device("meta"):
            return parameter_count(self.build(network, recipe, **options))


def _mnist(
    method: Method,
    recipe: Recipe,
    resolution: int = 28,
    augmented: bool = False,
    channels: tuple[int, int, int] | None = None,
) -> nn.Module:
    assert method.mnist is not None
    regime = Regime(resolution, augmented, recipe)
    return MNISTScaleNet(method.mnist(regime), regime, channels)


def _stl10(method: Method, recipe: Recipe, depth: int = 16, width: int = 8, resolution: int = 96) -> nn.Module:
    assert method.stl10 is not None
    return WideResNet(method.stl10(recipe), depth, width, resolution)


_BUILDERS: dict[str, Callable[..., nn.Module]] = {"mnist": _mnist, "stl10": _stl10}


def scales_of(module: nn.Module) -> ScaleGrid | None:
    """The scales that a layer works at, in units of its own; None for a plain one."""
    for layer in module.modules():
        if isinstance(layer, ScaleLift | ScaleConv):
            return layer.grid
        if isinstance(layer, DSSConv):
            return ScaleGrid(float(layer.base**k) for k in range(layer.scales))
        if isinstance(layer, SSConv):
            return ScaleGrid(size / layer.nominal for size in layer.sizes)
        if isinstance(layer, SIConv | SEVFLift | SEVFConv | SiCNNLift | SiCNNConv):
            return ScaleGrid(layer.scales)
    return None


def _known_network(network: str) -> str:
    if network not in NETWORKS:
        raise ValueError(f"`network` (={network!r}) must be one of {', '.join(map(repr, NETWORKS))}")
    return network


# --- the rows

PLAIN = Source("Ghosh & Gupta 2019, arXiv:1906.03861")
WIDE = Source("Zagoruyko & Komodakis 2016, arXiv:1605.07146")
XU = Source("Xu et al. 2014, arXiv:1411.6369", "Filter Rescaling")
KANAZAWA = Source("Kanazawa et al. 2014, arXiv:1412.5104", "Input Rescaling")
MARCOS = Source("Marcos et al. 2018, arXiv:1807.11783", "Input Rescaling")
WORRALL = Source("Worrall & Welling 2019, arXiv:1905.11697", "Filter Dilation")
GHOSH = Source("Ghosh & Gupta 2019, arXiv:1906.03861", "Steerable Filters")
SOSNOVIK = Source("Sosnovik et al. 2020, arXiv:1910.11093", "Steerable Filters")
ULICNY = Source("Ulicny et al. 2019, arXiv:1905.00135")

USE_CNN = {"mnist": "on MNIST-scale the plain network is the CNN; use cnn"}
USE_WRN = {"stl10": "on STL-10 the plain network is the wide ResNet; use wrn"}
USE_DESIGN = {"stl10": "on STL-10 the paper has three designs of SESN; use sesn-a, sesn-b or sesn-c"}
USE_SESN = {"mnist": "it is a design of the wide ResNet; on MNIST-scale use sesn-scalar or sesn-vector"}
NO_SICNN_SCALAR = {
    "mnist/released": "the released code has no such network",
    "mnist/error": "the paper gives its times only",
    "stl10": "on STL-10 the paper keeps the columns; use sicnn-vector",
}
USE_SEVF_VECTOR = {"stl10": "on STL-10 vectors are kept; use sevf-vector"}
NO_SEVF_STL10 = {
    "stl10/released": "the released code has no such network",
    "stl10/error": "the paper found its training unstable",
}
USE_DSS_VECTOR = {"stl10": "on STL-10 the paper keeps the scales; use dss-vector"}
NO_HARM = {
    "mnist": "the paper has it on STL-10 only; use cnn",
    "stl10/released": "the paper quotes the number of its authors, and the released code has no such network",
}

#: The colours stay apart for readers with any colour vision (a test simulates it), within each of the two networks.
_ROWS = (
    Method("cnn", "CNN", PLAIN, "#000000", cnn.mnist_parts, absences=USE_WRN),
    Method("wrn", "WRN", WIDE, "#000000", None, cnn.wrn_parts, absences=USE_CNN),
    Method("sicnn-scalar", "SiCNN Scalar", XU, "#7E5F36", sicnn.mnist_scalar, absences=NO_SICNN_SCALAR),
    Method("sicnn-vector", "SiCNN Vector", XU, "#A96000", sicnn.mnist_vector, sicnn.wrn_parts, {"stl10": "SiCNN"}),
    Method("si-convnet", "SI-ConvNet", KANAZAWA, "#AFCF33", si_convnet.mnist_parts, si_convnet.wrn_parts),
    Method("sevf-scalar", "SEVF Scalar", MARCOS, "#7FE3C0", sevf.mnist_scalar, absences=USE_SEVF_VECTOR),
    Method(
        "sevf-vector",
        "SEVF Vector",
        MARCOS,
        "#184E48",
        sevf.mnist_vector,
        sevf.wrn_parts,
        {"stl10": "SEVF"},
        NO_SEVF_STL10,
    ),
    Method("dss-scalar", "DSS Scalar", WORRALL, "#0282FF", dss.mnist_scalar, absences=USE_DSS_VECTOR),
    Method("dss-vector", "DSS Vector", WORRALL, "#0B2AE9", dss.mnist_vector, dss.wrn_parts, {"stl10": "DSS"}),
    Method("ss-cnn", "SS-CNN", GHOSH, "#EB86D1", ss_cnn.mnist_parts, ss_cnn.wrn_parts),
    Method("sesn-scalar", "SESN Scalar", SOSNOVIK, "#FF747C", steerable.mnist_scalar, absences=USE_DESIGN),
    Method("sesn-vector", "SESN Vector", SOSNOVIK, "#591203", steerable.mnist_vector, absences=USE_DESIGN),
    Method("sesn-a", "SESN-A", SOSNOVIK, "#641A02", None, steerable.wrn_parts_a, absences=USE_SESN),
    Method("sesn-b", "SESN-B", SOSNOVIK, "#FF7165", None, steerable.wrn_parts_b, absences=USE_SESN),
    Method("sesn-c", "SESN-C", SOSNOVIK, "#E2BAB6", None, steerable.wrn_parts_c, absences=USE_SESN),
    Method("harm-wrn", "Harm WRN", ULICNY, "#7E4CB2", None, harmonic.wrn_parts, absences=NO_HARM),
)

#: Every method by its key, in the order of the paper's tables.
METHODS: dict[str, Method] = {row.key: row for row in _ROWS}


def method(key: str) -> Method:
    """The method of that key; an unknown key is answered with the keys, and the nearest of them."""
    return looked_up("method", key, METHODS)


def methods_on(network: str, recipe: str = "paper") -> list[Method]:
    """The methods that have such a network, in order."""
    return [row for row in METHODS.values() if row.lacks(network, recipe) is None]
