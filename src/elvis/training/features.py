"""Descriptors to train on: extracted once for each picture and view, and streamed from disk.

A folder for each way of extracting, in it safetensors files ("shards") of some dozens of pictures. A shard is written
under another name and renamed, so that a killed run leaves whole ones only, and several runs may add at a time. A row
carries the checksum of its descriptors, which is verified when it is first read. What is looked up is a hash of the
picture's content and of the view, so the same picture is never extracted twice, wherever it lies.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from elvis.errors import CacheError
from elvis.evaluation.cache import DescriptorCache, write_atomically
from elvis.values import Descriptors

logger = logging.getLogger(__name__)

SHARD_BYTES = 32 << 20
"""A shard is written when it holds so much: half a minute of a laptop's work that a kill can cost."""
_OPEN_SHARDS = 128
_DTYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row is: its shard and the row in it."""

    shard: str
    row: int


class _Shard:
    """One file, mapped into memory."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with file.open("rb") as stream:
                (length,) = struct.unpack("<Q", stream.read(8))
                header = json.loads(stream.read(length))
            self.note: dict[str, Any] = json.loads(header.pop("__metadata__")["note"])
            self._entries, self._start = header, 8 + length
            self._map = np.memmap(file, np.uint8, "r")
            self.offsets = self.array("offsets")
            self.verified: set[int] = set()
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise CacheError(f"{file} is damaged: delete it and run again") from error

    def array(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        begin, end = entry["data_offsets"]
        return self._map[self._start + begin : self._start + end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])

    def vectors(self, row: int) -> NDArray[Any]:
        found = self.array("vectors")[self.offsets[row] : self.offsets[row + 1]]
        if row not in self.verified:
            if _checksum(found) != self.note["checksums"][row]:
                raise CacheError(f"{self.file} is damaged (checksum of row {row}): delete it and run again")
            self.verified.add(row)
        return found


class FeatureStore:
    """Descriptors by content and view, memory-mapped; grows by `add` and `flush`.

    Args:
        folder: shared by all ways of extracting.
        fingerprint: of the extraction: settings, weights and precision.
        settings: the same for people, kept beside the shards.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = FeatureStore(folder, "0123456789abcdef", {"block": -2})
        ...     store.add("cup", Descriptors(torch.ones(1, 2, 3), image_vector=torch.ones(1, 4)))
        ...     store.flush()
        ...     store.dim, store.vectors(store.row("cup")).shape
        (3, (2, 3))
    """

    def __init__(self, folder: str | Path, fingerprint: str, settings: Mapping[str, Any]) -> None:
        # The descriptor cache's own folder rules: card, check of the fingerprint, sweeping what killed runs left.
        self.folder = DescriptorCache(folder, fingerprint, settings).folder
        self.fingerprint = fingerprint
        self._places: list[_Place] = []
        self._rows: dict[str, int] = {}
        self._open: OrderedDict[str, _Shard] = OrderedDict()
        self._waiting: list[tuple[str, Descriptors]] = []
        self._waiting_bytes = 0
        for file in sorted(self.folder.glob("*.safetensors")):
            self._register(file.name)

    @property
    def dim(self) -> int:
        """D′ of the rows; the store must hold one."""
        if not self._places:
            raise CacheError(f"{self.folder} holds no descriptors yet")
        return self._shard(self._places[0].shard).array("vectors").shape[1]

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def row(self, key: str) -> int:
        """Row of what was added under this key."""
        return self._rows[key]

    def vectors(self, row: int) -> NDArray[np.floating]:
        """(n, D′) descriptors, strongest first; a view of the file, float16 unless they are too large for it."""
        place = self._places[row]
        return self._shard(place.shard).vectors(place.row)

    def xy(self, row: int) -> NDArray[np.float32]:
        """(n, 2) their positions as fractions of the upright picture; empty where none are known."""
        place = self._places[row]
        shard = self._shard(place.shard)
        return shard.array("xy")[shard.offsets[place.row] : shard.offsets[place.row + 1]]

    def image_vectors(self, rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """(R, G) global vectors, normalised."""
        found = []
        for row in rows:
            place = self._places[int(row)]
            found.append(np.array(self._shard(place.shard).array("image_vector")[place.row]))
        return np.stack(found)

    def add(self, key: str, descriptors: Descriptors) -> None:
        """Takes the descriptors of one picture or view; a shard is written when there are enough."""
        if len(descriptors) != 1 or descriptors.image_vector is None:
            raise ValueError("descriptors: expected those of one picture, with its image_vector")
        self._waiting.append((key, descriptors.to("cpu")))
        self._waiting_bytes += 2 * descriptors.vectors.numel()
        if self._waiting_bytes >= SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what was added; only then can it be read."""
        if not self._waiting:
            return
        parts = [each for _, each in self._waiting]
        vectors = torch.cat([each.vectors[0][each.mask[0]].detach().float() for each in parts])
        if float(vectors.abs().max()) <= torch.finfo(torch.float16).max:
            vectors = vectors.half()
        counts = torch.cat([each.counts for each in parts])
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        positions = [
            torch.full((int(each.counts), 2), torch.nan) if each.xy is None else each.xy[0][each.mask[0]].float()
            for each in parts
        ]
        rows = vectors.numpy()
        note = {
            "keys": [key for key, _ in self._waiting],
            "checksums": [_checksum(rows[offsets[i] : offsets[i + 1]]) for i in range(len(parts))],
        }
        content = save(
            {
                "vectors": vectors.contiguous(),
                "xy": torch.cat(positions).contiguous(),
                "image_vector": torch.cat([_vector(each) for each in parts]),
                "offsets": offsets,
            },
            {"note": json.dumps(note)},
        )
        name = f"{uuid.uuid4().hex}.safetensors"
        try:
            write_atomically(self.folder / name, content)
        except OSError as error:
            raise CacheError(
                f"{self.folder / name} cannot be written: {error.strerror}; what is kept so far serves the next run"
            ) from error
        self._waiting, self._waiting_bytes = [], 0
        self._register(name)

    def _register(self, name: str) -> None:
        for row, key in enumerate(self._shard(name).note["keys"]):
            # Two runs at a time may have added the same; both are right, and the first is read.
            self._rows.setdefault(key, len(self._places))
            self._places.append(_Place(name, row))

    def _shard(self, name: str) -> _Shard:
        if name not in self._open:
            self._open[name] = _Shard(self.folder / name)
            if len(self._open) > _OPEN_SHARDS:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]


def _vector(descriptors: Descriptors) -> torch.Tensor:
    assert descriptors.image_vector is not None  # `add` has checked it
    return torch.nn.functional.normalize(descriptors.image_vector.detach().float(), dim=1)


def _checksum(values: NDArray[Any]) -> str:
    return hashlib.blake2b(f"{values.dtype}{values.shape}".encode() + values.tobytes(), digest_size=16).hexdigest()
