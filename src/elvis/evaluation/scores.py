"""Scores of a re-ranking under way, kept query by query so that a killed run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from elvis.errors import CacheError

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


class KeptScores:
    """An append-only file of JSON lines: first what it belongs to, then a line a query.

    A line that was cut off by a kill is dropped, and so is nothing else: a file that is damaged elsewhere or
    belongs to other settings is refused.

    Args:
        file: where; its folder exists.
        belongs_to: everything that the scores depend on.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for _ in range(2):
        ...         with KeptScores(Path(folder, "scores.jsonl"), {"depth": 2}) as scores:
        ...             known = scores.get(0, np.array([7, 4]))
        ...             scores.add(0, np.array([7, 4]), np.array([0.5, 0.25]))
        >>> known
        array([0.5 , 0.25])
    """

    def __init__(self, file: Path, belongs_to: Mapping[str, Any]) -> None:
        self._path = file
        self._known: dict[int, tuple[str, Floats]] = {}
        head = json.dumps(dict(belongs_to), sort_keys=True)
        try:
            sound = self._read(head) if file.exists() else 0
            self._file: BinaryIO = file.open("r+b" if sound else "wb")
            self._file.truncate(sound)
            self._file.seek(sound)
            if not sound:
                self._append(head)
        except OSError as error:
            raise CacheError(f"{file} cannot be used: {error.strerror}") from error

    @classmethod
    def of(cls, folder: Path, belongs_to: Mapping[str, Any]) -> KeptScores:
        """The file for just that in a folder: other settings have a file of their own."""
        digest = hashlib.sha256(json.dumps(dict(belongs_to), sort_keys=True).encode()).hexdigest()
        return cls(folder / f"{digest[:16]}.jsonl", belongs_to)

    def _read(self, head: str) -> int:
        """Take in the lines that are whole; how many bytes they are."""
        content = self._path.read_bytes()
        sound = content.rfind(b"\n") + 1
        lines = content[:sound].splitlines()
        if not lines:
            return 0
        if lines[0] != head.encode():
            raise CacheError(f"{self._path} belongs to another run: delete it or name another --out")
        for number, line in enumerate(lines[1:], 2):
            try:
                entry = json.loads(line)
                self._known[int(entry["query"])] = (entry["of"], np.array(entry["scores"], np.float64))
            except (ValueError, KeyError, TypeError) as error:
                raise CacheError(f"{self._path}, line {number} is damaged: delete the file and run again") from error
        return sound

    def __enter__(self) -> KeptScores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def get(self, query: int, candidates: Ids) -> Floats | None:
        """The scores of a query's candidates, if they are known."""
        of, scores = self._known.get(query, ("", np.empty(0)))
        return scores if of == _digest(candidates) else None

    def add(self, query: int, candidates: Ids, scores: Floats) -> None:
        """Keep them; they are on their way to the disk when this returns."""
        self._known[query] = (_digest(candidates), scores)
        try:
            self._append(json.dumps({"query": query, "of": _digest(candidates), "scores": scores.tolist()}))
        except OSError as error:
            raise CacheError(f"{self._path} cannot be written: {error.strerror}") from error

    def _append(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")
        self._file.flush()


def _digest(candidates: Ids) -> str:
    return hashlib.blake2b(candidates.astype("<i8").tobytes(), digest_size=8).hexdigest()
