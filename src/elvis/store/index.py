"""The index: a folder with the global vectors and packed descriptors of many pictures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import elvis
from elvis.errors import StoreError
from elvis.image_files import shown
from elvis.store import maintenance
from elvis.store.card import IndexCard
from elvis.store.commits import Choice, choose, commit_numbers
from elvis.store.durable import WriterLock, translated
from elvis.store.layout import Layout
from elvis.store.maintenance import VerifyReport
from elvis.store.metadata import Metadata
from elvis.store.names import path_to_text, text_to_path
from elvis.store.reader import IndexReader
from elvis.store.records import Record, Stamp
from elvis.store.writer import Writer

EXACT_LIMIT = 200_000
"""Up to so many pictures every global vector is compared; above, the table's vector index proposes."""

logger = logging.getLogger(__name__)


class Index(IndexReader):
    """Many pictures on disk, one record each; made by `Index.create`, opened by `Index.open`.

    A reader sees the state that was committed when it opened (or last called `refresh`) and is never in a writer's
    way. Usable as a context manager; a read-only index can be sent to a spawned process, which opens it again.

    Example:
        >>> import tempfile, torch
        >>> from elvis import Descriptors
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
        super().__init__(layout, choice, exact_limit)
        self._writer = writer

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

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return self._writer is not None

    def refresh(self) -> bool:
        """Goes on to the last committed state; True where there is a newer one. A writer is always there."""
        return self._writer is None and super().refresh()

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
        if transactions := [name for name in broken if name.startswith("_transactions/")]:
            self._change(lambda: writer.forget_transactions(transactions))
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
