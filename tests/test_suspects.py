"""The diagnosis of layers: what it blames does break equivariance, what it spares does not, and its code runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from meter_sample import Does
from torch import Tensor, nn
from torch.nn import functional as F

import sesn
from sesn import Finding, Meter, Rotation, ScaleConv, ScaleGrid, ScaleLift, ScaleTranslation, basis_a, diagnose
from sesn.meter.elements import Element
from sesn.tools.images import image_set, random_images

PHOTOGRAPHS, _ = image_set("embedded", 1, 96, 96, 4)
FOLLOW, KEEP = Meter(), Meter(canvas="keep")
#: Relative Delta of what is innocent and of what is guilty.
INNOCENT, GUILTY = 1e-3, 5e-2


class Attending(nn.Module):
    """Attention between all pixels, or all patches, with an embedding of their positions or without."""

    def __init__(self, patch: int = 1, positions: int = 0, resizes: bool = True) -> None:
        super().__init__()
        self.cut, self.attention = nn.Conv2d(1, 12, patch, patch), nn.MultiheadAttention(12, 2, batch_first=True)
        self.norm, self.resizes = nn.LayerNorm(12), resizes
        self.pos_embed = nn.Parameter(torch.randn(1, 12, positions, positions)) if positions else None

    def forward(self, x: Tensor) -> Tensor:
        maps = self.cut(x)
        if self.pos_embed is not None:
            resized = F.interpolate(self.pos_embed, maps.shape[-2:], mode="bicubic") if self.resizes else self.pos_embed
            maps = maps + resized
        tokens = maps.flatten(2).transpose(1, 2)
        made = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return maps + made.transpose(1, 2).reshape(maps.shape)  # type: ignore[no-any-return]


class Placed(nn.Module):
    """Each place times a number of its own, resized with the image."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(2 * torch.randn(1, 1, 12, 12))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + F.interpolate(self.position, x.shape[-2:], mode="bicubic", align_corners=False))


def scores() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 1), nn.Softplus(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def wide_norm() -> nn.Module:
    layer = nn.LayerNorm([1, 96, 96])
    nn.init.normal_(layer.weight)
    return layer


#: What the diagnosis says of each layer by itself is held against its relative Delta.
FACTS: dict[str, tuple[Callable[[], nn.Module], Meter, str]] = {
    "instance norm": (lambda: nn.InstanceNorm2d(1), FOLLOW, ""),
    "group norm": (lambda: nn.GroupNorm(1, 1), FOLLOW, ""),
    "instance norm on a canvas": (lambda: nn.InstanceNorm2d(1), KEEP, ""),
    "mean over space": (scores, FOLLOW, ""),
    "attention between pixels": (Attending, FOLLOW, ""),
    "positions that follow the image": (lambda: Attending(4, positions=6), FOLLOW, "patches"),
    "positions and patches on a canvas": (lambda: Attending(4, positions=6), KEEP, "patches, position embedding"),
    "instance norm with a background": (
        lambda: nn.InstanceNorm2d(1),
        Meter(canvas="keep", ends="zeros"),
        "statistics of the input",
    ),
    "positions on a canvas": (Placed, KEEP, "position embedding"),
    "norm over space": (wide_norm, KEEP, "norm with weights for every place"),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(96 * 96, 5)), KEEP, "a head over space"),
    "patches": (lambda: nn.Conv2d(1, 8, 4, 4), FOLLOW, "patches"),
    "overlapping patches": (lambda: nn.Conv2d(1, 8, 7, 4, 3), FOLLOW, "patches"),
    "convolution": (lambda: nn.Conv2d(1, 8, 5, padding=2), FOLLOW, "ordinary convolution"),
    "transposed convolution": (lambda: nn.ConvTranspose2d(1, 8, 4, 2, 1), FOLLOW, "transposed convolution"),
}


