"""What training minimises, and its gradient in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from elvis.models.elvis import Elvis
from elvis.training.batches import Batch
from elvis.training.config import TrainConfig
from elvis.values import Descriptors

CPU_ENTRIES = 1 << 22
"""Entries of similarity matrices that go backwards together on a CPU; ten rounds keep some forty copies of each."""
GPU_ENTRIES = 1 << 26


def chance_loss(config: TrainConfig) -> float:
    """The loss of a head that knows nothing: it gives every pair the same score.

    Example:
        >>> round(chance_loss(TrainConfig()), 3)
        0.693
    """
    return math.log(2) if config.loss == "bce" else math.log(2 + config.batch_negatives)


def pair_loss(logits: Tensor, real: Tensor, loss: str) -> Tensor:
    """Sum over anchors of the loss of their candidates, of which the first is the right one.

    Args:
        logits: (A, C).
        real: (A, C) bool; an anchor without real candidates adds nothing.
        loss: `bce` is the mean over an anchor's candidates, `listwise` the softmax over them.

    Example:
        >>> round(float(pair_loss(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool), "bce")), 3)
        0.693
        >>> round(float(pair_loss(torch.zeros(1, 6), torch.ones(1, 6, dtype=torch.bool), "listwise")), 3)
        1.792
    """
    if loss == "bce":
        target = torch.zeros_like(logits)
        target[:, 0] = 1
        each = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return (each.masked_fill(~real, 0).sum(dim=1) / real.sum(dim=1).clamp_min(1)).sum()
    counted = real.any(dim=1)
    logits = logits.masked_fill(~real & counted[:, None], -torch.inf)
    return functional.cross_entropy(logits, logits.new_zeros(len(logits), dtype=torch.long), reduction="none")[
        counted
    ].sum()


def backward(head: Elvis, batch: Batch, config: TrainConfig) -> Tensor:
    """Adds the gradient of this process's part of the mean loss to the parameters; returns that part.

    Pictures are prepared once; pairs are worked off in blocks of bounded memory, whose gradients meet at the prepared
    descriptors before they go on into the projection together.
    """
    kind = batch.anchors.vectors.device.type
    with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
        prepared = [_as_float32(head.prepare(each)) for each in (batch.anchors, batch.others)]
    leaves = [_leaf(each) for each in prepared]
    total = batch.anchors.vectors.new_zeros(())
    for part in _blocks(batch):
        candidates = batch.candidates[part]
        count, each = candidates.shape
        rows = torch.arange(len(batch.anchors), device=candidates.device)[part].repeat_interleave(each)
        query, gallery = leaves[0].select(rows), leaves[1].select(candidates.flatten())
        logits = head.calibrated(head.score(query, gallery), query.counts + gallery.counts)
        loss = pair_loss(logits.unflatten(0, (count, each)), batch.real[part], config.loss) / batch.total
        loss.backward()
        total += loss.detach()
    outputs, gradients = _to_continue(prepared, leaves)
    if outputs:
        torch.autograd.backward(outputs, gradients)
    return total


def _as_float32(descriptors: Descriptors) -> Descriptors:
    gain = descriptors.gain
    return replace(descriptors, vectors=descriptors.vectors.float(), gain=None if gain is None else gain.float())


def _leaf(prepared: Descriptors) -> Descriptors:
    gain = prepared.gain
    return replace(
        prepared,
        vectors=prepared.vectors.detach().requires_grad_(prepared.vectors.requires_grad),
        gain=None if gain is None else gain.detach().requires_grad_(gain.requires_grad),
    )


def _to_continue(prepared: list[Descriptors], leaves: list[Descriptors]) -> tuple[list[Tensor], list[Tensor]]:
    outputs: list[Tensor] = []
    gradients: list[Tensor] = []
    for before, leaf in zip(prepared, leaves, strict=True):
        for output, end in ((before.vectors, leaf.vectors), (before.gain, leaf.gain)):
            if output is not None and end is not None and end.grad is not None:
                outputs.append(output)
                gradients.append(end.grad)
    return outputs, gradients


def _blocks(batch: Batch) -> Iterator[slice]:
    budget = CPU_ENTRIES if batch.anchors.vectors.device.type == "cpu" else GPU_ENTRIES
    entries = batch.candidates.shape[1] * batch.anchors.vectors.shape[1] * batch.others.vectors.shape[1]
    step = max(1, budget // entries)
    for start in range(0, len(batch.anchors), step):
        yield slice(start, start + step)
