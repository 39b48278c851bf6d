"""Which data file holds which fragment of the table: the one thing the table engine does not tell.

A manifest is a protobuf message with its position and the mark `LANC` at the end of the file. Of it only the list of
fragments is read: field 2 of the manifest; in it field 1 is the fragment's number and field 2 its data files, whose
field 1 is the name. This is needed for repairs alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_END = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")


def files_of_fragments(manifest: Path) -> dict[int, list[str]]:
    """Names of the data files of every fragment of a version.

    Raises:
        ValueError: the manifest is not in the form that is known.
    """
    content = manifest.read_bytes()
    try:
        position, _, _, mark = _END.unpack_from(content, len(content) - _END.size)
        if mark != b"LANC":
            raise ValueError("no mark at its end")
        (length,) = _LENGTH.unpack_from(content, position)
        start = position + _LENGTH.size
        fragments: dict[int, list[str]] = {}
        for field, value in _fields(content[start : start + length]):
            if field == 2 and isinstance(value, bytes):
                number, names = 0, list[str]()
                for inner, part in _fields(value):
                    if inner == 1 and isinstance(part, int):
                        number = part
                    elif inner == 2 and isinstance(part, bytes):
                        names += [name.decode() for key, name in _fields(part) if key == 1 and isinstance(name, bytes)]
                fragments[number] = names
        return fragments
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"{manifest.name}: not in the form that is known ({error})") from error


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field of a protobuf message."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        field, kind = divmod(varint(), 8)
        if kind == 0:
            yield field, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else -1)
        if size < 0 or place + size > len(message):
            raise ValueError(f"field of kind {kind} and {size} bytes")
        yield field, message[place : place + size]
        place += size
