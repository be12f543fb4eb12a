"""Both branches of a module, as they were run, and what it makes of images that show something else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sesn.meter.action import GroupElement
from sesn.meter.compare import middle, ratio_of, sums_of
from sesn.meter.reading import Reading, call, like_module
from sesn.scales import ScaleGrid

#: An output may be nothing but rounding where it is no larger than so many times that of the image.
ROUNDINGS = 1e3


@dataclass(frozen=True)
class Branches:
    """Both branches of a module on the same images, in float64, and how the outputs are read."""

    module: nn.Module
    images: Tensor  # f
    small: Tensor  # L_s f
    original: Reading  # Phi(f), and how it came about
    direct: Tensor  # Phi(L_s f)
    moved: Tensor  # L_s Phi(f) before the scale axis shifts; scale channels without a partner may be zero
    kind: str
    grid: ScaleGrid | None  # None without a scale axis
    element: GroupElement  # what was done to the images

    @property
    def factor(self) -> float:
        """The factor s."""
        return self.element.scale

    def unrelated(self) -> Tensor:
        """Phi of an unrelated image in place of each L_s f: one of the same spectrum."""
        return call(self.module, scrambled(self.small))

    def told_apart(self, unrelated: Tensor) -> float:
        """By how much unrelated images change the output, where they differ from L_s f in their phases alone."""
        return middle(ratio_of(sums_of([(self.direct, unrelated)], self.direct)))

    def rounding(self) -> float:
        """By how much the rounding of the images changes Phi(f), where that is so small that it may be all there is."""
        output, eps = self.original.output, torch.finfo(like_module(self.module, self.images).dtype).eps
        sizes = [x.square().flatten(1).mean(1).cpu() for x in (output, self.images)]
        if not 0 < middle(sizes[0]) <= (ROUNDINGS * eps) ** 2 * middle(sizes[1]):
            return 0.0
        again = call(self.module, self.images * (1 + 4 * eps))
        return middle(ratio_of(sums_of([(output, again)], output)))


def scrambled(images: Tensor) -> Tensor:
    """Images of the same spectrum that show something else: the phase of every frequency is drawn anew.

    Mean, contrast and texture stay as they are, and so do colours, since all channels of an image turn by the same
    phases. They are the same for every image, so that what is found for one does not depend on the others. An image of
    one colour has no phases: noise takes its place.
    """
    drawn = torch.Generator().manual_seed(0)
    noise = torch.randn(images.shape[-2:], generator=drawn, dtype=torch.float64, device="cpu").to(images)
    phases = torch.fft.fft2(noise).sgn()
    phases[..., 0, 0] = 1
    turned: Tensor = torch.fft.ifft2(torch.fft.fft2(images) * phases).real
    flat = (images == images[..., :1, :1]).flatten(1).all(1)[:, None, None, None]
    return torch.where(flat, images + noise * images.abs().clamp_min(1.0), turned)
