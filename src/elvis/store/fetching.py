"""The second stage's food: packed descriptors out of the table, checked, in the order of the request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elvis.errors import StoreError
from elvis.image_files import shown
from elvis.store.names import path_to_text, text_to_path
from elvis.store.packing import BadBytes, Packed, batch, unpack
from elvis.store.records import blob_key
from elvis.store.snapshot import Snapshot, gathered
from elvis.values import Descriptors


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """Descriptors that could be read, and what could not.

    Attributes:
        descriptors: of the pictures in `row_ids`, in that order; None when there are none.
        row_ids: those asked for without the damaged ones, in the order of the request.
        damaged: row ids that were asked for and cannot be read or trusted, with picture and reason.
    """

    descriptors: Descriptors | None
    row_ids: list[int]
    damaged: dict[int, str]


def fetch(
    snapshot: Snapshot, pictures: Sequence[int | str], column: str, dtype: torch.dtype | None, *, strict: bool = True
) -> Fetched:
    """Descriptors of pictures in the order of the request; damaged ones are left out and listed.

    Args:
        snapshot: what they are read from.
        pictures: row ids or paths.
        column: `PREPARED` or `RAW`.
        dtype: of `vectors`; None: as they are stored.
        strict: a row id that is not there is an error, and not one more damaged record.

    Raises:
        StoreError: one of the pictures is not there.
    """
    rows = [_row_of(snapshot, picture, strict) for picture in pictures]
    gone = {row: "it was removed meanwhile" for row in rows if row not in snapshot.heads.by_row}
    wanted = list(dict.fromkeys(row for row in rows if row not in gone or row in snapshot.heads.damaged))
    heads = snapshot.heads if snapshot.in_memory else snapshot.some_heads(wanted)
    damaged = gone | {row: heads.damaged[row] for row in wanted if row in heads.damaged}
    found, unreadable = blobs(snapshot, column, [row for row in wanted if row not in damaged])
    parts: dict[int, Packed] = {}
    for row in (row for row in wanted if row not in damaged):
        place = heads.by_row[row]
        try:
            key = blob_key(column, heads.keys[place], heads.sha256[place])
            parts[row] = unpack(found.get(row) or b"", key)
        except BadBytes as error:
            name = shown(text_to_path(heads.keys[place]))
            damaged[row] = f"{name}: its descriptors are damaged ({unreadable.get(row, error)})"
    kept = [row for row in rows if row in parts]
    if not kept:
        return Fetched(None, [], damaged)
    places = [heads.by_row[row] for row in kept]
    descriptors = batch(
        [parts[row] for row in kept],
        torch.from_numpy(heads.sizes[places]),
        torch.from_numpy(heads.vectors[places]),
        dtype,
    )
    return Fetched(descriptors, kept, damaged)


def blobs(
    snapshot: Snapshot, column: str, row_ids: Sequence[int]
) -> tuple[dict[int, memoryview | None], dict[int, str]]:
    """Packed descriptors by row id as they are in the table, and the rows that cannot be read, with reasons."""

    def read(ids: Sequence[int]) -> list[tuple[int, memoryview | None]]:
        values = snapshot.table.fetch_blobs(column, list(ids))
        return [
            (row, memoryview(value.as_buffer()) if value.is_valid else None)
            for row, value in zip(ids, values, strict=True)
        ]

    if not row_ids:
        return {}, {}
    pieces, unreadable = gathered(list(dict.fromkeys(row_ids)), read)
    snapshot.troubled |= bool(unreadable)
    return {row: value for piece in pieces for row, value in piece}, unreadable


def _row_of(snapshot: Snapshot, picture: int | str, strict: bool) -> int:
    heads = snapshot.heads
    if isinstance(picture, str):
        place = heads.by_key.get(path_to_text(picture))
        if place is None:
            raise StoreError(f"{snapshot.place} holds no picture {shown(picture)}: index it first")
        return int(heads.row_ids[place])
    if strict and picture not in heads.by_row and picture not in heads.damaged:
        raise StoreError(f"{snapshot.place} holds no picture with row id {picture}: search again")
    return int(picture)
