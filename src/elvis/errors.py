"""Every error the library raises on purpose.

ElvisError
├── UnknownName        a model, backbone, preset … that does not exist; lists those that do
├── MissingExtra       an optional package is absent; says which `pip install` brings it
├── WeightsError       a weight file is missing, gated, corrupt, or not what it should be
├── UnreadableImage    a file that is not a picture we can read, with the reason
├── StoreError        anything about an index; its own tree:
│   ├── IndexMissing   there is no index at that place
│   ├── IndexMismatch  the index was made with other settings than asked for
│   ├── IndexBusy      another process is writing to it
│   ├── IndexDamaged   a checksum failed or a file is gone; says what is still good
│   └── DiskFull       the disk (or a quota) stopped a write; what was committed is safe
├── DataSetError       a benchmark's folder is incomplete or malformed; names the file and line
├── CacheError         kept descriptors or scores are damaged or belong to something else
├── TrainingError      a training cannot start, go on or be resumed; says what to change
└── NothingFound       a search whose answer is honestly empty

Wrong arguments are `ValueError` and `TypeError`, with what was expected and what was given.
The command line prints any of these as one line and ends with its `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterable


class ElvisError(Exception):
    """What every error of this library is."""

    exit_code = 1


class UnknownName(ElvisError):
    """A name that stands in no table."""

    exit_code = 2

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}: choose one of {', '.join(sorted(known))}")


class MissingExtra(ElvisError):
    """An optional package is not installed."""

    exit_code = 3

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}: pip install 'elvis-retrieval[{extra}]'")


class WeightsError(ElvisError):
    """A weight file is missing, gated, corrupt, or holds something else."""

    exit_code = 4


class UnreadableImage(ElvisError):
    """A file that is not a picture we can read."""

    exit_code = 5


class StoreError(ElvisError):
    """Anything about an index on disk."""

    exit_code = 6


class IndexMissing(StoreError):
    """There is no index at that place."""


class IndexMismatch(StoreError):
    """The index was made with other settings than asked for."""


class IndexBusy(StoreError):
    """Another process is writing to the index."""

    exit_code = 7


class IndexDamaged(StoreError):
    """A checksum failed or a file is gone."""

    exit_code = 8


class DiskFull(StoreError):
    """The disk or a quota stopped a write; what was committed before is safe."""

    exit_code = 9


class NothingFound(ElvisError):
    """A search whose answer is empty."""

    exit_code = 10


class DataSetError(ElvisError):
    """A benchmark's folder is incomplete or malformed."""

    exit_code = 11


class CacheError(ElvisError):
    """Descriptors or scores kept from an earlier run are damaged or belong to something else."""

    exit_code = 12


class TrainingError(ElvisError):
    """A training cannot start, go on or be resumed."""

    exit_code = 13
