"""Keeping an index healthy: reading all of it, and joining many small files into fewer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from elvis.image_files import shown
from elvis.store.card import IndexCard
from elvis.store.commits import UNREADABLE, commit_numbers, damaged_files, read_commit
from elvis.store.durable import first_line, read_json
from elvis.store.fetching import blobs
from elvis.store.layout import Layout
from elvis.store.manifest import files_of_fragments
from elvis.store.names import text_to_path
from elvis.store.packing import BadBytes, unpack
from elvis.store.records import HEAD_COLUMNS, PREPARED, RAW, blob_key
from elvis.store.snapshot import Snapshot, gathered

PIECE_BYTES = 96 << 20
"""Most packed bytes that are read and written again at once; also when a file counts as large enough."""
MANY_FILES = 64
"""Small files that are left alone: fewer are not worth rewriting."""
_READ = 64


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What reading all of an index found.

    Attributes:
        records: how many there are, damaged ones included.
        damaged: row id of every damaged record, with its path (where that can be read) and the reason.
        files: damaged files of the index, relative to its folder, with reasons.
        lost: newer commits that cannot be served, by number, with reasons.
    """

    records: int
    damaged: dict[int, str] = field(default_factory=dict[int, str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    lost: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def sound(self) -> bool:
        """Whether everything is as it was written."""
        return not (self.damaged or self.files or self.lost)


def verify(snapshot: Snapshot, layout: Layout, card: IndexCard, lost: dict[int, str]) -> VerifyReport:
    """Reads every file and every record of a snapshot and checks all sums."""
    heads = snapshot.heads if snapshot.in_memory else snapshot.some_heads(snapshot.heads.row_ids.tolist())
    damaged = snapshot.heads.damaged | heads.damaged
    if snapshot.damaged_data:
        rest = [name for name in snapshot.table.schema.names if name not in (PREPARED, RAW, *HEAD_COLUMNS)]
        _, unreadable = gathered(heads.row_ids.tolist(), lambda ids: snapshot.take(rest, ids))
        for row, reason in unreadable.items():
            damaged[row] = f"{shown(text_to_path(heads.keys[heads.by_row[row]]))}: {reason}"
    columns = [PREPARED, RAW] if card.keep_raw else [PREPARED]
    for start in range(0, len(heads.keys), _READ):
        places = range(start, min(start + _READ, len(heads.keys)))
        for column in columns:
            found, unreadable = blobs(snapshot, column, [int(heads.row_ids[place]) for place in places])
            for place in places:
                row, name = int(heads.row_ids[place]), shown(text_to_path(heads.keys[place]))
                reason = unreadable.get(row) or _wrong(
                    found.get(row), blob_key(column, heads.keys[place], heads.sha256[place])
                )
                if reason:
                    damaged[row] = f"{name}: {reason}"
    return VerifyReport(snapshot.commit.rows, damaged, _damaged_files(layout), lost)


def _damaged_files(layout: Layout) -> dict[str, str]:
    """Everything in the folder that is not what was written, older commits included."""
    files: dict[str, str] = {}
    try:
        read_json(layout.card)
    except (OSError, ValueError) as error:
        files[layout.card.name] = first_line(error)
    for number in commit_numbers(layout):
        try:
            commit = read_commit(layout, number)
        except UNREADABLE as error:
            files[f"{layout.commits.name}/{number:08d}.json"] = first_line(error)
            continue
        files |= {f"{layout.table.name}/{name}": why for name, why in damaged_files(layout, commit).items()}
    return files


def _wrong(packed: memoryview | None, key: bytes) -> str | None:
    if packed is None:
        return "its descriptors are missing"
    try:
        unpack(packed, key)
    except BadBytes as error:
        return f"its descriptors are damaged ({error})"
    return None


def pieces_to_join(snapshot: Snapshot) -> Iterator[list[int]]:
    """Row ids of runs of small files (the table's fragments) that are worth joining, a bounded piece at a time.

    A file that is large enough is never written again, so a record is rewritten a few times at most, however
    long the index grows by small additions.
    """
    enough = _rows_a_piece(snapshot)
    small = [ids for ids in _rows_by_fragment(snapshot).values() if len(ids) <= enough // 2]
    if len(small) < MANY_FILES:
        return
    piece: list[int] = []
    for ids in small:
        if piece and len(piece) + len(ids) > enough:
            yield piece
            piece = []
        piece.extend(ids)
    if piece:
        yield piece


def rows_in_files(snapshot: Snapshot, layout: Layout, names: Collection[str]) -> Iterator[list[int]]:
    """Row ids of the records that stand in some data files, a bounded piece at a time."""
    enough = _rows_a_piece(snapshot)
    stems = {name.removeprefix("data/").partition("/")[0].removesuffix(".lance") for name in names}
    files = files_of_fragments(layout.manifest(snapshot.commit.version))
    rows = _rows_by_fragment(snapshot)
    for fragment, ids in rows.items():
        if any(name.removesuffix(".lance") in stems for name in files[fragment]):
            for start in range(0, len(ids), enough):
                yield ids[start : start + enough]


def _rows_by_fragment(snapshot: Snapshot) -> dict[int, list[int]]:
    addresses: Any = snapshot.scan(["_rowaddr"])
    fragments: list[int] = (addresses["_rowaddr"].to_numpy() >> 32).tolist()
    rows: dict[int, list[int]] = {}
    for fragment, row in zip(fragments, addresses["_rowid"].to_pylist(), strict=True):
        rows.setdefault(fragment, []).append(row)
    return rows


def _rows_a_piece(snapshot: Snapshot) -> int:
    data = sum(size for name, (size, _) in snapshot.commit.files.items() if name.startswith("data/"))
    return max(1, PIECE_BYTES // max(1, data // max(1, snapshot.commit.rows)))


def rewritten(snapshot: Snapshot, row_ids: Sequence[int]) -> Any:
    """All columns of some records as they are, as an Arrow table to be written again."""
    import pyarrow as pa

    names = snapshot.table.schema.names
    plain = [name for name in names if name not in (PREPARED, RAW)]
    table = snapshot.take(plain, row_ids)
    found: list[int] = table["_rowid"].to_pylist()
    for column in (PREPARED, RAW):
        if column in names:
            packed, unreadable = blobs(snapshot, column, found)
            if unreadable:
                raise RuntimeError(next(iter(unreadable.values())))
            values = pa.array([packed[row] for row in found], pa.large_binary())
            table = table.append_column(column, values)
    return table.select(names)
