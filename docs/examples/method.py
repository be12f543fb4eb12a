"""A method of one's own: a CNN that sees its input at two sizes and keeps the larger response."""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

import sesn


class TwoSizes(nn.Module):
    """A convolution of the image, and of the image shrunk by a step: the maximum of both."""

    def __init__(self, in_channels: int, out_channels: int, step: float) -> None:
        super().__init__()
        self.conv, self.step = nn.Conv2d(in_channels, out_channels, 7, padding=3, bias=False), step

    def forward(self, image: Tensor) -> Tensor:
        """Maps [b, c, h, w] of the image's size."""
        side = image.shape[-1]
        small = interpolate(image, size=round(side / self.step), mode="bilinear", antialias=True)
        return torch.maximum(self.conv(image), interpolate(self.conv(small), size=side, mode="bilinear"))


def mnist(resolution: int, **_: object) -> nn.Module:
    """From images [b, 1, 28, 28] to ten scores."""
    stages: list[nn.Module] = [nn.Upsample(size=resolution, mode="bilinear")]
    for i, o in ((1, 8), (8, 16), (16, 32)):
        stages += [TwoSizes(i, o, 1.4), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(o)]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


MINE = sesn.Method(
    "two-sizes",
    "Two Sizes",
    sesn.Source("Me 2026", "Input Rescaling"),
    networks={"mnist": mnist},
    layer=lambda step: TwoSizes(3, 8, step),
    resamples="input",
)
