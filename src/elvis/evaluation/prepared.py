"""Prepared descriptors of many pictures, within a stated amount of memory."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType

import torch
from safetensors.torch import load, save

from elvis.errors import CacheError
from elvis.evaluation.cache import DescriptorCache
from elvis.models.base import Matcher
from elvis.values import Descriptors

_FIELDS = tuple(each.name for each in fields(Descriptors))


class PreparedPictures:
    """What `model.prepare` gives for each picture, computed when first asked for and kept in half precision.

    The first `memory` bytes stay in memory, the rest goes to a file beside the cache that vanishes with this object.

    Args:
        model: whose `prepare` is used.
        cache: holds the raw descriptors.
        keys: by place, what each picture is filed under.
        memory: bytes.
        device: where batches are wanted.
    """

    def __init__(
        self, model: Matcher, cache: DescriptorCache, keys: Sequence[str], memory: int, device: torch.device | str
    ) -> None:
        self._model, self._cache, self._keys = model, cache, keys
        self._memory, self._device = memory, device
        self._held: dict[int, Descriptors] = {}
        self._spilled: dict[int, tuple[int, int]] = {}
        self._file = tempfile.TemporaryFile(dir=Path(cache.folder), buffering=0)  # noqa: SIM115 - closed by __exit__
        self.bytes_in_memory = self.bytes_on_disk = 0

    def __enter__(self) -> PreparedPictures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def batch(self, places: Sequence[int]) -> Descriptors:
        """The pictures at these places, in this order, on the device."""
        return Descriptors.stack([self._one(int(place)) for place in places]).to(self._device)

    def _one(self, place: int) -> Descriptors:
        if place in self._held:
            return self._held[place]
        if place in self._spilled:
            offset, length = self._spilled[place]
            self._file.seek(offset)
            return Descriptors(**load(self._file.read(length)))
        prepared = self._model.prepare(self._cache.read(self._keys[place]).to(self._device)).to("cpu", torch.float16)
        self._keep(place, prepared)
        return prepared

    def _keep(self, place: int, prepared: Descriptors) -> None:
        tensors = {name: value for name in _FIELDS if (value := getattr(prepared, name)) is not None}
        size = sum(value.numel() * value.element_size() for value in tensors.values())
        if self.bytes_in_memory + size <= self._memory:
            self._held[place] = prepared
            self.bytes_in_memory += size
            return
        content = save({name: value.contiguous() for name, value in tensors.items()})
        try:
            self._file.seek(self.bytes_on_disk)
            self._file.write(content)
        except OSError as error:
            raise CacheError(
                f"{self._cache.folder}: prepared descriptors do not fit there ({error.strerror}): "
                "name another cache folder or allow more memory"
            ) from error
        self._spilled[place] = (self.bytes_on_disk, len(content))
        self.bytes_on_disk += len(content)
