"""One picture's descriptors as bytes: float16 or int8 vectors, positions, strengths, gains, and a checksum.

Little-endian: magic `ELVD`; format, u16 (1: float16, 2: int8); fields, u16 (1 positions, 2 strengths, 4 gains); number
of descriptors N, u32; channels D, u32; CRC-32 of the key and of everything here but itself, u32. Then N·D vectors, N·2
uint16 positions (fraction of the upright picture × 65535), N float16 strengths, N float16 gains.

An int8 vector is x / max|x| · 127, rounded. Its length is not kept: only vectors of length 1 (or 0) may be stored so.

The key is the record's own (path and content): bytes that end up at another picture are noticed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elvis.transport.similarity import with_length
from elvis.values import Descriptors

MAGIC = b"ELVD"
FORMATS = {"float16": 1, "int8": 2}
"""What vectors may be stored as, and the number that says so in the packed form."""
_HEAD = struct.Struct("<4sHHII")
_CHECK = struct.Struct("<I")
_START = _HEAD.size + _CHECK.size
_POSITIONS, _STRENGTHS, _GAINS = 1, 2, 4
_STEPS = 65535
_UNIT = 1e-2  # half precision moves a length by less
_LARGEST = float(np.finfo(np.float16).max)


class BadBytes(ValueError):
    """Packed bytes that are not what was written; the text says why in a few words."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed descriptors of one picture, checked, as views into the bytes they came from."""

    vectors: NDArray[np.float16] | NDArray[np.int8]
    positions: NDArray[np.uint16] | None
    strength: NDArray[np.float16] | None
    gain: NDArray[np.float16] | None


def pack(picture: Descriptors, key: bytes, dtype: str = "float16") -> bytes:
    """The real descriptors of one picture as bytes.

    Args:
        picture: a batch of one. Vectors beyond the range of half precision are an error, not infinity.
        key: what the bytes belong to; `unpack` needs the same.
        dtype: of the vectors as they are stored, one of `FORMATS`.

    Example:
        >>> len(pack(Descriptors(torch.ones(1, 5, 3)), b"a.jpg"))
        50
        >>> len(pack(Descriptors(torch.eye(3)[None]), b"a.jpg", "int8"))
        29
    """
    if len(picture) != 1:
        raise ValueError(f"picture: expected Descriptors of one picture, got {len(picture)}")
    real = picture.mask[0].cpu()
    vectors = (_directions if dtype == "int8" else _half)("vectors", picture.vectors, real)
    parts, fields = [vectors.tobytes()], 0
    if picture.xy is not None:
        xy = picture.xy[0].detach().cpu()[real].double().numpy()
        if xy.min() < 0 or xy.max() > 1:
            raise ValueError(f"xy: expected fractions in [0, 1], got {xy.min():.4g} to {xy.max():.4g}")
        parts.append(np.rint(xy * _STEPS).astype("<u2").tobytes())
        fields |= _POSITIONS
    for bit, name in ((_STRENGTHS, "strength"), (_GAINS, "gain")):
        value: Tensor | None = getattr(picture, name)
        if value is not None:
            parts.append(_half(name, value, real).tobytes())
            fields |= bit
    head = _HEAD.pack(MAGIC, FORMATS[dtype], fields, vectors.shape[0], vectors.shape[1])
    body = b"".join(parts)
    return head + _CHECK.pack(_checksum(key, head, memoryview(body))) + body


