"""Descriptors of pictures, extracted once and kept.

A folder for each way of extracting (`<fingerprint>/settings.json` says which), in it a safetensors file a picture,
named by the SHA-256 of the picture's content (and crop): a changed picture or setting never meets an old file.
A file is written under another name and renamed, so a run that was killed leaves whole files or none. Every
tensor carries a checksum that is verified on every read; what is damaged or belongs elsewhere is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from elvis.errors import CacheError
from elvis.evaluation.datasets.record import Crop
from elvis.values import Descriptors

logger = logging.getLogger(__name__)

SCHEMA = 1
_FIELDS = tuple(each.name for each in fields(Descriptors))


def default_cache_folder() -> Path:
    """Where descriptors are kept unless told otherwise: the user's cache folder, as the system has it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    else:
        base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "elvis" / "descriptors"


class DescriptorCache:
    """Raw descriptors by content.

    Args:
        folder: shared by all ways of extracting.
        fingerprint: of the extraction: settings and weights.
        settings: the same for people, kept beside the files.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = DescriptorCache(folder, "0123456789abcdef", {"block": -2})
        ...     key = cache.key(b"content of a picture")
        ...     cache.write(key, Descriptors(torch.ones(1, 2, 3)))
        ...     key in cache, cache.read(key).vectors.shape
        (True, torch.Size([1, 2, 3]))
    """

    def __init__(self, folder: str | Path, fingerprint: str, settings: Mapping[str, Any]) -> None:
        if len(fingerprint) < 16:
            raise ValueError(f"fingerprint: expected at least 16 characters, got {fingerprint!r}")
        self.fingerprint = fingerprint
        self.folder = Path(folder) / fingerprint[:16]
        card = {"schema": SCHEMA, "fingerprint": fingerprint, "settings": dict(settings)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_card(card)
            self._sweep()
        except OSError as error:
            raise CacheError(f"{self.folder} cannot be used as a cache: {error.strerror}") from error

    def _check_card(self, card: dict[str, Any]) -> None:
        file = self.folder / "settings.json"
        if not file.exists():
            write_atomically(file, json.dumps(card, indent=1, sort_keys=True).encode())
            return
        try:
            found = json.loads(file.read_bytes())
            kept = {name: found[name] for name in ("schema", "fingerprint")}
        except (ValueError, KeyError, TypeError) as error:
            raise CacheError(f"{file} is damaged: delete {self.folder} and run again") from error
        for name, value in kept.items():
            if value != card[name]:
                raise CacheError(
                    f"{self.folder} was made with {name} {value}, and this run has {card[name]}: "
                    "delete it or name another cache folder"
                )

    def _sweep(self) -> None:
        """Clear away what killed runs left, but not what another run is writing right now."""
        for leftover in self.folder.glob("**/*.tmp"):
            try:
                if time.time() - leftover.stat().st_mtime > 3600:
                    leftover.unlink()
            except FileNotFoundError:
                logger.debug("%s went away by itself", leftover)

    def key(self, content: bytes, crop: Crop | None = None) -> str:
        """What a picture's descriptors are filed under."""
        digest = hashlib.sha256(content)
        if crop is not None:
            digest.update(b"\0crop\0" + ",".join(f"{part:.9g}" for part in crop).encode())
        return digest.hexdigest()

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"

    def __contains__(self, key: str) -> bool:
        return self._file(key).exists()

    def write(self, key: str, descriptors: Descriptors) -> None:
        """Keep the descriptors of one picture; vectors are kept in half precision."""
        if len(descriptors) != 1:
            raise ValueError(f"descriptors: expected those of one picture, got {len(descriptors)}")
        tensors = {
            name: value.detach().to("cpu", _kept_dtype(name, value)).contiguous()
            for name in _FIELDS
            if (value := getattr(descriptors, name)) is not None
        }
        note = {"key": key, "fingerprint": self.fingerprint}
        note |= {f"checksum.{name}": _checksum(value) for name, value in tensors.items()}
        file = self._file(key)
        try:
            file.parent.mkdir(exist_ok=True)
            write_atomically(file, save(tensors, note))
        except OSError as error:
            raise CacheError(
                f"{file} cannot be written: {error.strerror}; what is kept so far serves the next run"
            ) from error

    def read(self, key: str) -> Descriptors:
        """The descriptors of one picture, in float32."""
        tensors = self._tensors(key)
        return Descriptors(
            **{name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}
        )

    def read_image_vector(self, key: str) -> Tensor:
        """(G,) global vector of one picture, without reading the rest."""
        tensors = self._tensors(key, "image_vector")
        if "image_vector" not in tensors:
            raise CacheError(f"{self._file(key)} holds no global vector, which the first stage needs")
        return tensors["image_vector"][0].float()

    def _tensors(self, key: str, *names: str) -> dict[str, Tensor]:
        file = self._file(key)
        try:
            with safe_open(file, framework="pt") as opened:
                note = opened.metadata() or {}
                tensors = {name: opened.get_tensor(name) for name in opened.keys() if name in (names or _FIELDS)}  # noqa: SIM118
        except FileNotFoundError as error:
            raise CacheError(f"{file} is gone: run again to extract it anew") from error
        except (SafetensorError, OSError) as error:
            raise CacheError(
                f"{file} is damaged ({str(error).partition(chr(10))[0]}): delete it and run again"
            ) from error
        if (note.get("key"), note.get("fingerprint")) != (key, self.fingerprint):
            raise CacheError(f"{file} belongs to another picture or other settings: delete it and run again")
        for name, value in tensors.items():
            if note.get(f"checksum.{name}") != _checksum(value):
                raise CacheError(f"{file} is damaged (checksum of {name}): delete it and run again")
        return tensors


def _kept_dtype(name: str, value: Tensor) -> torch.dtype:
    if not value.is_floating_point() or name == "mask":
        return value.dtype
    # The global vector decides the shortlist, and costs little: it stays whole. So do pixel counts and positions.
    if name != "vectors":
        return torch.float32
    half = torch.finfo(torch.float16)
    return torch.float16 if float(value.abs().max()) <= half.max else torch.float32


def _checksum(value: Tensor) -> str:
    head = f"{value.dtype}{tuple(value.shape)}".encode()
    return hashlib.blake2b(head + value.numpy().tobytes(), digest_size=16).hexdigest()


def write_atomically(file: Path, content: bytes) -> None:
    """All of the content under that name, or nothing, also when the process is killed meanwhile."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
