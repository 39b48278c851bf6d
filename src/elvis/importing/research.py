"""The published training files: image list, local descriptors in HDF5, neighbour lists.

A folder for each set, with `train.txt` (a line an image: path, landmark, width, height; its line order is the row order
of everything else), `<name>_local.hdf5` or `<name>_train_local.hdf5`, and `nn_<name>.pkl`, or global vectors in
`<name>_cls.hdf5`, `<name>_train_cls.hdf5` or `<name>_global.hdf5`, from which neighbours are computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elvis.errors import DataSetError, MissingExtra
from elvis.image_files import shown
from elvis.importing.pickles import read_plain_pickle

LISTS = ("train.txt", "train_750k.txt")
_LOCAL = ("_train_local.hdf5", "_local.hdf5")
_GLOBAL = ("_train_cls.hdf5", "_cls.hdf5", "_train_global.hdf5", "_global.hdf5")
_PADDED, _FIRST_CHANNEL = 3, 5


def read_train_list(file: str | Path) -> tuple[list[str], list[str]]:
    """Paths and landmark names of an image list, in line order.

    Raises:
        DataSetError: a line has no path and label; names it.
    """
    paths: list[str] = []
    labels: list[str] = []
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataSetError(f"{shown(file)} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        parts = line.split(",")
        if len(parts) < 2 or not parts[0] or not parts[1].strip():
            raise DataSetError(f"{shown(file)}, line {number}: expected path,label[,width,height], got {line[:60]!r}")
        paths.append(parts[0])
        labels.append(parts[1].strip())
    if not paths:
        raise DataSetError(f"{shown(file)} is empty: expected a line an image")
    return paths, labels


class LocalDescriptors:
    """Rows of a published HDF5 file of local descriptors, read when asked for; a `DescriptorRows`.

    Args:
        file: dataset `features` of shape [N, M, 5 + D′] in half or single precision: row and column position, scale,
            flag of padding, weight, descriptor; strongest first.
    """

    def __init__(self, file: str | Path) -> None:
        self._features = _features(Path(file))
        if self._features.ndim != 3 or self._features.shape[2] <= _FIRST_CHANNEL or self._features.dtype.kind != "f":
            raise DataSetError(
                f"{shown(file)}: expected features [N, M, 5 + D] in half or single precision, got "
                f"{tuple(self._features.shape)} {self._features.dtype}"
            )
        self._file = Path(file)
        self.dim = int(self._features.shape[2]) - _FIRST_CHANNEL

    def __len__(self) -> int:
        return int(self._features.shape[0])

    def vectors(self, row: int) -> NDArray[np.floating]:
        """(n, D′) descriptors of an image, strongest first, without padding."""
        return self._real(row)[:, _FIRST_CHANNEL:]

    def xy(self, row: int) -> NDArray[np.floating]:
        """(n, 2) their positions, x and y as fractions of the upright picture; the file has row before column."""
        return self._real(row)[:, 1::-1]

    def _real(self, row: int) -> NDArray[np.floating]:
        table = np.asarray(self._features[row])
        real = table[table[:, _PADDED] == 0]
        if not len(real):
            raise DataSetError(f"{shown(self._file)}: image {row} has no descriptor that is not padding")
        return real


@dataclass(frozen=True, slots=True, eq=False)
class ResearchFiles:
    """A published training set.

    Attributes:
        paths: of the images, in row order.
        labels: landmark of each.
        local: their descriptors.
        similarities: (N, K) to the nearest images, descending; without the image itself.
        neighbours: (N, K) their rows; −1 where the image itself stood.
        fingerprint: SHA-256 over list, neighbours and the identity of the descriptor file.
    """

    paths: Sequence[str]
    labels: Sequence[str]
    local: LocalDescriptors
    similarities: NDArray[np.float32]
    neighbours: NDArray[np.int64]
    fingerprint: str


def is_research_folder(folder: Path) -> bool:
    """Whether a folder holds published training files: a list, and descriptors in HDF5."""
    return _list(folder) is not None and any(True for _ in folder.glob("*_local.hdf5"))


def read_research_folder(folder: str | Path, *, name: str | None = None, neighbours: int = 300) -> ResearchFiles:
    """A published training set, checked for belonging together.

    Args:
        folder: of the set.
        name: of the descriptors, such as dinov2; None: the only one that is there.
        neighbours: how many are computed where there is no `nn` file.
    """
    folder = Path(folder)
    listed = _list(folder)
    if listed is None:
        raise DataSetError(f"{shown(folder)}: expected an image list ({' or '.join(LISTS)})")
    paths, labels = read_train_list(listed)
    name = name or _only_name(folder)
    file = _first(folder, name, _LOCAL)
    if file is None:
        raise DataSetError(f"{shown(folder)}: expected {' or '.join(name + suffix for suffix in _LOCAL)}")
    local = LocalDescriptors(file)
    if len(local) != len(paths):
        raise DataSetError(f"{shown(file)} has {len(local)} rows, and {listed.name} has {len(paths)} lines")
    similarities, ids = _neighbours(folder, name, len(paths), neighbours)
    digest = hashlib.sha256("\n".join([*paths, *labels]).encode())
    status = file.stat()
    digest.update(f"{status.st_size} {status.st_mtime_ns} {local.dim}".encode() + ids.tobytes())
    return ResearchFiles(paths, labels, local, similarities, ids, digest.hexdigest())


def _list(folder: Path) -> Path | None:
    return next((folder / name for name in LISTS if (folder / name).is_file()), None)


def _only_name(folder: Path) -> str:
    names = {file.name.removesuffix("_local.hdf5").removesuffix("_train") for file in folder.glob("*_local.hdf5")}
    names = {each for each in names if not each.endswith(("_query", "_gallery"))}
    if len(names) != 1:
        found = ", ".join(sorted(names)) or "none"
        raise DataSetError(f"{shown(folder)}: expected descriptors of one kind (NAME_local.hdf5), found {found}")
    return names.pop()


def _first(folder: Path, name: str, suffixes: Sequence[str]) -> Path | None:
    return next((folder / (name + suffix) for suffix in suffixes if (folder / (name + suffix)).is_file()), None)


def _neighbours(folder: Path, name: str, rows: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    file = folder / f"nn_{name}.pkl"
    if file.is_file():
        return _from_pickle(file, rows)
    vectors_file = _first(folder, name, _GLOBAL)
    if vectors_file is None:
        raise DataSetError(f"{shown(folder)}: expected {file.name}, or global vectors in {name}_cls.hdf5")
    from elvis.training.triplets import nearest_neighbours

    vectors = np.asarray(_features(vectors_file), np.float32)
    if vectors.ndim != 2 or len(vectors) != rows:
        raise DataSetError(f"{shown(vectors_file)}: expected features [{rows}, G], got {vectors.shape}")
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found = nearest_neighbours(vectors, count)
    return found.similarities, found.ids


def _from_pickle(file: Path, rows: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Two planes: cosines, and rows as floats, which are exact only up to 2²⁴."""
    planes = np.asarray(read_plain_pickle(file))
    if planes.ndim != 3 or len(planes) < 2 or planes.shape[1] != rows:
        raise DataSetError(f"{shown(file)}: expected neighbours [2, {rows}, K], got {planes.shape}")
    ids = planes[1].astype(np.int64)
    if planes.dtype == np.float32 and rows > 1 << 24:
        raise DataSetError(f"{shown(file)}: single precision cannot count {rows} images: write it in int64")
    if ids.size and not 0 <= ids.min() <= ids.max() < rows:
        raise DataSetError(f"{shown(file)}: expected rows from 0 to {rows - 1}, got {ids.min()} to {ids.max()}")
    similarities = planes[0].astype(np.float32)
    itself = ids == np.arange(rows)[:, None]
    return np.where(itself, 0, similarities), np.where(itself, -1, ids)


def _features(file: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra("h5py", "research") from error
    try:
        opened = h5py.File(file, "r")
        return opened["features"]
    except KeyError as error:
        raise DataSetError(f"{shown(file)}: expected a dataset called features") from error
    except OSError as error:
        raise DataSetError(f"{shown(file)} is no HDF5 file, or is cut short") from error
