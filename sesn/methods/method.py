"""What a method is: one record of all that the experiments need to know about it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sesn import _checks
from sesn._checks import looked_up
from sesn.algorithms.axis import PaddingMode
from sesn.errors import Inadmissible, UsageError, WrongTypeError
from sesn.layers.project import ScaleProjection
from sesn.networks import NETWORKS, ParameterCount, Recipe, Skeleton, parameter_count
from sesn.networks.skeleton import known_recipe
from sesn.scales import ScaleGrid

#: What a method may lack: a network, a released network, or an error rate in the paper.
ABSENCES = tuple(f"{network}{what}" for network in NETWORKS for what in ("", "/released", "/error"))
NOT_GIVEN = "the method has no such network"
#: Why a later method has nothing that the paper's authors could have printed or released.
LATER = "the method appeared after the paper"
KEY = re.compile(r"[a-z0-9][a-z0-9-]*")

#: A layer by itself maps COLOURS to CHANNELS.
COLOURS, CHANNELS = 3, 8
#: The side of a kernel in the MNIST-scale networks, and in the wide ResNets.
MNIST_SIDE: Final = 7
WIDE_SIDE: Final = 3
#: Neighbouring scales that a filter sees where the method lets one choose: as in the paper's and DSS' own networks.
EXTENT = 2
#: The step between the scales of layers from field to field, and how many they have.
HIDDEN_STEP, HIDDEN_SCALES = 2, 3
#: The steps of the layer that stands for a method without one of the two skeletons: the first that it can have.
OWN_STEPS = (2.0, 3.0, 4.0, 3 / 2, 12 / 5, 16 / 5, math.sqrt(2), math.sqrt(5), math.pi)

#: Side of the images that a layer is tried on.
TRIED_SIDE = 48

AtStep = Callable[[float], nn.Module]
Between = Callable[..., nn.Module]


class Source(NamedTuple):
    """Where a method comes from.

    Attributes:
        citation: who published it, and where.
        approach: its approach to scale in the words of the paper's Table 1.

    Example:
        >>> sesn.Source("Xu et al. 2014, arXiv:1411.6369", "Filter Rescaling").approach
        'Filter Rescaling'
    """

    citation: str = ""
    approach: str = "none"


UNKNOWN = Source()


class Goals(NamedTuple):
    """What the benchmark expects of a training step on MNIST-scale.

    Attributes:
        work: at most this much of (time of a step / CNN's) / (nominal multiply-adds / CNN's); 0 expects nothing.
        times: at most this many times the CNN's time, by resolution.
    """

    work: float = 0.0
    times: Mapping[int, float] = {}


NO_GOALS = Goals()


def no_scales(step: float) -> nn.Module:
    """Refuse: there is nothing that a step could lie between."""
    raise Inadmissible(f"`step` (={step:.4g}) must not be given: a plain convolution has one scale")


@dataclass(frozen=True, eq=False)
class Method:
    """One method: all that the experiments need to know about it.

    A layer for a step f has the scales that make f a step of its grid: 1 and f for filters that grow, 1/f, 1 and f for
    methods that resize their input both ways. A step that a method does not support is refused with `Inadmissible`.

    Attributes:
        key: how everything else refers to it: small letters, digits and hyphens.
        label: its printed name; `label_on` gives the one of a table.
        source: where it comes from, and how it handles changes of scale.
        colour: its colour in every figure, such as "#0282FF"; a spare one is taken if none is given.
        networks: by network, what makes it from keyword arguments: `recipe` and the options of `NETWORKS`. Either a
            skeleton over the method's parts, or any function that returns a module.
        layer: makes the layer whose neighbouring scales are a step apart, from images of three channels to the method's
            output; None keeps the method out of Table 1 and of the Delta sweeps.
        between: makes the layer from field [b, c, s, h, w] to field, of eight channels and three scales, each twice the
            one before; None if its outputs have no axis of scales. One that has an interscale extent takes it as
            `extent`.
        side: of the kernel of the plain convolution that the layer is compared with.
        resamples: what it resizes while it trains, if anything: its input, its filters, or the features between layers.
        ends: what its layers take to lie past the border: zeros, or the image again, as the Fourier transform does.
        ours: whether it is one of the networks of the paper that is reproduced.
        later: whether it appeared after that paper: it stands below the paper's methods in tables, and no claim of the
            paper is judged by it.
        representative: whether it is trained where a budget has time for a few methods only.
        goals: what the benchmark expects.
        labels: printed names that differ on one network.
        absences: reasons, by what is absent (see ABSENCES).
        digest: of the source of a method from outside; empty for those of the package.

    Raises:
        UsageError: a field breaks its rule, or the method has neither a network nor a layer.

    Example:
        >>> def network(resolution, **_):
        ...     return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
        >>> mine = sesn.Method("mine", "Mine", networks={"mnist": network})
        >>> mine.build("mnist")(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    key: str
    label: str
    source: Source = UNKNOWN
    colour: str = ""
    networks: Mapping[str, Callable[..., nn.Module]] = field(default_factory=dict)
    layer: AtStep | None = None
    between: Between | None = None
    side: Literal[3, 7] = MNIST_SIDE
    resamples: Literal["", "input", "filters", "features"] = ""
    ends: PaddingMode = "zeros"
    ours: bool = False
    later: bool = False
    representative: bool = True
    goals: Goals = NO_GOALS
    labels: Mapping[str, str] = field(default_factory=dict)
    absences: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""

    def __post_init__(self) -> None:
        good = isinstance(self.key, str) and KEY.fullmatch(self.key) is not None
        _checks.require(good, "key", self.key, "small letters, digits and hyphens", "such as my-method")
        self._check_types()
        _checks.require(bool(self.label.strip()), "label", self.label, "a name to print", "such as 'My Method'")
        named = self.colour == "" or re.fullmatch(r"#[0-9a-fA-F]{6}", self.colour) is not None
        _checks.require(named, "colour", self.colour, "of the form #RRGGBB", "or leave it out")
        sides = (WIDE_SIDE, MNIST_SIDE)
        _checks.require(self.side in sides, "side", self.side, f"{WIDE_SIDE} or {MNIST_SIDE}", "or leave it out")
        _checks.one_of("resamples", self.resamples, ("", "input", "filters", "features"))
        _checks.one_of("ends", self.ends, ("zeros", "circular"))
        if not self.networks and self.layer is None:
            raise UsageError(f"method {self.key!r} must have a network or a layer: give `networks` or `layer`")
        for network in NETWORKS:
            if network in self.networks and network in self.absences:
                raise UsageError(f"method {self.key!r} must have either a network or a reason why not for {network}")
        if unknown := sorted(set(self.absences) - set(ABSENCES)):
            raise UsageError(f"method {self.key!r}: `absences` has {unknown}; it may have {', '.join(ABSENCES)}")

    def _check_types(self) -> None:
        for name, kind, rule in (
            ("label", str, "text"),
            ("colour", str, "text of the form #RRGGBB"),
            ("source", Source, "a sesn.Source"),
            ("networks", Mapping, "a mapping from networks to functions that make them"),
            ("labels", Mapping, "a mapping from networks to printed names"),
            ("absences", Mapping, "a mapping to reasons"),
        ):
            if not isinstance(value := getattr(self, name), kind):
                raise WrongTypeError(f"method {self.key!r}: " + _checks.complaint(name, value, rule))
        makers = {f"networks[{network!r}]": make for network, make in self.networks.items() if _known_network(network)}
        for name, make in (makers | {"layer": self.layer, "between": self.between}).items():
            if not (callable(make) or (make is None and name not in makers)):
                raise WrongTypeError(f"method {self.key!r}: " + _checks.complaint(name, make, "a function"))

    @property
    def in_paper(self) -> bool:
        """Whether the paper compares it: it is neither later nor from outside."""
        return not (self.later or self.digest)

    def label_on(self, network: str) -> str:
        """Name it as the tables of one network do.

        Args:
            network: "mnist", "stl10" or "stir".

        Returns:
            The printed name.
        """
        return self.labels.get(_known_network(network), self.label)

    def lacks(self, network: str, recipe: str = "paper") -> str | None:
        """Say why there is no such network.

        Args:
            network: "mnist", "stl10" or "stir".
            recipe: "paper" or "released".

        Returns:
            The reason, or None if there is one.
        """
        known_recipe(recipe)
        if _known_network(network) not in self.networks:
            return self.absences.get(network, NOT_GIVEN)
        if recipe == "paper":
            return None
        return LATER if self.later else self.absences.get(f"{network}/released")

    def build(self, network: str, recipe: Recipe = "paper", **options: Any) -> nn.Module:
        """Build a network with fresh weights.

        Args:
            network: "mnist", "stl10" or "stir".
            recipe: "paper" or "released".
            options: see `sesn.build`.

        Returns:
            The network.

        Raises:
            UsageError: there is no such network, or it has no such option.
        """
        if reason := self.lacks(network, recipe):
            released = "released " if network in self.networks else ""
            raise UsageError(f"{self.label} (method {self.key!r}) has no {released}network for {network}: {reason}")
        task, make = NETWORKS[network], self.networks[network]
        sizes = {"num_classes": task.classes, "in_channels": task.image[0]}
        known = {**task.options, **sizes}
        if unknown := sorted(set(options) - set(known)):
            raise WrongTypeError(f"`options` (={unknown}) must be of {', '.join(known)} on {network}")
        # Their usual values are not passed on: a function of one's own need not take these arguments.
        asked = {name: value for name, value in options.items() if name not in sizes or value != sizes[name]}
        for name in (asked.keys() & sizes.keys()) - signature(make).parameters.keys():
            rule = f"{sizes[name]} for method {self.key!r} on {network}, whose function has no argument of this name"
            raise UsageError(_checks.complaint(name, asked[name], rule, "give it one"))
        return make(recipe=recipe, **{**task.options, **asked})

    def first_layer(
        self, in_channels: int, out_channels: int, recipe: Recipe = "paper", network: str | None = None
    ) -> nn.Module:
        """Make the layer that a network begins with: all that stands before the first norm and nonlinearity.

        Args:
            in_channels, out_channels: of the layer.
            recipe: "paper" or "released".
            network: "mnist" (at 28) or "stl10"; by default the first that the method has.

        Returns:
            The layer; of a method without one of the skeletons, its `layer` at the step 2 or, if it cannot have that,
            at the first that it can have of the steps of Table 1.

        Raises:
            UsageError: there is no such network, nor a layer to stand for it, or the layer refuses every step.
        """
        chosen = network or next((name for name in NETWORKS if name in self.networks), "mnist")
        if (reason := self.lacks(chosen, recipe)) and (network or self.layer is None):
            raise UsageError(f"{self.label} (method {self.key!r}) has no layer for {chosen}: {reason}")
        if isinstance(skeleton := self.networks.get(chosen), Skeleton):
            return skeleton.first_layer(in_channels, out_channels, recipe)
        refusal = ""
        for step in OWN_STEPS:
            try:
                return self.at_step(step)
            except Inadmissible as error:
                refusal = str(error)
        steps = ", ".join(f"{step:.4g}" for step in OWN_STEPS)
        raise Inadmissible(f"the layer of the method {self.key!r} must have one of the steps {steps}: {refusal}")

    def at_step(self, step: float) -> nn.Module:
        """Make the layer whose neighbouring scales are a factor apart.

        Args:
            step: the factor.

        Returns:
            The layer.

        Raises:
            Inadmissible: the method cannot have this factor.
            UsageError: the method has no layer.
        """
        if self.layer is None:
            raise UsageError(f"`step` (={step:.4g}) needs a `layer` of the method {self.key!r}")
        return self.layer(step)

    def chain(self, layers: int) -> list[nn.Module]:
        """Make the layers of a deep network: the one that a network begins with, and those that follow it.

        Args:
            layers: how many.

        Returns:
            The layers, the first from three colours. After a skeleton's first layer stands its second; after a `layer`
            stands `between`, if it has the same scales. Otherwise `layer` is repeated, and reads three mixtures of the
            channels before it: of the maximum over scales, or of the lengths of vectors, if it does not hand on maps.

        Raises:
            UsageError: the method has no layer, or the layer refuses every step.
        """
        first = self.first_layer(COLOURS, CHANNELS)
        return [first, *(self._following(first) for _ in range(layers - 1))]

    def _following(self, first: nn.Module) -> nn.Module:
        own = next((self.networks[name] for name in NETWORKS if name in self.networks), None)
        if isinstance(own, Skeleton):
            return own.next_layer(CHANNELS, "paper")
        if self.between is not None and scales_of(between := self.between()) == scales_of(first):
            return between
        return nn.Sequential(_Mixtures(first), self.first_layer(COLOURS, CHANNELS))

    def widths(self, network: str, recipe: Recipe = "paper") -> tuple[int, ...]:
        """Tell the channels of a network's stages or groups.

        Args:
            network: "mnist", "stl10" or "stir".
            recipe: "paper" or "released".

        Returns:
            The channels; none if the network is no skeleton.
        """
        skeleton = self.networks.get(network)
        return skeleton.widths(recipe) if isinstance(skeleton, Skeleton) else ()

    def designs(self, network: str) -> tuple[str, ...]:
        """Tell the choices of kernels and nonlinearity that a network can be built with as its option `design`.

        Args:
            network: "mnist", "stl10" or "stir".

        Returns:
            Their names besides the usual one.
        """
        return tuple(getattr(self.networks.get(_known_network(network)), "designs", ()))

    def count(self, network: str, recipe: Recipe = "paper", **options: Any) -> ParameterCount:
        """Count the parameters of a network; nothing is computed for a skeleton.

        Args:
            network, recipe, options: as in `build`.

        Returns:
            How many there are, and how many of them are used.
        """
        with torch.device("meta") if isinstance(self.networks.get(network), Skeleton) else nullcontext():
            return parameter_count(self.build(network, recipe, **options))


class _Mixtures(nn.Module):
    """Three mixtures of the channels that a layer hands on, its scales or the directions of its vectors left out."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        with torch.no_grad():
            channels = layer(torch.zeros(1, COLOURS, TRIED_SIDE, TRIED_SIDE)).shape[1]
        self.vectors = vector_angles(layer) is not None
        self.mixing = nn.Conv2d(channels, COLOURS, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps, fields or vectors to a map of three channels."""
        if x.dim() == 5:
            x = x.norm(dim=2) if self.vectors else x.amax(dim=2)
        mixed: Tensor = self.mixing(x)
        return mixed


def projected(at_step: AtStep) -> AtStep:
    """The layer with the maximum over scales after it: the Scalar variant."""
    return lambda step: nn.Sequential(at_step(step), ScaleProjection())


def scales_of(module: nn.Module) -> ScaleGrid | None:
    """The scales that a layer works at, in units of its own: its `scale_grid` or `grid`. None for a plain one."""
    for layer in module.modules():
        for name in ("scale_grid", "grid"):
            if isinstance(grid := getattr(layer, name, None), ScaleGrid):
                return grid
    return None


def vector_angles(module: nn.Module) -> tuple[float, ...] | None:
    """The angles of a layer that hands on vectors, whose directions stand for scales; None for any other."""
    angles: tuple[float, ...] | None = getattr(list(module.modules())[-1], "vector_angles", None)
    return angles


def _known_network(network: str) -> str:
    looked_up("network", network, NETWORKS)
    return network