def unpack(packed: memoryview | bytes, key: bytes) -> Packed:
    """Checks packed bytes and opens them, without a copy.

    Raises:
        BadBytes: they are cut short, damaged, or belong to another key.

    Example:
        >>> unpack(pack(Descriptors(torch.ones(1, 5, 3)), b"a.jpg"), b"a.jpg").vectors.shape
        (5, 3)
    """
    view = memoryview(packed)
    if len(view) < _START:
        raise BadBytes(f"only {len(view)} bytes")
    magic, form, fields, count, dim = _HEAD.unpack_from(view)
    if magic != MAGIC or form not in FORMATS.values():
        raise BadBytes("not in the packed form")
    stored = "<f2" if form == FORMATS["float16"] else "i1"
    per = (
        np.dtype(stored).itemsize * dim
        + 4 * bool(fields & _POSITIONS)
        + 2 * bool(fields & _STRENGTHS)
        + 2 * bool(fields & _GAINS)
    )
    if len(view) != _START + count * per:
        raise BadBytes(f"{len(view)} bytes, expected {_START + count * per}")
    (expected,) = _CHECK.unpack_from(view, _HEAD.size)
    if _checksum(key, view[: _HEAD.size], view[_START:]) != expected:
        raise BadBytes("checksum differs")
    offset = _START

    def taken(dtype: str, *shape: int) -> NDArray[np.generic]:
        nonlocal offset
        size = int(np.prod(shape))
        value = np.frombuffer(view, dtype, count=size, offset=offset).reshape(shape)
        offset += value.nbytes
        return value

    return Packed(
        vectors=taken(stored, count, dim),  # pyright: ignore[reportArgumentType]
        positions=taken("<u2", count, 2) if fields & _POSITIONS else None,  # pyright: ignore[reportArgumentType]
        strength=taken("<f2", count) if fields & _STRENGTHS else None,  # pyright: ignore[reportArgumentType]
        gain=taken("<f2", count) if fields & _GAINS else None,  # pyright: ignore[reportArgumentType]
    )


def batch(parts: Sequence[Packed], size: Tensor, image_vector: Tensor, dtype: torch.dtype | None = None) -> Descriptors:
    """One padded batch of many pictures, in their order.

    Args:
        parts: the pictures; all with the same fields and channels.
        size: (B, 2) width and height in pixels.
        image_vector: (B, G) global vectors.
        dtype: of `vectors`, a floating-point one (int8 vectors then get unit length); None: as they are stored.
            Positions, strengths and gains come in float32.

    Example:
        >>> part = unpack(pack(Descriptors(torch.ones(1, 5, 3)), b""), b"")
        >>> batch([part, part], torch.ones(2, 2), torch.ones(2, 4), torch.float16).vectors.shape
        torch.Size([2, 5, 3])
    """
    counts = [part.vectors.shape[0] for part in parts]
    vectors = torch.from_numpy(_padded([part.vectors for part in parts]))
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    xy = strength = gain = None
    if parts[0].positions is not None:
        positions = _padded([part.positions for part in parts if part.positions is not None])
        xy = torch.from_numpy(positions.astype(np.float32) / _STEPS)
    if parts[0].strength is not None:
        strength = torch.from_numpy(_padded([part.strength for part in parts if part.strength is not None])).float()
    if parts[0].gain is not None:
        gain = torch.from_numpy(_padded([part.gain for part in parts if part.gain is not None])).float()
    if dtype is not None:
        vectors = with_length(vectors, dtype)
    return Descriptors(vectors, mask, xy=xy, strength=strength, size=size, image_vector=image_vector, gain=gain)


def _padded(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array of many that differ in their first length, with zeros behind the shorter ones."""
    # Megabytes a search: written once, and zeros only where they are needed.
    together = np.empty((len(values), max(map(len, values)), *values[0].shape[1:]), values[0].dtype.newbyteorder("="))
    for row, value in enumerate(values):
        together[row, : len(value)] = value
        together[row, len(value) :] = 0
    return together


def _half(name: str, value: Tensor, real: Tensor) -> NDArray[np.float16]:
    numbers = value[0].detach().cpu()[real].float().numpy()
    if np.abs(numbers).max() > _LARGEST:
        raise ValueError(f"{name}: expected numbers within ±{_LARGEST:.0f}, got {np.abs(numbers).max():.4g}")
    return numbers.astype("<f2")


def _directions(name: str, value: Tensor, real: Tensor) -> NDArray[np.int8]:
    numbers = value[0].detach().cpu()[real].float().numpy()
    lengths = np.linalg.norm(numbers, axis=1)
    if wrong := lengths[(lengths > 0) & (np.abs(lengths - 1) > _UNIT)].tolist():
        raise ValueError(
            f"{name}: expected unit vectors, of which int8 keeps the direction; got a length of {wrong[0]:.4g}"
        )
    largest = np.maximum(np.abs(numbers).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return np.rint(numbers / largest * 127).astype(np.int8)


def _checksum(key: bytes, head: bytes | memoryview, body: memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(head, zlib.crc32(key)))
