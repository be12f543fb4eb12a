"""The properties of the paper's Table 1, measured on each method's own layer, and its error under translations.

What the table's columns mean here:

- *Equivariance*: Delta of the layer as published (family "own"), at the power of its own step nearest to 2, beside
  Delta of a plain convolution on the same images.
- *Admissible scales*: Delta of the layer built for a factor, at that factor, for factors of three families. The
  caption says that "Grid" are those "which generate images which lie exactly on the initial pixel grid": they leave a
  whole number of pixels. So integers are on the grid, and the grid is within any; a factor stands in the narrowest
  family. One that the layer cannot be built for is a row with Delta NaN and the layer's own words in `refused`.
- *Interscale*: how many other scales of its input a scale of the output depends on, by gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from harness.experiment import CellSettings, Context, Draft, Experiment, Request
from harness.records import Budget, Cell, Measurement, Scalar
from sesn import EquivarianceError, Meter, ScaleGrid, ScaleTranslation, rescale, translate
from sesn.algorithms.axis import PaddingMode
from sesn.errors import Inadmissible
from sesn.methods import METHODS, method, scales_of, vector_angles
from sesn.methods._vectors import nearest_scale
from sesn.methods.cnn import plain
from sesn.methods.method import CHANNELS, COLOURS, HIDDEN_SCALES
from sesn.networks.skeleton import known_recipe
from sesn.tools.images import image_set

#: Pixels along each side of the images.
SIDE = 96
#: Downscales by family. Even a plain convolution hardly changes below the square root of 2, so none is smaller.
FAMILIES: dict[str, tuple[float, ...]] = {
    "integer": (2.0, 3.0, 4.0),
    "grid": (3 / 2, 12 / 5, 16 / 5),
    "any": (math.sqrt(2), math.sqrt(5), math.pi),
}
#: The published layers are measured near this factor, where a plain convolution fails clearly.
OCTAVE = 2.0
#: Translations (down, right) in pixels, and the border that is left out: DSS with dilation 8 sees 32 pixels far.
SHIFTS = ((1, 0), (2, 3), (5, -4))
TRANSLATION_MARGIN = 40
#: In float64 large kernels take long, and what commutes does so on every image.
TRANSLATION_IMAGES = 2


#: Images and weight draws: the table's marks are far coarser than the curves of the sweeps.
MARKS: dict[Budget, tuple[int, int]] = {"smoke": (4, 1), "lite": (16, 4), "paper": (64, 32)}


@dataclass(frozen=True, kw_only=True)
class PropertySettings(CellSettings):
    """The images, and the recipe, which decides the published layer."""

    images: str
    image_count: int
    recipe: str = "paper"


def cells(request: Request) -> Iterator[Draft]:
    """Every method that has a layer of its own, the first draw of all before the second of any."""
    images, draws = MARKS[request.budget]
    settings = PropertySettings(images=request.images, image_count=images)
    for draw in range(draws):
        for row in request.chosen(row for row in METHODS.values() if row.layer is not None):
            yield row.key, settings, draw, ""


def properties(cell: Cell, context: Context) -> list[Measurement]:
    """Everything about one method with one draw of weights; one value per image where there are images.

    Layers for a step are built as the paper describes them, whatever the recipe.
    """
    row, settings = method(cell.method), PropertySettings.of(cell)
    recipe = known_recipe(settings.recipe)
    # The same images whatever the draw of weights: the two are crossed.
    images, _ = image_set(settings.images, COLOURS, SIDE, SIDE, settings.image_count, data_root=context.data_root)
    place = torch.device(context.device)

    def own() -> nn.Module:
        return drawn(lambda: row.first_layer(COLOURS, CHANNELS, recipe), cell.seed).to(place)

    reference = drawn(lambda: plain(row.side), cell.seed).to(place)
    found = list(_published(own(), reference, images))
    steps = [(family, factor) for family, factors in FAMILIES.items() for factor in factors]
    for done, (family, factor) in enumerate(steps, 1):
        context.on_progress(done / (len(steps) + 2), f"{family} {factor:.4g}")
        found += _at_factor(row.at_step, reference, images, family, factor, cell.seed)
    exact = own().double()
    for down, right in SHIFTS:
        errors = translation_error(exact, images[:TRANSLATION_IMAGES], down, right, TRANSLATION_MARGIN, row.ends)
        found.append(Measurement("translation_error", tuple(errors.tolist()), {"down": down, "right": right}))
    found.append(_interscale(row.between, cell.seed))
    context.on_progress(1.0, "done")
    return found


def drawn(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module in eval mode with weights drawn by the seed, its biases zero.

    A bias is part of both outputs, so it would inflate the denominator of Delta and hide the error.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make().eval()
    for name, parameter in module.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)
    return module


# Delta


def own_factor(grid: ScaleGrid | None) -> float:
    """The power of the grid's step nearest to an octave; an octave for a layer without scales."""
    if grid is None or len(grid) == 1:
        return OCTAVE
    steps = round(math.log(OCTAVE) / math.log(grid.ratio))
    return grid.ratio ** min(max(1, steps), len(grid) - 1)


