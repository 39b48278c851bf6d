"""One record a picture: its columns in the table, and the checksum over them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elvis.store.card import IndexCard
from elvis.store.names import path_to_text
from elvis.store.packing import pack
from elvis.values import Descriptors

PREPARED, RAW = "descriptors", "tokens"
"""Names of the two blob columns; the second is there only in an index that keeps raw descriptors."""

STAMP_COLUMNS = ("path", "size", "mtime_ns", "sha256")
HEAD_COLUMNS = ("path", "size", "sha256", "width", "height", "vector", "checksum")
CORE_COLUMNS = ("path", "size", "mtime_ns", "sha256", "width", "height", "vector", "checksum", PREPARED, RAW)
_NUMBERS = struct.Struct("<qii")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells whether a file is still the one that was indexed.

    Attributes:
        size: bytes in the file.
        mtime_ns: time of its last change in nanoseconds, as the file system gives it.
        sha256: hexadecimal hash of its content.
    """

    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One picture, ready to be stored.

    Attributes:
        path: what names the picture; one record a path.
        stamp: of the file.
        raw: what the extractor gave: global vector and size are taken from here, and all of it is kept in an
            index with `keep_raw`.
        prepared: the same after the model's `prepare`.
        metadata: values of the index's own columns.
    """

    path: str
    stamp: Stamp
    raw: Descriptors
    prepared: Descriptors
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


def schema(card: IndexCard) -> Any:
    """The Arrow schema of an index's table."""
    import lancedb
    import pyarrow as pa

    fields = [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("mtime_ns", pa.int64(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), card.image_dim), nullable=False),
        pa.field("checksum", pa.int64(), nullable=False),
        lancedb.blob(PREPARED),
    ]
    return pa.schema([*fields, lancedb.blob(RAW)] if card.keep_raw else fields)


def head_checksum(key: str, size: int, sha256: str, width: int, height: int, vector: bytes | memoryview) -> int:
    """CRC-32 over what a search reads of a record: everything but time stamp, packed descriptors and metadata.

    The packed descriptors carry their own; a time stamp only saves reading a file again.
    """
    return zlib.crc32(vector, zlib.crc32(f"{key}\n{sha256}".encode() + _NUMBERS.pack(size, width, height)))


def blob_key(column: str, key: str, sha256: str) -> bytes:
    """What ties packed descriptors to their record, so that exchanged ones are noticed."""
    return f"{column}\n{key}\n{sha256}".encode()


def rows(records: Sequence[Record], card: IndexCard, table_schema: Any) -> Any:
    """Records as an Arrow table for the given table schema, metadata columns included.

    Raises:
        ValueError: a record does not fit the card; says which and what was expected.
    """
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in table_schema.names}
    extra = [name for name in table_schema.names if name not in CORE_COLUMNS]
    vectors: list[np.ndarray] = []
    for record in records:
        key, stamp = path_to_text(record.path), record.stamp
        vector = _global_vector(record, card)
        width, height = _size(record)
        _expect_dim(record, card)
        vectors.append(vector)
        columns["path"].append(key)
        columns["size"].append(stamp.size)
        columns["mtime_ns"].append(stamp.mtime_ns)
        columns["sha256"].append(stamp.sha256)
        columns["width"].append(width)
        columns["height"].append(height)
        columns["checksum"].append(head_checksum(key, stamp.size, stamp.sha256, width, height, vector.tobytes()))
        columns[PREPARED].append(pack(record.prepared, blob_key(PREPARED, key, stamp.sha256), card.descriptor_dtype))
        if card.keep_raw:
            columns[RAW].append(pack(record.raw, blob_key(RAW, key, stamp.sha256)))
        for name in extra:
            columns[name].append(record.metadata.get(name))
    arrays: list[Any] = []
    for each in table_schema:
        if each.name == "vector":
            flat = pa.array(np.concatenate(vectors), pa.float32())
            arrays.append(pa.FixedSizeListArray.from_arrays(flat, card.image_dim))
        elif each.name in (PREPARED, RAW):
            arrays.append(pa.array(columns[each.name], pa.large_binary()))
        else:
            arrays.append(pa.array(columns[each.name], each.type))
    return pa.table(arrays, names=table_schema.names)


def _global_vector(record: Record, card: IndexCard) -> np.ndarray:
    if record.raw.image_vector is None:
        raise ValueError(f"{record.path}: expected descriptors with an image_vector")
    vector = record.raw.image_vector[0].detach().cpu().float().numpy()
    if vector.shape != (card.image_dim,):
        raise ValueError(f"{record.path}: expected a global vector of {card.image_dim}, got {vector.shape[0]}")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if abs(length - 1) > 1e-3:
        raise ValueError(f"{record.path}: expected a global vector of length 1, got {length:.4g}")
    return vector


def _size(record: Record) -> tuple[int, int]:
    if record.raw.size is None:
        raise ValueError(f"{record.path}: expected descriptors with the size of the picture")
    width, height = (int(side) for side in record.raw.size[0].tolist())
    return width, height


def _expect_dim(record: Record, card: IndexCard) -> None:
    found = record.prepared.vectors.shape[2]
    if found != card.dim:
        raise ValueError(f"{record.path}: expected prepared descriptors of {card.dim} channels, got {found}")
