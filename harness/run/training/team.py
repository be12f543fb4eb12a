"""Who computes a step: one process alone, or several that share each batch."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Team:
    """One process alone."""

    rank = 0
    size = 1

    def joined(self, network: nn.Module) -> nn.Module:
        """The network to train: its gradients are the whole team's mean."""
        return network

    def share(self, batch: Tensor) -> Tensor:
        """This process's part of a batch."""
        return batch

    def total(self, value: Tensor) -> Tensor:
        """The sum over the team."""
        return value


class Ranks(Team):
    """The processes that torchrun started; to be made after init_process_group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def joined(self, network: nn.Module) -> nn.Module:
        """Rank 0's weights and statistics on all ranks, and gradients averaged over them."""
        place = next(network.parameters()).device
        return DistributedDataParallel(network, device_ids=[place.index] if place.type == "cuda" else None)

    def share(self, batch: Tensor) -> Tensor:
        """One piece after the other; they differ by one image at most."""
        return torch.tensor_split(batch, self.size)[self.rank]

    def total(self, value: Tensor) -> Tensor:
        """The sum over all ranks, the same on each."""
        summed = value.clone()
        dist.all_reduce(summed)
        return summed