@pytest.mark.parametrize(("make", "meter", "cause"), FACTS.values(), ids=FACTS)
def test_a_layer_is_blamed_if_it_breaks_equivariance(make: Callable[[], nn.Module], meter: Meter, cause: str) -> None:
    torch.manual_seed(0)
    network = make().eval()
    images = PHOTOGRAPHS[..., :32, :32] if make is Attending else PHOTOGRAPHS  # its tokens are pixels
    error = meter.measure(network, images, 0.5)
    relative = float(error.relative.median())
    blamed = {finding.cause for finding in diagnose(network, images, error)}
    structural = {one for _, _, causes in FACTS.values() for one in causes.split(", ") if one}
    if cause:
        assert relative > GUILTY
        assert blamed & structural == {*cause.split(", ")}
    else:
        assert relative < (INNOCENT if meter == FOLLOW else GUILTY) or isinstance(network, nn.Sequential)
        assert not blamed & structural


def test_the_mean_over_space_is_as_equivariant_as_what_it_is_the_mean_of() -> None:
    torch.manual_seed(0)
    assert float(FOLLOW.measure(scores().eval(), PHOTOGRAPHS, 0.5).valid.median()) < 1e-5


def test_a_layer_that_works_on_rows_of_pixels_is_no_head_over_space() -> None:
    """BandlimitedReLU, the remedy of another finding, reshapes fields to rows and back."""
    basis = basis_a(ScaleGrid.geometric(1.5, 2**0.5, 3), "wide", 2)
    network = nn.Sequential(ScaleLift(1, 2, basis), sesn.BandlimitedReLU(), ScaleConv(2, 2, basis)).eval()
    error = FOLLOW.measure(network, PHOTOGRAPHS, 0.5)
    assert "a head over space" not in {finding.cause for finding in diagnose(network, PHOTOGRAPHS, error)}


def test_what_is_innocent_is_named() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(Attending(4), nn.InstanceNorm2d(12), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    network.append(nn.LayerNorm(12))
    error = FOLLOW.measure(network, PHOTOGRAPHS, 0.5)
    *_, last = diagnose(network, PHOTOGRAPHS, error)
    assert last.cause == "not to blame"
    for named in ("attention over all places (0.attention)", "norms over channels (0.norm, 4)", "means over space (2)"):
        assert named in last.evidence
    kept = diagnose(network, PHOTOGRAPHS, KEEP.measure(network, PHOTOGRAPHS, 0.5))
    assert "not to blame" not in {finding.cause for finding in kept}  # the background is in every mean


# --- the remedies


def lift(window: Any = "wide", smallest: float = 1.5, **options: Any) -> ScaleLift:
    return ScaleLift(1, 2, basis_a(ScaleGrid.geometric(smallest, 2.0, 3), window, 2), **options)


def mixing() -> nn.Module:
    basis, circular = basis_a(ScaleGrid.geometric(1.5, 2.0, 4), "wide", 2), {"padding_mode": "circular", "bias": False}
    lifted = ScaleLift(1, 2, basis, **circular)  # type: ignore[arg-type]
    return nn.Sequential(lifted, nn.ReLU(), ScaleConv(2, 2, basis, interscale=2, **circular)).double()  # type: ignore[arg-type]


def dead() -> nn.Module:
    layer = nn.Conv2d(1, 2, 3, padding=1, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def mean_of_a_cnn() -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers)


class Reversed(ScaleLift):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).flip(2)


