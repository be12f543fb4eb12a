"""The tutorial's program: a network that finds rings among discs, trained at one size and tried at twice that size."""

import torch
from torch import nn
from torch.nn import functional as F

import sesn


def scenes(count, radius, side=48, generator=None):
    """Images with a disc and a ring [count, 1, side, side], and the class of each pixel: 0 nothing, 1 disc, 2 ring."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    classes = torch.zeros(count, side, side, dtype=torch.long)
    for index in range(count):
        at = torch.randint(radius + 1, side - radius - 1, (2, 2), generator=generator)
        for kind, (row, column) in enumerate(at.tolist(), start=1):
            distance = ((rows - row) ** 2 + (columns - column) ** 2).sqrt()
            classes[index][distance <= radius] = 0
            classes[index][(distance <= radius) & ((distance > radius / 2) | (kind == 1))] = kind
    return (classes > 0).float()[:, None], classes


def steerable(basis):
    """From images [b, 1, h, w] to a score for each class at each pixel, [b, 3, h, w]."""
    return nn.Sequential(
        *(sesn.ScaleLift(1, 8, basis), sesn.ScaleBatchNorm(8), nn.ReLU()),
        *(sesn.ScaleConv(8, 16, basis), sesn.ScaleBatchNorm(16), nn.ReLU()),
        *(sesn.ScaleProjection(), nn.Conv2d(16, 3, 1)),
    )


def ordinary():
    """The same with ordinary convolutions of about as many parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 7, padding=3), nn.BatchNorm2d(6), nn.ReLU()),
        *(nn.Conv2d(6, 4, 7, padding=3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Conv2d(4, 3, 1),),
    )


def train(network, radius=6, steps=150, seed=0):
    """Train on scenes of one radius."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    network.train()
    for _ in range(steps):
        images, classes = scenes(8, radius, generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(network(images), classes, weight=torch.tensor([0.2, 1.0, 1.0])).backward()
        optimizer.step()
    return network.eval()


@torch.no_grad()
def overlap(network, radius, count=32):
    """Intersection over union of discs and rings, in per cent: 100 where every pixel is right."""
    images, classes = scenes(count, radius, generator=torch.Generator().manual_seed(1000))
    found = network(images).argmax(dim=1)
    parts = [
        ((found == kind) & (classes == kind)).sum() / ((found == kind) | (classes == kind)).sum() for kind in (1, 2)
    ]
    return 100 * torch.stack(parts).mean().item()