def middle_crop(side: int, downscale: float) -> int:
    """Pixels to leave out at each border: the middle 1/downscale of the side is compared, and at most its half.

    There even a map that was enlarged by the downscale and cropped (SI-ConvNet) still has responses, and what lies past
    the image is out of sight. It is the same for every method.
    """
    small = round(side / downscale)
    return (small - int(small / max(OCTAVE, downscale))) // 2


def layer_error(module: nn.Module, images: Tensor, downscale: float) -> EquivarianceError:
    """Delta of a method's layer, the group acting on what the layer hands on: map, field, or vectors."""
    meter = meter_for(module, Meter(crop=middle_crop(images.shape[-1], downscale)))
    if meter.action is None:
        return meter.measure(module, images, 1 / downscale)
    return replace(meter.measure(module, images, 1 / downscale, context=False, repeat=False), kind="vectors")


def meter_for(module: nn.Module, meter: Meter) -> Meter:
    """The meter with the group acting on what the layer hands on: map, field, or vectors."""
    angles, grid = vector_angles(module), scales_of(module)
    if angles is None:
        return replace(meter, grid=grid)
    assert grid is not None
    return replace(meter, action=Turning(angles, grid.ratio), kind="map")


@dataclass(frozen=True)
class Turning:
    """How vectors move whose angle stands for a scale: on a shrunken image they turn by as many steps as it shrank.

    As scale channels without a partner are left out of a field, so are the vectors here whose scale has none: those of
    the image that would turn beyond the largest angle, and those of the shrunken image that would come from below the
    smallest. A position is left out if it is so in either output, which is kind to the method; `all` counts everything.
    """

    angles: tuple[float, ...]
    ratio: float

    def __call__(self, vectors: Tensor, factor: float) -> Tensor:
        """Vectors [b, c, 2, h, w], shrunk and turned."""
        angle = self._steps(factor) * (self.angles[1] - self.angles[0])
        u, v = rescale(vectors, factor).unbind(2)
        cos, sin = math.cos(angle), math.sin(angle)
        return torch.stack([cos * u - sin * v, sin * u + cos * v], dim=2)

    def _steps(self, factor: float) -> int:
        return round(-math.log(factor) / math.log(self.ratio))

    def partnered(self, vectors: Tensor, direct: Tensor, factor: float) -> Tensor:
        """Where the vectors of both outputs, the first shrunk, have a scale that has a partner."""
        angles, steps = torch.tensor(self.angles, dtype=torch.float64), self._steps(factor)
        before = nearest_scale(rescale(vectors, factor), angles) < len(angles) - steps
        return (before & (nearest_scale(direct, angles) >= steps)).unsqueeze(2)


def _published(module: nn.Module, reference: nn.Module, images: Tensor) -> Iterator[Measurement]:
    """The layer as published: Delta, and of a field Delta of every pair of scale channels."""
    grid = scales_of(module)
    downscale = own_factor(grid)
    error = layer_error(module, images, downscale)
    yield from _compared(error, layer_error(reference, images, downscale), {"family": "own", "downscale": downscale})
    if error.kind != "field" or grid is None:
        return
    for (k, _), values in zip(error.pairs, error.by_scale, strict=True):
        at: dict[str, Scalar] = {"family": "own, by scale", "downscale": downscale, "scale": grid.sigmas[k]}
        yield Measurement("delta", tuple(values.tolist()), at)


