"""Everything that changes an index. Each change is on the disk, or has not happened, when its method ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from elvis.store.card import IndexCard
from elvis.store.commits import Commit, choose, prune, write_commit
from elvis.store.durable import WriterLock, sync_folder, translated, write_json
from elvis.store.layout import TABLE, Layout
from elvis.store.names import path_to_text
from elvis.store.records import CORE_COLUMNS, Record, Stamp, rows, schema

_CACHE = 4 << 20  # bytes
_AT_ONCE = 200  # names or ids in one filter

logger = logging.getLogger(__name__)


class Writer:
    """The one writer of an index; holds its lock until `close`."""

    def __init__(self, layout: Layout, card: IndexCard, lock: WriterLock) -> None:
        """Cleans up what an interrupted writer left and falls back where the newest commit is damaged."""
        self._layout = layout
        self._card = card
        self._lock = lock
        self._place = str(layout.folder)
        self.commit = self._recover()
        self._table = self._open()

    @staticmethod
    def create(layout: Layout, card: IndexCard) -> None:
        """Makes an empty index; its first commit is what makes it exist."""
        import lancedb

        with translated(str(layout.folder), "creating"):
            layout.commits.mkdir()
            table = lancedb.connect(layout.folder).create_table(
                TABLE, schema=schema(card), storage_options={"new_table_enable_stable_row_ids": "true"}
            )
            write_json(layout.card, card.to_json())
            write_commit(layout, None, int(table.version), 0, "created", card)
            sync_folder(layout.folder.parent)

    def close(self) -> None:
        """Gives the lock back."""
        self._lock.release()

    def _recover(self) -> Commit:
        with translated(self._place, "cleaning up"):
            choice = choose(self._layout)
            removed = prune(self._layout, choice.commit)
        if left := [name for name in removed if name.startswith("data/")]:
            logger.info("%s: removed %d files of an interrupted write", self._place, len(left))
        return choice.commit

    def _open(self) -> Any:
        import lancedb

        # A writer hardly reads: the engine's generous caches would only grow with the number of commits.
        session = lancedb.Session(index_cache_size_bytes=_CACHE, metadata_cache_size_bytes=_CACHE)
        with translated(self._place, "opening"):
            return lancedb.connect(self._layout.folder, session=session).open_table(TABLE)

    def _apply(self, what: str, change: Callable[[Any], object]) -> None:
        """Changes the table, makes the result durable, and takes the change back if anything goes wrong."""
        try:
            with translated(self._place, what):
                change(self._table)
                version = int(self._table.version)
                if version == self.commit.version:
                    return
                count = int(self._table.count_rows())
                self.commit = write_commit(self._layout, self.commit, version, count, what, self._card)
        except BaseException:
            self.commit = self._recover()
            self._table = self._open()
            raise
        with translated(self._place, "cleaning up"):
            prune(self._layout, self.commit)

    def put(self, records: Sequence[Record], replaced: Iterable[str] = ()) -> None:
        """Adds records in one commit, in place of those with the given paths."""
        table = rows(records, self._card, self._table.schema)
        gone = list(replaced)

        def change(target: Any) -> None:
            _delete(target, gone)
            # Progress and parallel writing aside, one call makes one file.
            target.add(table, write_parallelism=1)

        self._apply(f"adding {len(records)} pictures", change)

    def remove(self, paths: Sequence[str]) -> None:
        """Removes the records of the given paths in one commit."""
        self._apply(f"removing {len(paths)} pictures", lambda table: _delete(table, paths))

    def drop(self, row_ids: Sequence[int]) -> None:
        """Removes records by id, which works without reading them."""

        def change(table: Any) -> None:
            for first, last in _runs(sorted(row_ids)):
                table.delete(f"_rowid >= {first} AND _rowid <= {last}")

        self._apply(f"removing {len(row_ids)} damaged records", change)

    def touch(self, stamps: Mapping[str, Stamp]) -> None:
        """Takes over new time stamps of files whose content has not changed, in one commit."""
        import pyarrow as pa

        table = pa.table(
            {
                "path": pa.array([path_to_text(path) for path in stamps], pa.string()),
                "mtime_ns": pa.array([stamp.mtime_ns for stamp in stamps.values()], pa.int64()),
            }
        )
        self._apply(f"refreshing {len(stamps)} time stamps", lambda target: _merge(target, table))

    def set_metadata(self, metadata: Any) -> None:
        """Takes over columns beside our own, keyed by `path`, for pictures that are there; one commit.

        Args:
            metadata: Arrow table with the column `path` (as table keys) and the metadata columns.
        """
        names = [name for name in metadata.column_names if name != "path"]
        here = self._table.schema
        for name in names:
            found, given = here.field(name).type if name in here.names else None, metadata.schema.field(name).type
            if name in CORE_COLUMNS:
                raise ValueError(f"metadata: the column {name!r} is one of the index's own: give it another name")
            if found is not None and found != given:
                raise ValueError(f"metadata: the column {name!r} holds {found} in this index, got {given}")

        def change(table: Any) -> None:
            import pyarrow as pa

            if new := [name for name in names if name not in here.names]:
                table.add_columns(pa.schema([metadata.schema.field(name).with_nullable(True) for name in new]))
            for start in range(0, metadata.num_rows, _AT_ONCE):
                _merge(table, metadata.slice(start, _AT_ONCE))

        self._apply(f"storing metadata of {metadata.num_rows} pictures", change)

    def rewrite(self, table: Any) -> None:
        """Writes records again as they are, in one commit: row ids stay."""
        self._apply(f"joining {table.num_rows} records", lambda target: _merge(target, table))

    def build_vector_index(self) -> None:
        """Builds (again) the index that proposes neighbours in collections too large to compare with all."""
        from lancedb.index import IvfSq

        def change(table: Any) -> None:
            for name in self._vector_indexes():
                # A replaced index would still be named by the next version, and damaged files of it be kept.
                table.drop_index(name)
            table.create_index("vector", config=IvfSq(distance_type="cosine"))

        self._apply("building the vector index", change)

    def _vector_indexes(self) -> list[str]:
        return [each.name for each in self._table.list_indices() if "vector" in each.columns]

    def forget_transactions(self, names: Sequence[str]) -> None:
        """Removes damaged transaction files in a commit of its own; they only serve writers at the same time."""
        with translated(self._place, "repairing"):
            for name in names:
                (self._layout.table / name).unlink(missing_ok=True)
            version, count = self.commit.version, self.commit.rows
            self.commit = write_commit(self._layout, self.commit, version, count, "repairing", self._card)

    def forget_history(self) -> None:
        """Removes what only older commits need, and writes the card again: the end of a repair."""
        with translated(self._place, "cleaning up"):
            write_json(self._layout.card, self._card.to_json())
            prune(self._layout, self.commit, kept_commits=1)

    @property
    def unindexed(self) -> int:
        """How many records the vector index does not cover."""
        with translated(self._place, "reading"):
            names = self._vector_indexes()
            statistics = self._table.index_stats(names[0]) if names else None
        return self.commit.rows if statistics is None else int(statistics.num_unindexed_rows)


def _delete(table: Any, paths: Sequence[str]) -> None:
    for start in range(0, len(paths), _AT_ONCE):
        names = ", ".join(_quoted(path_to_text(path)) for path in paths[start : start + _AT_ONCE])
        table.delete(f"path IN ({names})")


def _merge(table: Any, values: Any) -> None:
    table.merge_insert("path").when_matched_update_all().execute(values)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers as first and last."""
    first = 0
    for place in range(1, len(ids) + 1):
        if place == len(ids) or ids[place] != ids[place - 1] + 1:
            yield ids[first], ids[place - 1]
            first = place