SMALL = random_images(0, (2, 1, 64, 64)).float()
#: A network for every finding, and how it is measured.
PROVOKED: dict[str, tuple[Callable[[], nn.Module], Meter, Element]] = {
    "no signal": (dead, FOLLOW, 0.5),
    "chance or the other images": (
        lambda: Does(lambda x, conv: conv(x) - conv(x).mean(0), nn.Conv2d(1, 2, 3, padding=1)),
        FOLLOW,
        0.5,
    ),
    "too few scales": (mixing, Meter(spoiled=5), 0.5),
    "truncation of the scale axis": (mixing, Meter(resampler="fourier"), 0.5),
    "wrong output representation": (
        lambda: Reversed(1, 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 3), "wide", 2)),
        FOLLOW,
        0.5,
    ),
    "factor between two scales": (lift, FOLLOW, 0.7),
    "ordinary convolution": (lambda: nn.Conv2d(1, 2, 5, padding=2), FOLLOW, 0.5),
    "patches": (lambda: nn.Conv2d(1, 8, 4, 4), FOLLOW, 0.5),
    "a head over space": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 5)), KEEP, 0.5),
    "norm with weights for every place": (lambda: nn.LayerNorm([1, 64, 64]), KEEP, 0.5),
    "position embedding": (Placed, KEEP, 0.5),
    "statistics of the input": (lambda: nn.InstanceNorm2d(1), Meter(canvas="keep", ends="zeros"), 0.5),
    "truncated windows": (lambda: lift(25), FOLLOW, 0.5),
    "undersampled functions": (lambda: lift(smallest=0.4), FOLLOW, 0.5),
    "padding": (lambda: lift(smallest=1.0, bias=False), FOLLOW, 0.5),
    "stride phase and even sizes": (lambda: nn.Conv2d(1, 2, 3, 2, 1), FOLLOW, 0.5),
    "aliasing by the nonlinearity": (lambda: nn.Sequential(lift(), nn.ReLU()), FOLLOW, 0.5),
    "kernels with a direction": (lambda: nn.Conv2d(1, 2, 5, padding=2), FOLLOW, Rotation(30)),
    "stride phase": (lambda: nn.Conv2d(1, 2, 3, 2, 1), FOLLOW, ScaleTranslation(1.0, (1, 1))),
    "transposed convolution": (lambda: nn.ConvTranspose2d(1, 2, 4, 2, 1), FOLLOW, 0.5),
    "the border of a shifted picture": (mean_of_a_cnn, FOLLOW, ScaleTranslation(1.0, (4, 4))),
}
#: Of these the options of the command line do what the code does.
OPTIONS = {
    "padding": "--resampler fourier",
    "factor between two scales": "--downscale 2",
    "stride phase and even sizes": "--input 1x63x63 --downscale 2.03226",
    "stride phase": "--translate 2",
    "kernels with a direction": "--rotate 90",
    "the border of a shifted picture": "--ends circular",
}


def found_in(cause: str) -> tuple[nn.Module, Finding]:
    make, meter, factor = PROVOKED[cause]
    torch.manual_seed(0)
    network = make().eval()
    findings = diagnose(network, SMALL, meter.measure(network, SMALL, factor))
    [finding] = [one for one in findings if one.cause == cause]
    return network, finding


def run(code: str, module: nn.Module) -> Any:
    output = torch.zeros(2, 2, 3, 8, 8)
    return eval(code, {"sesn": sesn, "nn": nn, "torch": torch, "module": module, "images": SMALL, "output": output})


@pytest.mark.parametrize("cause", PROVOKED)
def test_the_code_of_a_remedy_runs(cause: str) -> None:
    network, finding = found_in(cause)
    assert finding.code
    with torch.no_grad():
        assert run(finding.code, network) is not None


def test_the_example_of_a_remedy_is_of_the_layer_that_is_named_last() -> None:
    _, finding = found_in("aliasing by the nonlinearity")
    assert re.search(r"BandlimitedReLU, for example `sesn\.BandlimitedReLU\(\)`", str(finding))


@pytest.mark.parametrize("cause", PROVOKED)
def test_the_command_line_is_told_its_options(cause: str) -> None:
    _, finding = found_in(cause)
    told = finding.on_the_command_line()
    if cause in OPTIONS:
        assert told.endswith(f", for example {OPTIONS[cause]}.")
    assert not re.search(r"equivariance_error|Meter|\.eval\(", told)


def test_scores_of_a_shifted_picture_change_by_what_leaves_it() -> None:
    """A shift by the stride, which no layer minds: all that is left is the border."""
    network, finding = found_in("the border of a shifted picture")
    shift = ScaleTranslation(1.0, (4, 4))
    found = [Meter(ends=ends).measure(network, SMALL, shift) for ends in ("auto", "circular")]
    numbers = [float(one.relative.quantile(0.5)) for one in found]
    assert numbers[1] < numbers[0] / 5
    assert "falls from {:.2g} to {:.2g}".format(*numbers) in finding.evidence
    maps = FOLLOW.measure(network[:3], SMALL, shift)  # type: ignore[index]
    assert float(maps.relative.median()) < 1e-10


