"""The first stage of a search: nearest pictures by global vector."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elvis.store.durable import translated
from elvis.store.heads import Heads
from elvis.store.names import text_to_path
from elvis.store.snapshot import Snapshot

_ROUNDING = 1e-5  # how far two float32 ways to compute one cosine may differ, with room
_PROBES, _REFINE, _SPARE = 64, 8, 16
"""Partitions looked into, quantised proposals compared again for each one wanted, and proposals beyond those wanted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A picture near a query.

    Attributes:
        row_id: names the record for as long as it exists.
        path: of the picture, as it was indexed.
        similarity: cosine of the global vectors, in [-1, 1].
    """

    row_id: int
    path: str
    similarity: float


def nearest(snapshot: Snapshot, queries: NDArray[np.float64], k: int, where: str | None) -> list[list[Neighbour]]:
    """Nearest pictures of each query, best first; equal similarities in the order of their paths.

    Exact where the vectors are in memory. Otherwise the table's vector index proposes, and the proposals are
    compared exactly.

    Args:
        snapshot: what is searched.
        queries: (Q, G) vectors of any length but zero.
        k: how many are wanted; fewer come where the index (or what fits the filter) is smaller.
        where: SQL filter over the columns.
    """
    lengths = np.linalg.norm(queries, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("vector: expected finite numbers that are not all zero")
    queries = queries / lengths
    if not snapshot.in_memory and not snapshot.damaged_data:
        return [_proposed(snapshot, query, k, where) for query in queries]
    heads = snapshot.heads
    if not snapshot.in_memory:
        # The engine cannot search past records that it cannot read: until a repair every vector is compared here.
        heads = snapshot.some_heads(heads.row_ids.tolist())
    quick = heads.vectors.products(queries.astype(np.float32))
    places = np.arange(len(heads.keys))
    if where is not None:
        places = np.flatnonzero(np.isin(heads.row_ids, snapshot.rows_where(where)))
        quick = quick[:, places]
    return [_ranked(heads, places[_candidates(row, k)], query, k) for row, query in zip(quick, queries, strict=True)]


def _candidates(similarities: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Every place that may be among the k best once rounding is out of the way, in ascending order."""
    if len(similarities) <= k:
        return np.arange(len(similarities))
    limit = -np.partition(-similarities, k - 1)[k - 1]
    return np.flatnonzero(similarities >= limit - _ROUNDING)


def _ranked(heads: Heads, places: NDArray[np.int64], query: NDArray[np.float64], k: int) -> list[Neighbour]:
    """The k best of some places, compared in double precision: the result depends on nothing but the vectors."""
    vectors = heads.vectors[places].astype(np.float64)
    # einsum sums every row alike; a matrix product may not, and equal pictures would differ in the last bit.
    exact = np.einsum("pg,g->p", vectors, query) / np.sqrt(np.einsum("pg,pg->p", vectors, vectors))
    order = sorted(
        zip((-exact).tolist(), (heads.keys[place] for place in places.tolist()), places.tolist(), strict=True)
    )
    return [
        Neighbour(int(heads.row_ids[place]), text_to_path(key), min(1.0, max(-1.0, -negative)))
        for negative, key, place in order[:k]
    ]


def _proposed(snapshot: Snapshot, query: NDArray[np.float64], k: int, where: str | None) -> list[Neighbour]:
    search = snapshot.table.search(query.astype(np.float32), vector_column_name="vector", query_type="vector")
    search = search.distance_type("cosine").nprobes(_PROBES).refine_factor(_REFINE).limit(k + _SPARE)
    if broken := snapshot.damaged_vector_index:
        logger.warning(
            "%s: vector index file %s is damaged: comparing with every picture instead",
            snapshot.place,
            next(iter(broken)),
        )
        search = search.bypass_vector_index()
    if where is not None:
        snapshot.rows_where(f"({where}) AND false")  # a clear error for a filter that cannot be understood
        search = search.where(where, prefilter=True)
    with translated(snapshot.place, "searching"):
        ids: list[int] = search.with_row_id(True).select(["_rowid", "_distance"]).to_arrow()["_rowid"].to_pylist()
    heads = snapshot.some_heads(ids)
    for reason in heads.damaged.values():
        logger.warning("left out: %s", reason)
    return _ranked(heads, np.arange(len(heads.keys)), query, k)
