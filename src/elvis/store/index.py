"""The index: a folder with the global vectors and packed descriptors of many pictures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

import elvis
from elvis.errors import IndexDamaged, IndexMismatch, StoreError
from elvis.image_files import shown
from elvis.store import maintenance
from elvis.store.card import IndexCard
from elvis.store.commits import Choice, choose, commit_numbers
from elvis.store.durable import WriterLock, translated
from elvis.store.fetching import Fetched, fetch
from elvis.store.heads import Heads
from elvis.store.layout import Layout
from elvis.store.maintenance import VerifyReport
from elvis.store.metadata import Metadata
from elvis.store.names import path_to_text, text_to_path
from elvis.store.nearest import Neighbour, nearest
from elvis.store.records import PREPARED, RAW, STAMP_COLUMNS, Record, Stamp
from elvis.store.snapshot import Snapshot
from elvis.store.writer import Writer
from elvis.values import Descriptors

EXACT_LIMIT = 200_000
"""Up to so many pictures every global vector is compared; above, the table's vector index proposes."""

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class Index:
    """Many pictures on disk, one record each; made by `Index.create`, opened by `Index.open`.

    A reader sees the state that was committed when it opened (or last called `refresh`) and is never in a writer's
    way. Usable as a context manager; a read-only index can be sent to a spawned process, which opens it again.

    Example:
        >>> import tempfile
        >>> card = IndexCard({}, "a1", "chamfer-ot", {}, "b2", dim=3, image_dim=2)
        >>> picture = Descriptors(
        ...     torch.eye(3)[None], size=torch.tensor([[640, 480]]), image_vector=torch.tensor([[0.6, 0.8]])
        ... )
        >>> with tempfile.TemporaryDirectory() as folder, Index.create(folder, card) as index:
        ...     index.put([Record("a.jpg", Stamp(10, 20, "00"), picture, picture)])
        ...     index.nearest([0.6, 0.8], k=5)[0].path, index.descriptors(["a.jpg"]).size.tolist()
        ('a.jpg', [[640, 480]])
    """

    def __init__(self, layout: Layout, choice: Choice, writer: Writer | None, exact_limit: int) -> None:
        """For `create` and `open`."""
        self._layout = layout
        self._choice = choice
        self._writer = writer
        self._exact_limit = exact_limit
        self._snapshot: Snapshot | None = None
        self.card = IndexCard.from_json(choice.commit.card, str(layout.folder))

    @staticmethod
    def create(uri: str | Path, card: IndexCard, *, exact_limit: int = EXACT_LIMIT) -> Index:
        """Makes an empty index and opens it for writing.

        Args:
            uri: a folder that does not exist, is empty, or holds what an interrupted creation left.
            card: how the pictures will be described; `created` and `library` are filled in.
            exact_limit: see `EXACT_LIMIT`.

        Raises:
            StoreError: something else is there.
        """
        layout = Layout(_folder(uri))
        lock = WriterLock(layout.folder)
        with translated(str(layout.folder), "creating"):
            layout.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            if commit_numbers(layout):
                raise StoreError(f"{layout.folder} holds an index already: open it, or choose another folder")
            ours = {layout.commits, layout.table, layout.card, layout.folder / "card.json.tmp", lock.path}
            if foreign := sorted(path.name for path in layout.folder.iterdir() if path not in ours):
                raise StoreError(f"{layout.folder} is not empty ({shown(foreign[0])}): choose another folder")
            layout.wipe()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            Writer.create(layout, replace(card, created=now, library=elvis.__version__))
            return _opened(layout, lock, exact_limit)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def open(uri: str | Path, *, writable: bool = False, exact_limit: int = EXACT_LIMIT) -> Index:
        """Opens an index.

        Args:
            uri: its folder.
            writable: take the writer's lock, and clean up what an interrupted writer left.
            exact_limit: see `EXACT_LIMIT`.

        Raises:
            IndexMissing: there is none.
            IndexMismatch: a later release made it.
            IndexBusy: somebody else is writing.
            IndexDamaged: nothing in it can be served.
        """
        layout = Layout(_folder(uri))
        choose(layout)  # before a lock file is made where there is no index
        lock = None
        if writable:
            lock = WriterLock(layout.folder)
            with translated(str(layout.folder), "opening"):
                lock.acquire()
        return _opened(layout, lock, exact_limit)

    def close(self) -> None:
        """Lets go of the files, and of the writer's lock."""
        self._snapshot = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._writer is not None:
            raise TypeError("an index that is open for writing cannot be sent to another process")
        return _reopened, (str(self._layout.folder), self._exact_limit)

    def __len__(self) -> int:
        return self._choice.commit.rows

    @property
    def folder(self) -> Path:
        """Where the index stands."""
        return self._layout.folder

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._writer is not None

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

        def read(state: Snapshot) -> Any:
            with translated(state.place, "reading"):
                if not state.damaged_data:
                    return state.scan(STAMP_COLUMNS)
                rows = state.heads.row_ids.tolist()
                return state.take(STAMP_COLUMNS, rows) if rows else None

        table = self._current(read)
        if table is None:
            return {}
        columns = (table[name].to_pylist() for name in STAMP_COLUMNS)
        return {text_to_path(key): Stamp(*rest) for key, *rest in zip(*columns, strict=True)}

    def to_arrow(self) -> Any:
        """All columns but the packed descriptors as an Arrow table; `path` as the table holds it."""

        def read(state: Snapshot) -> Any:
            with translated(state.place, "reading"):
                return state.scan([name for name in state.table.schema.names if name not in (PREPARED, RAW)])

        return self._current(read)

    def metadata(self, row_ids: Sequence[int]) -> list[dict[str, Any]]:
        """Metadata of some pictures, in the order of the request."""

        def read(state: Snapshot) -> list[dict[str, Any]]:
            if not state.metadata_columns or not row_ids:
                return []
            with translated(state.place, "reading"):
                return state.take(state.metadata_columns, row_ids).to_pylist()

        found = {line.pop("_rowid"): line for line in self._current(read)}
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

    def fetch(self, pictures: Sequence[int | str], *, raw: bool = False, dtype: torch.dtype = torch.float32) -> Fetched:
        """As `descriptors`, but damaged pictures are left out and listed.

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
        if self._writer is not None:
            return False
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

    def repair(self) -> VerifyReport:
        """Removes the records that `verify` finds damaged, so that indexing the pictures again brings them back.

        Sound records in damaged files are written anew, a bounded piece and a commit at a time.
        """
        writer, report = self._writing, self.verify()
        if report.damaged:
            reasons = "; ".join(report.damaged.values())
            logger.warning("%s: removed %d damaged records: %s", self.folder, len(report.damaged), reasons)
            self._change(lambda: writer.drop(list(report.damaged)))
        table = f"{self._layout.table.name}/"
        broken = [name.removeprefix(table) for name in report.files if name.startswith(table)]
        for piece in list(maintenance.rows_in_files(self._state, self._layout, broken)):
            again = maintenance.rewritten(self._state, piece)
            self._change(lambda again=again: writer.rewrite(again))
        if any(name.startswith("_indices/") for name in broken):
            self._change(writer.build_vector_index)
        if not report.sound:
            writer.forget_history()
            self._choice, self._snapshot = Choice(writer.commit, {}, {}), None
        return report

    def put(self, records: Sequence[Record], *, replaced: Iterable[str] = ()) -> None:
        """Adds records in one commit.

        Args:
            records: their paths must not be in the index, unless in `replaced`.
            replaced: paths whose records are removed in the same commit.
        """
        if records:
            self._change(lambda: self._writing.put(records, replaced))

    def remove(self, paths: Iterable[str]) -> int:
        """Removes pictures in one commit and says how many were there."""
        here = self._heads.by_key
        found = [path for path in dict.fromkeys(paths) if path_to_text(path) in here]
        if found:
            self._change(lambda: self._writing.remove(found))
        return len(found)

    def touch(self, stamps: Mapping[str, Stamp]) -> None:
        """Takes over time stamps of files that changed in nothing else, in one commit."""
        self._change(lambda: self._writing.touch(stamps))

    def set_metadata(self, metadata: Metadata) -> None:
        """Stores columns beside the pictures that are there, in one commit; lines of other pictures are left out."""
        known = [name for name in metadata.columns if name in self.columns]
        with translated(self._state.place, "reading"):
            lines: list[dict[str, Any]] = self._state.scan(["path", *known]).to_pylist()
        current = {
            text_to_path(line.pop("path")): {name: value for name, value in line.items() if name != "_rowid"}
            for line in lines
        }
        self._change(lambda: self._writing.set_metadata(metadata.rows_for(current.keys(), current)))

    def compact(self) -> int:
        """Joins small files, a bounded piece and a commit at a time; gives the number of records rewritten.

        Builds the vector index where the collection is too large to compare with every picture.
        """
        writer, count = self._writing, 0
        for piece in list(maintenance.pieces_to_join(self._state)):
            table = maintenance.rewritten(self._state, piece)
            self._change(lambda table=table: writer.rewrite(table))
            count += len(piece)
        if len(self) > self._exact_limit and writer.unindexed > len(self) // 5:
            self._change(writer.build_vector_index)
        return count

    @property
    def _state(self) -> Snapshot:
        if self._snapshot is None:
            commit = self._choice.commit
            self._snapshot = Snapshot(
                self._layout, commit, self.card, self._choice.damaged, in_memory=commit.rows <= self._exact_limit
            )
        return self._snapshot

    @property
    def _heads(self) -> Heads:
        return self._current(lambda state: state.heads)

    @property
    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError(f"{self.folder} is open for reading only: open it with writable=True")
        return self._writer

    def _change(self, change: Callable[[], None]) -> None:
        writer = self._writing
        try:
            change()
        finally:
            if writer.commit != self._choice.commit:
                self._choice = Choice(writer.commit, {}, {})
                self._snapshot = None

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


def _folder(uri: str | Path) -> Path:
    if "://" in str(uri):
        raise ValueError(f"index: expected a folder, got {uri}: object storage is not supported yet")
    return Path(uri)


def _opened(layout: Layout, lock: WriterLock | None, exact_limit: int) -> Index:
    try:
        choice = choose(layout)
        if choice.lost or choice.damaged:
            logger.warning("%s", _what_is_wrong(layout, choice))
        card = IndexCard.from_json(choice.commit.card, str(layout.folder))
        writer = Writer(layout, card, lock) if lock is not None else None
        return Index(layout, choice, writer, exact_limit)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _reopened(uri: str, exact_limit: int) -> Index:
    return Index.open(uri, exact_limit=exact_limit)


def _what_is_wrong(layout: Layout, choice: Choice) -> str:
    parts: list[str] = []
    if choice.lost:
        reasons = "; ".join(f"commit {number} is lost ({why})" for number, why in choice.lost.items())
        parts.append(
            f"{reasons}: going on with commit {choice.commit.number} of {choice.commit.at}, "
            f"{choice.commit.rows} pictures"
        )
    if choice.damaged:
        parts.append("; ".join(f"{name}: {why}" for name, why in choice.damaged.items()))
    return f"{layout.folder} is damaged: {'; '.join(parts)}: run elvis verify --repair, then index the pictures again"