def test_every_finding_is_provoked() -> None:
    """But for that which has nothing to remedy, and those of projections."""
    folder = Path(sesn.__file__).parent / "meter"
    written = "".join((folder / name).read_text("utf-8") for name in ("diagnosis.py", "suspects.py"))
    assert {*re.findall(r'Finding\(\s*"([^"]+)"', written)} == {*PROVOKED, "not to blame"}


def relative(module: nn.Module) -> float:
    """On sides at which windows with a stride of 4 are centred."""
    images = random_images(0, (4, 1, 65, 65))
    return float(sesn.equivariance_error(module.eval(), images, 33 / 65).relative.median())


@pytest.mark.parametrize("cause", ["ordinary convolution", "patches"])
def test_a_steerable_layer_in_place_of_a_convolution_helps(cause: str) -> None:
    network, finding = found_in(cause)
    assert relative(run(finding.code, network)) < relative(network) / 100


def test_sizes_that_are_proposed_are_centred() -> None:
    network, finding = found_in("stride phase and even sizes")
    assert "images[..., :63, :63], 31 / 63" in finding.code
    error = run(finding.code, network)
    again = diagnose(network, SMALL[..., :63, :63], error)
    assert finding.cause not in {one.cause for one in again}


def test_delta_falls_without_positions() -> None:
    network, finding = found_in("position embedding")
    before = KEEP.measure(network, SMALL, 0.5)
    run(finding.code, network)
    assert float(KEEP.measure(network, SMALL, 0.5).valid.median()) < float(before.valid.median()) / 2


class Several(nn.Module):
    """A network whose output is one of several."""

    def __init__(self) -> None:
        super().__init__()
        self.placed = Placed()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"map": self.placed(x), "other": x}


def test_parts_have_the_names_that_the_network_gives_them() -> None:
    """Not those of the wrapper that takes one of its outputs: the line of code is run on the network itself."""
    module = Several().eval()
    wrapped = sesn.OutputOf(module, output="map")
    found = diagnose(wrapped, PHOTOGRAPHS, sesn.equivariance_error(wrapped, PHOTOGRAPHS, 0.5, canvas="keep"))
    (finding,) = (one for one in found if one.cause == "position embedding")
    assert "module.placed" not in str(finding)
    exec(finding.code, {"module": module})
    assert not module.placed.position.any()


class QuarterTurns(nn.Module):
    """The sum of a convolution's answers to the four quarter turns, each turned back: it commutes with these."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        return sum((self.conv(x.rot90(n, (-2, -1))).rot90(-n, (-2, -1)) for n in range(4)), torch.zeros(()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_in_the_dtype_of_the_network_is_nobodys_fault(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network, images = QuarterTurns().to(dtype), random_images(0, (4, 1, 48, 48))
    error = sesn.equivariance_error(network, images, Rotation(90))
    assert error.valid.min() > 0
    assert not error.at_floor or dtype == torch.float64
    assert diagnose(network, images, error) == []
    turned = sesn.equivariance_error(network, images, Rotation(30))
    assert [one.cause for one in diagnose(network, images, turned)] == ["kernels with a direction"]


def test_a_pair_of_functions_is_not_asked_of_fields() -> None:
    """What is done to images is only for images."""
    blurred = sesn.Transform(lambda x: F.avg_pool2d(x, 3, 1, 1), lambda y: y + 1, "blur")
    lift = ScaleLift(1, 2, basis_a(ScaleGrid.geometric(1.5, 2.0, 2), "wide", 3))
    error = sesn.equivariance_error(lift, PHOTOGRAPHS, blurred)
    assert isinstance(diagnose(lift, PHOTOGRAPHS, error), list)