def _at_factor(
    build: Callable[[float], nn.Module], reference: nn.Module, images: Tensor, family: str, downscale: float, seed: int
) -> Iterator[Measurement]:
    at: dict[str, Scalar] = {"family": family, "downscale": downscale}
    plain_error = layer_error(reference, images, downscale)
    try:
        module = drawn(lambda: build(downscale), seed).to(next(reference.parameters()).device)
    except Inadmissible as refusal:
        yield Measurement("delta", (math.nan,), {**at, "refused": str(refusal)})
        yield Measurement("delta_cnn", tuple(plain_error.valid.tolist()), at)
        return
    yield from _compared(layer_error(module, images, downscale), plain_error, at)


def _compared(error: EquivarianceError, plain_error: EquivarianceError, at: dict[str, Scalar]) -> Iterator[Measurement]:
    """A layer's error beside that of the plain convolution."""
    values = {
        "delta": error.valid,
        "delta_all": error.all,
        "delta_centred": error.centred,
        "delta_cnn": plain_error.valid,
        "floor": plain_error.floor,
    }
    for metric, tensor in values.items():
        yield Measurement(metric, tuple(tensor.tolist()), at)
    if error.kind == "field":
        yield Measurement("channels_lost", (float(error.lost),), at)


# Translations and scales


def translation_error(
    module: nn.Module, images: Tensor, down: int, right: int, margin: int, ends: PaddingMode = "zeros"
) -> Tensor:
    """||T Phi(f) - Phi(T f)||^2 / ||T Phi(f)||^2 of each image, without `margin` pixels at the borders.

    A module that commutes is at the rounding of its dtype. Whatever its output is, T moves the last two axes, and what
    leaves comes back at the other side if the module takes images to repeat (`ends` circular).
    """
    meter = Meter(action=lambda output, _: translate(output, down, right, ends), kind="map", crop=margin, ends=ends)
    element = ScaleTranslation(1.0, (down, right))
    return meter.measure(module, images, element, context=False, repeat=False).valid


def interscale_reach(module: nn.Module, field: Tensor, seed: int = 0) -> int:
    """The most other scales of a field [b, c, s, h, w] that any one scale of the output has a gradient to.

    Gradients count where the field is not zero. Elsewhere they do not tell what a filter sees: a vector is as sensitive
    to a component of any other direction, whatever the layer does.
    """
    inputs = field.detach().requires_grad_()
    output: Tensor = module(inputs)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
    reached = []
    for k in range(output.shape[2]):
        (gradient,) = torch.autograd.grad((output * weights)[:, :, k].sum(), inputs, retain_graph=True)
        seen = (gradient * field).abs().amax(dim=(0, 1, 3, 4)) > 0
        reached.append(sum(bool(hit) for scale, hit in enumerate(seen) if scale != k))
    return max(reached)


def _interscale(between: Callable[[], nn.Module] | None, seed: int) -> Measurement:
    """Without scales between layers there is nothing for a filter to see: reach 0, and `scale_axis` says why."""
    if between is None:
        return Measurement("interscale_reach", (0.0,), {"scale_axis": False})
    reach = interscale_reach(drawn(between, seed).double(), one_scale_each(seed), seed)
    return Measurement("interscale_reach", (float(reach),), {"scale_axis": True})


def one_scale_each(seed: int) -> Tensor:
    """A random field in which every position of a channel has a single scale: no more can be said by a vector.

    Lengths of vectors are positive, and so are all the features after a ReLU.
    """
    generator = torch.Generator().manual_seed(seed)
    side = SIDE // 4
    lengths = torch.rand(1, CHANNELS, HIDDEN_SCALES, side, side, generator=generator, dtype=torch.float64)
    alive = torch.randint(HIDDEN_SCALES, (1, CHANNELS, 1, side, side), generator=generator)
    return lengths * (alive == torch.arange(HIDDEN_SCALES)[:, None, None])


PROPERTIES = Experiment(
    key="properties",
    title="Table 1: which methods are equivariant, to which factors.",
    version=1,
    settings=PropertySettings,
    cells=cells,
    run=properties,
    work=lambda settings: float(settings.image_count),
    axes=(),
    seed="weight draw",
    alone=False,
)
