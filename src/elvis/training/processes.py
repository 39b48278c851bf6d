"""Several processes on one run, as `torchrun` starts them; alone, all of this is nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from elvis.errors import TrainingError


@dataclass(frozen=True, slots=True)
class Processes:
    """This process among those of a run.

    Attributes:
        rank: which one, from 0.
        world: how many.
    """

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replaces each tensor by its sum over all processes, in one exchange."""
        several = list(tensors)
        if self.world == 1 or not several:
            return
        flat = torch.cat([each.detach().reshape(-1) for each in several])
        distributed.all_reduce(flat)
        for each, part in zip(several, flat.split([each.numel() for each in several]), strict=True):
            each.copy_(part.view_as(each))

    def add_up_gradients(self, module: nn.Module) -> None:
        """Sums the gradients of all processes; one without a gradient counts as zero."""
        if self.world == 1:
            return
        for parameter in module.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.add_up(parameter.grad for parameter in module.parameters() if parameter.grad is not None)

    def first_says(self, make: Callable[[], Any]) -> Any:
        """What the first process computes, told to all; where it fails, all do."""
        if self.world == 1:
            return make()
        told: list[Any] = [None, None]
        failed: Exception | None = None
        if self.first:
            try:
                told[0] = make()
            except Exception as error:  # whatever it is, the others wait for it
                failed, told[1] = error, f"the first process failed: {error}"
        distributed.broadcast_object_list(told)
        if failed is not None:
            raise failed
        if told[1] is not None:
            raise TrainingError(told[1])
        return told[0]


@contextmanager
def joined(device: str) -> Generator[Processes]:
    """The processes that `torchrun` started, connected for as long as this lasts; alone where it did not."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes()
        return
    if distributed.is_initialized():
        yield Processes(distributed.get_rank(), distributed.get_world_size())
        return
    # The others wait while the first one extracts descriptors, which may take hours.
    backend = "cpu:gloo,cuda:nccl" if torch.device(device).type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(days=7))
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


def own_device(device: str) -> str:
    """The device of this process: where `torchrun` started several on GPUs, each takes its own.

    Example:
        >>> own_device("cpu")
        'cpu'
    """
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if device == "cuda" and local is not None else device
