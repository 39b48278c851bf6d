"""Data sets to measure on: one adapter each, all giving a `Benchmark`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elvis.errors import DataSetError
from elvis.evaluation.datasets.folder import FOLDER_PROTOCOL, read_folder
from elvis.evaluation.datasets.record import Benchmark, Judgement, Picture, Protocol

__all__ = ["DATASETS", "Adapter", "Benchmark", "Judgement", "Picture", "Protocol", "load_benchmark"]


@dataclass(frozen=True, slots=True)
class Adapter:
    """How a data set on disk becomes a `Benchmark`.

    Attributes:
        read: takes the data set's folder.
        protocol: how it is measured.
        summary: one line for `elvis bench --list`.
    """

    read: Callable[[Path], Benchmark]
    protocol: Protocol
    summary: str


DATASETS: dict[str, Adapter] = {
    "folder": Adapter(read_folder, FOLDER_PROTOCOL, "any folder of your own, named by its path"),
}
"""Adapters by name. `folder` is what a path stands for."""


def load_benchmark(place: str | Path) -> Benchmark:
    """The benchmark that a folder holds, checked before any work is done.

    Example:
        >>> load_benchmark("no/such/folder")
        Traceback (most recent call last):
        ...
        elvis.errors.DataSetError: no/such/folder: no such folder
    """
    folder = Path(place)
    if not folder.is_dir():
        raise DataSetError(f"{folder}: {'no folder but a file' if folder.exists() else 'no such folder'}")
    return DATASETS["folder"].read(folder)
