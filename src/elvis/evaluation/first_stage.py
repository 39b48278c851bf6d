"""Exact nearest neighbours by global vector, streaming through a gallery of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Similarities = NDArray[np.float32]

QUERIES_AT_ONCE = 64
GALLERY_BLOCK = 65_536


def nearest(queries: Similarities, blocks: Iterable[Similarities], length: int) -> tuple[list[Ids], list[Similarities]]:
    """The `length` gallery pictures most similar to each query, best first; equal ones in gallery order.

    Args:
        queries: (Q, G) unit vectors.
        blocks: the gallery, (b, G) unit vectors at a time, in order; read once.
        length: how many to keep; fewer come back when the gallery is smaller.

    Returns:
        For each query the places in the gallery, and the cosines.

    Example:
        >>> ids, cosines = nearest(np.eye(2, dtype=np.float32), [np.eye(2, dtype=np.float32)], 1)
        >>> [row.tolist() for row in ids]
        [[0], [1]]
    """
    if length < 1:
        raise ValueError(f"length: expected at least 1, got {length}")
    ids = [np.empty(0, np.int64) for _ in queries]
    cosines = [np.empty(0, np.float32) for _ in queries]
    start = 0
    for block in blocks:
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            found = queries[first : first + QUERIES_AT_ONCE] @ block.T
            for query, row in enumerate(found, first):
                if not np.isfinite(row).all():
                    raise ValueError("vectors: expected finite numbers, got NaN or infinity")
                # Of a long gallery few reach the list; equal ones do not, since those before them stay.
                full = len(ids[query]) == length
                new = np.flatnonzero(row > cosines[query][-1]) if full else np.arange(len(row))
                # Earlier blocks come first, so that a stable sort leaves equal ones in gallery order.
                all_ids = np.concatenate([ids[query], new + start])
                both = np.concatenate([cosines[query], row[new]])
                kept = _best(both, length)
                ids[query], cosines[query] = all_ids[kept], both[kept]
        start += len(block)
    return ids, cosines


def in_blocks(vectors: Similarities, size: int = GALLERY_BLOCK) -> Iterator[Similarities]:
    """A matrix in runs of rows; a memory-mapped one is never read as a whole.

    Example:
        >>> [len(block) for block in in_blocks(np.zeros((5, 2), np.float32), size=3)]
        [3, 2]
    """
    for start in range(0, len(vectors), size):
        yield np.asarray(vectors[start : start + size], dtype=np.float32)


def _best(values: Similarities, length: int) -> Ids:
    if len(values) > length:
        threshold = np.partition(values, len(values) - length)[len(values) - length]
        candidates = np.flatnonzero(values >= threshold)
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")[:length]]
