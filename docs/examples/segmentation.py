"""The tutorial's program: networks that tell discs from rings pixel by pixel, trained at one size, tried at others."""

import torch
from torch import nn
from torch.nn import functional as F

import sesn


def scenes(count, radius, side=48, seed=0):
    """Images with a disc and a ring [count, 1, side, side], and the class of each pixel: 0 nothing, 1 disc, 2 ring."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    classes = torch.zeros(count, side, side, dtype=torch.long)
    for scene in classes:
        for kind, (row, column) in enumerate(
            torch.randint(radius, side - radius, (2, 2), generator=generator), start=1
        ):
            distance = ((rows - row) ** 2 + (columns - column) ** 2).sqrt()
            scene[distance <= radius] = kind
            if kind == 2:
                scene[distance <= radius / 2] = 0
    return (classes > 0).float()[:, None], classes


def steerable():
    """From images [b, 1, h, w] to a score for each class at each pixel, [b, 3, h, w]."""
    basis = sesn.basis_for(sizes=(0.5, 4.0), scales=4)
    return nn.Sequential(
        *(sesn.ScaleLift(1, 8, basis), sesn.ScaleBatchNorm(8), nn.ReLU()),
        *(sesn.ScaleConv(8, 12, basis), sesn.ScaleBatchNorm(12), nn.ReLU()),
        *(sesn.ScaleConv(12, 12, basis), sesn.ScaleBatchNorm(12), nn.ReLU()),
        *(sesn.ScaleProjection(), nn.Conv2d(12, 3, 1)),
    )


def ordinary():
    """The same with ordinary 5 x 5 convolutions, and about as many parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 7, 5, padding=2), nn.BatchNorm2d(7), nn.ReLU()),
        *(nn.Conv2d(7, 8, 5, padding=2), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 3, 1),),
    )


def train(network, radius=5, steps=150):
    """Train on scenes of one radius, new ones in each step."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    network.train()
    for step in range(steps):
        images, classes = scenes(8, radius, seed=step)
        optimizer.zero_grad()
        F.cross_entropy(network(images), classes, weight=torch.tensor([0.2, 1.0, 1.0])).backward()
        optimizer.step()


@torch.no_grad()
def overlap(network, radius, count=32):
    """The mean intersection over union of discs and of rings, in per cent: 100 where every pixel is right."""
    images, classes = scenes(count, radius, seed=3000)
    found = network.eval()(images).argmax(dim=1)
    both = [((found == kind) & (classes == kind)).sum() for kind in (1, 2)]
    either = [((found == kind) | (classes == kind)).sum() for kind in (1, 2)]
    return 100 * sum(part / whole for part, whole in zip(both, either, strict=True)).item() / 2
