"""The similarity matrix S of two sets of descriptors, and how many pairs to work on at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from elvis.values import Descriptors

CPU_BLOCK = 1 << 21
"""Entries of similarity matrices worked on together on a CPU: a few pairs, so that they stay near the cores."""
GPU_BLOCK = 1 << 28
"""The same on a GPU, where many pairs are needed to fill it: 1 GiB in float32."""


def check_pair(query: Descriptors, gallery: Descriptors) -> None:
    """Refuse batches that cannot be scored together, naming what was expected and what was given."""
    if len(query) not in (1, len(gallery)):
        raise ValueError(
            f"query: expected a batch of 1 or of {len(gallery)} pictures as the gallery has, got {len(query)}"
        )
    if query.vectors.shape[2] != gallery.vectors.shape[2]:
        raise ValueError(
            f"query and gallery: expected the same number of channels, got {query.vectors.shape[2]} and "
            f"{gallery.vectors.shape[2]}"
        )
    if query.vectors.device != gallery.vectors.device:
        raise ValueError(
            f"query and gallery: expected the same device, got {query.vectors.device} and {gallery.vectors.device}"
        )


def with_length(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    """Vectors in a floating-point dtype; int8 ones, which only say where they point, get unit length.

    Example:
        >>> with_length(torch.tensor([30, 40], dtype=torch.int8), torch.float32)
        tensor([0.6000, 0.8000])
    """
    if vectors.dtype == torch.int8:
        return torch.nn.functional.normalize(vectors.float(), dim=-1).to(dtype)
    return vectors.to(dtype)


def cosines(query: Descriptors, gallery: Descriptors) -> Tensor:
    """(B, M, N) inner products of prepared descriptors, S = QᵀX, at least in float32; a query of one is not copied.

    Example:
        >>> cosines(Descriptors(torch.ones(1, 2, 4)), Descriptors(torch.ones(3, 5, 4))).shape
        torch.Size([3, 2, 5])
    """
    dtype = torch.promote_types(torch.promote_types(query.vectors.dtype, gallery.vectors.dtype), torch.float32)
    q, x = with_length(query.vectors, dtype), with_length(gallery.vectors, dtype)
    if len(query) == 1:
        # One product with all descriptors of all pictures; matmul would copy the query for each of them.
        return (x.flatten(0, 1) @ q[0].T).unflatten(0, x.shape[:2]).transpose(1, 2)
    return torch.bmm(q, x.transpose(1, 2))


def blocks(query: Descriptors, gallery: Descriptors) -> Iterator[tuple[Descriptors, Descriptors]]:
    """The batch cut into runs of pairs whose similarity matrices fit a fixed budget, in order."""
    check_pair(query, gallery)
    budget = CPU_BLOCK if gallery.vectors.device.type == "cpu" else GPU_BLOCK
    step = max(1, budget // (query.vectors.shape[1] * gallery.vectors.shape[1]))
    if step >= len(gallery):
        yield query, gallery
        return
    for start in range(0, len(gallery), step):
        part = slice(start, start + step)
        yield query if len(query) == 1 else query.select(part), gallery.select(part)
