"""One committed state of an index, open for reading: it does not change while others write."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elvis.errors import IndexDamaged
from elvis.store.card import IndexCard
from elvis.store.commits import Commit, damaged_files
from elvis.store.durable import engine_panic, first_line, translated
from elvis.store.heads import Heads
from elvis.store.layout import TABLE, Layout
from elvis.store.records import CORE_COLUMNS, HEAD_COLUMNS

_CHUNK = 256
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


class Snapshot:
    """A version of the table, and what was read of it."""

    def __init__(
        self,
        layout: Layout,
        commit: Commit,
        card: IndexCard,
        *,
        in_memory: bool = True,
    ) -> None:
        self.commit = commit
        self.in_memory = in_memory
        self.troubled = False  # something could not be read: damaged, or removed by a writer meanwhile
        self._layout = layout
        self._card = card
        self.place = str(layout.folder)
        with translated(self.place, "opening"):
            self.table = self._open()
            found = int(self.table.count_rows())
        if found != commit.rows:
            raise IndexDamaged(
                f"{layout.folder}: commit {commit.number} holds {found} records, expected {commit.rows}: restore a copy"
            )

    def _open(self) -> Any:
        import lancedb

        version, versions = self.commit.version, self._layout.manifest_versions()
        # The engine reads the newest manifest first. Where that is no committed one (somebody is writing, or was
        # interrupted, or it is damaged) it gets to see a folder in which the committed version is the newest.
        folder = self._layout.folder if versions[:1] == [version] else self._view()
        table = lancedb.connect(folder).open_table(TABLE)
        table.checkout(version)
        return table

    def _view(self) -> Path:
        view = Path(tempfile.mkdtemp(prefix="elvis-"))
        weakref.finalize(self, shutil.rmtree, view, ignore_errors=True)
        table = view / self._layout.table.name
        (table / "_versions").mkdir(parents=True)
        manifest = self._layout.manifest(self.commit.version)
        shutil.copyfile(manifest, table / "_versions" / manifest.name)
        for name in ("data", "_deletions", "_indices", "_transactions"):
            os.symlink((self._layout.table / name).absolute(), table / name, target_is_directory=True)
        return view

    @property
    def metadata_columns(self) -> list[str]:
        """Columns beside our own."""
        return [name for name in self.table.schema.names if name not in CORE_COLUMNS]

    def scan(self, columns: Sequence[str], where: str | None = None) -> Any:
        """Columns of all records (or of those that fit a filter) as an Arrow table, with `_rowid`."""
        query = self.table.search().with_row_id(True).select([*columns, "_rowid"])
        if where is not None:
            query = query.where(where)
        return query.limit(max(self.commit.rows, 1)).to_arrow()

    def take(self, columns: Sequence[str], row_ids: Sequence[int]) -> Any:
        """Columns of some records as an Arrow table with `_rowid`, in no particular order."""
        return self.table.take_row_ids(list(row_ids)).with_row_id().select([*columns, "_rowid"]).to_arrow()

    def rows_where(self, where: str) -> NDArray[np.int64]:
        """Ids of the records that fit a filter.

        Raises:
            ValueError: the filter cannot be understood; names the columns there are.
        """
        try:
            found = self.scan([], where)
        except (RuntimeError, ValueError, OSError) as error:
            columns = [*self.metadata_columns, "path", "size", "width", "height"]
            raise ValueError(
                f"where: {where!r} is no filter for this index ({_shortly(error)}); columns: {', '.join(columns)}"
            ) from error
        return found["_rowid"].to_numpy().astype(np.int64)

    @cached_property
    def damaged_data(self) -> dict[str, str]:
        """Files with the columns of records (not their packed descriptors) that are damaged, with reasons."""
        data = {name for name in self.commit.files if name.startswith("data/") and name.endswith(".lance")}
        wrong = damaged_files(self._layout, self.commit, data)
        self.troubled |= bool(wrong)
        return wrong

    @cached_property
    def damaged_vector_index(self) -> dict[str, str]:
        """Files of the vector index that are damaged, with reasons."""
        return damaged_files(
            self._layout, self.commit, {name for name in self.commit.files if name.startswith("_indices/")}
        )

    @cached_property
    def heads(self) -> Heads:
        """What a search reads of every record, checked; what is damaged is left out and listed."""
        wrong = self.damaged_data
        columns = HEAD_COLUMNS if self.in_memory else tuple(name for name in HEAD_COLUMNS if name != "vector")
        with translated(self.place, "reading"):
            if not wrong:
                return Heads.from_tables([self.scan(columns)], self._card.image_dim, {})
            every = self.scan([])["_rowid"].to_pylist()
            logger.warning(
                "%s is damaged: %s: reading its %d records one by one",
                self._layout.folder,
                "; ".join(f"{name}: {why}" for name, why in wrong.items()),
                len(every),
            )
            return self._read_heads(columns, every)

    def some_heads(self, row_ids: Sequence[int]) -> Heads:
        """The same of some records, global vectors included, read now."""
        with translated(self.place, "reading"):
            return self._read_heads(HEAD_COLUMNS, row_ids)

    def _read_heads(self, columns: Sequence[str], row_ids: Sequence[int]) -> Heads:
        tables, unreadable = gathered(row_ids, lambda ids: self.take(columns, ids))
        return Heads.from_tables(tables, self._card.image_dim, unreadable)


def gathered(ids: Sequence[int], read: Callable[[Sequence[int]], _T]) -> tuple[list[_T], dict[int, str]]:
    """Reads many records in pieces; a piece that fails is halved until only the bad ones are left out.

    Returns:
        What the good pieces gave, in the order of `ids`; and for each bad id the reason.
    """
    good: list[_T] = []
    bad: dict[int, str] = {}

    def attempt(part: Sequence[int]) -> None:
        try:
            good.append(read(part))
            return
        except BaseException as error:
            if not (isinstance(error, OSError | RuntimeError | ValueError) or engine_panic(error)):
                raise
            if len(part) == 1:
                bad[part[0]] = first_line(error)
                return
        half = len(part) // 2
        attempt(part[:half])
        attempt(part[half:])

    for start in range(0, len(ids), _CHUNK):
        attempt(ids[start : start + _CHUNK])
    return good, bad


def _shortly(error: BaseException) -> str:
    """What the engine says of a filter, without the list of columns that it does not know to keep short."""
    return (
        first_line(error).removeprefix("Invalid input, ").partition(". Valid fields")[0].removeprefix("Schema error: ")
    )
