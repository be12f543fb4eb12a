"""The tutorial's program: two small networks learn digits of one size, and are tried at others."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import sesn

digits = load_digits()
labels = torch.tensor(digits.target)


def pictures(size, canvas=32):
    """All 1,797 digits at this size in pixels, in the middle of an empty canvas: [1797, 1, canvas, canvas]."""
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    images = F.interpolate(images, size=(size, size), mode="bicubic", antialias=True)
    before = (canvas - size) // 2
    after = canvas - size - before
    return F.pad(images, (before, after, before, after))


def steerable(basis=None):
    """The scale-equivariant network; without a basis its layers take `sesn.basis_for()`."""
    return nn.Sequential(
        *(sesn.ScaleLift(1, 16, basis), sesn.ScaleBatchNorm(16), nn.ReLU(), sesn.SpatialMaxPool(2)),
        *(sesn.ScaleConv(16, 32, basis), sesn.ScaleBatchNorm(32), nn.ReLU(), sesn.ScaleProjection()),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )


def ordinary():
    """The same network with ordinary 5 x 5 convolutions, and about as many parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 5, padding=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 26, 5, padding=2), nn.BatchNorm2d(26), nn.ReLU()),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(26, 10)),
    )


def train(network, chosen, sizes=(16,), epochs=10):
    """Train on the chosen digits; each batch has one of the sizes."""
    shown = [pictures(size) for size in sizes]
    steps = epochs * -(-len(chosen) // 32)
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    network.train()
    for _ in range(epochs):
        for batch in chosen[torch.randperm(len(chosen))].split(32):
            images = shown[int(torch.randint(len(shown), ()))]
            optimizer.zero_grad()
            F.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def accuracy(network, chosen, size):
    """The part of the chosen digits that the network reads at this size, in per cent."""
    network.eval()
    right = network(pictures(size)[chosen]).argmax(dim=1) == labels[chosen]
    return 100 * right.float().mean().item()
