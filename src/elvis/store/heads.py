"""What a search reads of every record, in memory and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elvis.image_files import shown
from elvis.store.names import text_to_path
from elvis.store.records import head_checksum


class Vectors:
    """Global vectors as the table engine handed them over, in pieces: hundreds of megabytes are not copied."""

    def __init__(self, pieces: Sequence[NDArray[np.float32]], dim: int) -> None:
        self._pieces = [piece for piece in pieces if len(piece)]
        self._dim = dim
        self._starts = np.cumsum([0, *map(len, self._pieces)])

    def products(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """(Q, P) products with (Q, G) queries.

        Example:
            >>> vectors = Vectors([np.eye(2, dtype="f4")[:1], np.eye(2, dtype="f4")[1:]], 2)
            >>> vectors.products(np.array([[3, 4]], "f4")).tolist()
            [[3.0, 4.0]]
        """
        if not self._pieces:
            return np.zeros((len(queries), 0), np.float32)
        return np.concatenate([queries @ piece.T for piece in self._pieces], axis=1)

    def __getitem__(self, places: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, G) vectors at n places."""
        places = np.asarray(places, np.int64)
        found = np.empty((len(places), self._dim), np.float32)
        piece_of = np.searchsorted(self._starts, places, side="right") - 1
        for number in np.unique(piece_of).tolist():
            here = piece_of == number
            found[here] = self._pieces[number][places[here] - self._starts[number]]
        return found


@dataclass(frozen=True, eq=False)
class Heads:
    """The heads of P records, in no particular order.

    Attributes:
        row_ids: (P,) stable ids.
        keys: P paths as they stand in the table.
        sha256: P hashes of the files' contents.
        sizes: (P, 2) widths and heights in pixels.
        vectors: P global vectors; none in an index too large to hold them in memory.
        damaged: ids of records that are there but cannot be read or trusted, with what is known of them.
    """

    row_ids: NDArray[np.int64]
    keys: list[str]
    sha256: list[str]
    sizes: NDArray[np.int32]
    vectors: Vectors
    damaged: dict[int, str]

    @cached_property
    def by_row(self) -> dict[int, int]:
        """Where a row id stands in the arrays."""
        return {row: place for place, row in enumerate(self.row_ids.tolist())}

    @cached_property
    def by_key(self) -> dict[str, int]:
        """Where a path stands in the arrays."""
        return {key: place for place, key in enumerate(self.keys)}

    @staticmethod
    def from_tables(tables: Sequence[Any], dim: int, damaged: dict[int, str]) -> Heads:
        """Heads from Arrow tables; records whose checksum differs go to `damaged`."""
        parts = [_checked(batch, dim, damaged) for table in tables for batch in table.to_batches()]
        return Heads(
            row_ids=np.concatenate([part.row_ids for part in parts] or [np.zeros(0, np.int64)]),
            keys=[key for part in parts for key in part.keys],
            sha256=[name for part in parts for name in part.sha256],
            sizes=np.concatenate([part.sizes for part in parts] or [np.zeros((0, 2), np.int32)]),
            vectors=Vectors([part.vectors for part in parts], dim),
            damaged=damaged,
        )


@dataclass(frozen=True, eq=False)
class _Part:
    row_ids: NDArray[np.int64]
    keys: list[str]
    sha256: list[str]
    sizes: NDArray[np.int32]
    vectors: NDArray[np.float32]


def _checked(batch: Any, dim: int, damaged: dict[int, str]) -> _Part:
    columns: dict[str, list[Any]] = {
        name: batch[name].to_pylist() for name in batch.schema.names if name not in ("vector", "_rowid")
    }
    row_ids = batch["_rowid"].to_numpy().astype(np.int64)
    sizes = np.array([columns["width"], columns["height"]], np.int32).T.reshape(-1, 2)
    keys, hashes = columns["path"], columns["sha256"]
    if "vector" not in batch.schema.names:
        return _Part(row_ids, keys, hashes, sizes, np.zeros((len(keys), 0), np.float32))
    vectors = batch["vector"].flatten().to_numpy().reshape(len(keys), dim)
    facts = zip(keys, columns["size"], hashes, columns["width"], columns["height"], vectors, strict=True)
    found = [
        head_checksum(key, size, digest, width, height, vector.data)
        for key, size, digest, width, height, vector in facts
    ]
    if found == columns["checksum"]:
        return _Part(row_ids, keys, hashes, sizes, vectors)
    sound = [place for place, sum_ in enumerate(found) if sum_ == columns["checksum"][place]]
    for place in set(range(len(keys))) - set(sound):
        damaged[int(row_ids[place])] = f"{shown(text_to_path(keys[place]))}: checksum differs"
    return _Part(
        row_ids[sound],
        [keys[place] for place in sound],
        [hashes[place] for place in sound],
        sizes[sound],
        vectors[sound],
    )
