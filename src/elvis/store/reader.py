"""Reading an index: nearest pictures, descriptors, facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from elvis.errors import IndexDamaged, IndexMismatch, StoreError
from elvis.store import maintenance
from elvis.store.card import IndexCard
from elvis.store.commits import Choice, choose
from elvis.store.durable import translated
from elvis.store.fetching import Fetched, fetch
from elvis.store.heads import Heads
from elvis.store.layout import Layout
from elvis.store.maintenance import VerifyReport
from elvis.store.names import text_to_path
from elvis.store.nearest import Neighbour, nearest
from elvis.store.records import PREPARED, RAW, STAMP_COLUMNS, Stamp
from elvis.store.snapshot import Snapshot, gathered
from elvis.values import Descriptors

_T = TypeVar("_T")


class IndexReader:
    """What `Index` can do without writing.

    Attributes:
        card: how the index was made.
    """

    def __init__(self, layout: Layout, choice: Choice, exact_limit: int) -> None:
        self._layout = layout
        self._choice = choice
        self._exact_limit = exact_limit
        self._snapshot: Snapshot | None = None
        self.card = IndexCard.from_json(choice.commit.card, str(layout.folder))

    def __len__(self) -> int:
        return self._choice.commit.rows

    @property
    def folder(self) -> Path:
        """Where the index stands."""
        return self._layout.folder

    @property
    def columns(self) -> list[str]:
        """Metadata columns, beside the index's own."""
        return self._current(lambda state: state.metadata_columns)

    def paths(self) -> list[str]:
        """Every picture's path, sorted."""
        return [text_to_path(key) for key in sorted(self._heads.keys)]

    @property
    def needs_repair(self) -> bool:
        """Whether a file is damaged so that records cannot be read; `verify` looks closer."""
        return bool(self._choice.damaged or self._state.damaged_data)

    def stamps(self) -> dict[str, Stamp]:
        """What tells whether a file is still the one that was indexed, by path; damaged records are left out."""

        def read(state: Snapshot) -> list[Any]:
            with translated(state.place, "reading"):
                if not state.damaged_data:
                    return [state.scan(STAMP_COLUMNS)]
                return gathered(state.heads.row_ids.tolist(), lambda ids: state.take(STAMP_COLUMNS, ids))[0]

        found: dict[str, Stamp] = {}
        for table in self._current(read):
            columns = (table[name].to_pylist() for name in STAMP_COLUMNS)
            found |= {text_to_path(key): Stamp(*rest) for key, *rest in zip(*columns, strict=True)}
        return found

    def to_arrow(self) -> Any:
        """All columns but the packed descriptors as an Arrow table; `path` as the table holds it."""

        def read(state: Snapshot) -> Any:
            with translated(state.place, "reading"):
                return state.scan([name for name in state.table.schema.names if name not in (PREPARED, RAW)])

        return self._current(read)

    def metadata(self, row_ids: Sequence[int]) -> list[dict[str, Any]]:
        """Metadata of some pictures, in the order of the request."""

        def read(state: Snapshot) -> list[Any]:
            columns = state.metadata_columns
            return gathered(row_ids, lambda ids: state.take(columns, ids))[0] if columns else []

        found = {line.pop("_rowid"): line for table in self._current(read) for line in table.to_pylist()}
        return [dict(found.get(row, {})) for row in row_ids]

    def nearest(self, vector: ArrayLike | Tensor, k: int, where: str | None = None) -> list[Neighbour]:
        """The k pictures whose global vectors point most nearly the same way, best first.

        Exact up to `exact_limit` pictures; equal similarities come in the order of the paths.

        Args:
            vector: (G,) of any length but zero.
            k: how many.
            where: SQL filter over metadata columns, `path`, `size`, `width` and `height`, as "museum = 'X'".

        Raises:
            ValueError: the vector does not fit, or the filter cannot be understood.
        """
        return self.nearest_many(np.asarray(vector)[None], k, where)[0]

    def nearest_many(self, vectors: ArrayLike | Tensor, k: int, where: str | None = None) -> list[list[Neighbour]]:
        """`nearest` of (Q, G) vectors at once."""
        queries = np.asarray(vectors, np.float64)
        if queries.ndim != 2 or queries.shape[1] != self.card.image_dim:
            raise ValueError(f"vectors: expected shape (Q, {self.card.image_dim}), got {queries.shape}")
        if k < 1:
            raise ValueError(f"k: expected at least 1, got {k}")
        return self._current(lambda state: nearest(state, queries, k, where))

    def descriptors(
        self, pictures: Sequence[int | str], *, raw: bool = False, dtype: torch.dtype = torch.float32
    ) -> Descriptors:
        """Prepared descriptors of pictures, given by row id or path, in the order of the request.

        Args:
            pictures: row ids or paths; at least one.
            raw: what the extractor gave instead, in an index with `keep_raw`.
            dtype: of `vectors`.

        Raises:
            IndexDamaged: one of them cannot be read or trusted; `fetch` goes on without.
            StoreError: one of them is not there.
        """
        fetched = self.fetch(pictures, raw=raw, dtype=dtype)
        if fetched.damaged or fetched.descriptors is None:
            reason = next(iter(fetched.damaged.values()), "no picture was asked for")
            raise IndexDamaged(f"{self.folder}: {reason}: run elvis verify --repair, then index it again")
        return fetched.descriptors

    def fetch(
        self, pictures: Sequence[int | str], *, raw: bool = False, dtype: torch.dtype | None = torch.float32
    ) -> Fetched:
        """As `descriptors`, but damaged pictures are left out and listed.

        Args:
            pictures: row ids or paths.
            raw: what the extractor gave instead, in an index with `keep_raw`.
            dtype: of `vectors`; None: as they are stored, float16, or int8 of which only the direction counts.

        Raises:
            StoreError: one of the pictures is not there.
        """
        if raw and not self.card.keep_raw:
            raise IndexMismatch(
                f"{self.folder} does not keep raw descriptors: index the pictures into a new folder with --keep-raw"
            )
        asked, column = self._state, RAW if raw else PREPARED
        return self._current(lambda state: fetch(state, pictures, column, dtype, strict=state is asked))

    def refresh(self) -> bool:
        """Goes on to the last committed state; True where there is a newer one."""
        before, self._choice = self._choice.commit, choose(self._layout)
        if before == self._choice.commit:
            return False
        self._snapshot = None
        return True

    def info(self) -> dict[str, Any]:
        """Facts about the index for people and programs: counts, bytes, dates, card, health as seen on opening."""
        commit = self._choice.commit
        return {
            "folder": str(self.folder),
            "pictures": commit.rows,
            "bytes": sum(size for size, _ in commit.files.values()),
            "files": len(commit.files),
            "commit": commit.number,
            "changed": commit.at,
            "last_change": commit.what,
            "columns": self.columns,
            "damaged_files": dict(self._choice.damaged),
            "lost_commits": dict(self._choice.lost),
            "card": self.card.to_json(),
        }

    def verify(self) -> VerifyReport:
        """Reads every file and every record and checks all sums."""
        return maintenance.verify(self._state, self._layout, self.card, self._choice.lost)

    @property
    def _state(self) -> Snapshot:
        if self._snapshot is None:
            commit = self._choice.commit
            self._snapshot = Snapshot(self._layout, commit, self.card, in_memory=commit.rows <= self._exact_limit)
        return self._snapshot

    @property
    def _heads(self) -> Heads:
        return self._current(lambda state: state.heads)

    def _current(self, read: Callable[[Snapshot], _T]) -> _T:
        """Reads; where files have vanished because a writer joined or removed them, from the newest state instead."""
        while True:
            try:
                result = read(self._state)
            except (IndexDamaged, StoreError):
                if not self.refresh():
                    raise
                continue
            if not self._state.troubled or not self.refresh():
                return result
