"""Any folder with an `images.csv` as a benchmark.

The file has the columns `path, role, label, junk` (others are ignored):

- `path`: relative to the folder, with forward slashes;
- `role`: `query`, `database`, `both` (query and database at once: the picture is left out of its own ranking)
  or `train` (takes no part);
- `label`: a database picture is right for a query when their labels are equal. A database picture may have
  none: it is right for nobody;
- `junk`: labels separated by `;` whose pictures count neither for nor against this query.
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from elvis.errors import DataSetError
from elvis.evaluation.datasets.record import Benchmark, Judgement, Picture, Protocol

COLUMNS = ("path", "role", "label", "junk")
ROLES = ("train", "query", "database", "both")
FOLDER_PROTOCOL = Protocol(
    metric="rectangular",
    cutoff=100,
    junk="pictures with a label listed as junk, and the query itself, are dropped from its ranking",
    cropping="none",
    licence="the folder's own",
    source="any folder with an images.csv (columns path, role, label, junk)",
    settled=("a database picture that is missing or unreadable still counts where it would have been right",),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `images.csv`, checked."""

    line: int
    path: str
    role: str
    label: str
    junk: frozenset[str]


def read_folder(folder: Path) -> Benchmark:
    """The benchmark in a folder with an `images.csv`; its name is the folder's.

    Raises:
        DataSetError: the file is missing or malformed (with the line), or nothing could be measured with it.
    """
    folder = Path(folder)
    rows = read_rows(folder / "images.csv")
    queries = [row for row in rows if row.role in ("query", "both")]
    gallery = [row for row in rows if row.role in ("database", "both")]
    where = folder / "images.csv"
    for found, role in ((queries, "query"), (gallery, "database")):
        if not found:
            raise DataSetError(f"{where}: expected rows with role {role} or both, found none")
    by_label: dict[str, list[int]] = defaultdict(list)
    by_path = {row.path: place for place, row in enumerate(gallery)}
    for place, row in enumerate(gallery):
        if row.label:
            by_label[row.label].append(place)

    def positives(row: Row) -> list[int]:
        return [place for place in by_label[row.label] if place != by_path.get(row.path)]

    def ignored(row: Row) -> list[int]:
        itself = [by_path[row.path]] if row.path in by_path else []
        return itself + [place for label in row.junk for place in by_label.get(label, ())]

    judgement = Judgement(
        "",
        tuple(np.array(positives(row), np.int64) for row in queries),
        tuple(np.unique(np.array(ignored(row), np.int64)) for row in queries),
    )
    if not any(map(len, judgement.positives)):
        raise DataSetError(f"{where}: no query shares its label with a database picture: nothing to measure")
    named = {row.path: folder / row.path for row in (*queries, *gallery)}
    missing = frozenset(name for name, path in named.items() if not os.path.isfile(path))
    if len(missing) == len(named):
        raise DataSetError(f"{where} names {len(named):,} pictures and none is there, as {min(missing)!r}: unpack them")
    return Benchmark(
        name=folder.resolve().name,
        queries=tuple(Picture(row.path, named[row.path]) for row in queries),
        gallery=tuple(Picture(row.path, named[row.path]) for row in gallery),
        judgements=(judgement,),
        protocol=FOLDER_PROTOCOL,
        missing=missing,
        training=len(rows) - len(by_path.keys() | {row.path for row in queries}),
    )


def read_rows(file: Path) -> list[Row]:
    """The checked lines of an `images.csv`."""
    if not file.is_file():
        raise DataSetError(f"{file} is missing: expected a CSV file with the columns {', '.join(COLUMNS)}")
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataSetError(f"{file}: expected UTF-8, got something else at byte {error.start}") from error
    except OSError as error:
        raise DataSetError(f"{file} cannot be read: {error.strerror}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = list(reader.fieldnames or ())
        if absent := [name for name in COLUMNS if name not in header]:
            raise DataSetError(f"{file}: expected the columns {', '.join(COLUMNS)}, found no {' and no '.join(absent)}")
        if len(set(header)) != len(header):
            raise DataSetError(f"{file}: a column stands twice in {', '.join(header)}")
        rows = [_row(file, reader.line_num, fields) for fields in reader]
    except csv.Error as error:
        raise DataSetError(f"{file}, line {reader.reader.line_num}: {error}") from error
    first_line: dict[str, int] = {}
    for row in rows:
        # `./a.jpg` and `a.jpg` are one file.
        place = str(PurePosixPath(row.path))
        if place in first_line:
            raise DataSetError(f"{file}, line {row.line}: path {row.path!r} stands in line {first_line[place]} already")
        first_line[place] = row.line
    return rows


def _row(file: Path, line: int, fields: dict[str | None, str | list[str] | None]) -> Row:
    def refuse(why: str) -> DataSetError:
        return DataSetError(f"{file}, line {line}: {why}")

    if None in fields or None in fields.values():
        raise refuse("expected as many fields as the header has, found " + ("more" if None in fields else "fewer"))
    path = str(fields["path"])
    role, label, junk = (str(fields[name]).strip() for name in COLUMNS[1:])
    if why := _unsafe(path):
        raise refuse(f"path {path!r} {why}")
    if role not in ROLES:
        raise refuse(f"role: expected one of {', '.join(ROLES)}, got {role!r}")
    if role in ("query", "both") and not label:
        raise refuse("label: expected one for a query, got none")
    junk_labels = frozenset(part.strip() for part in junk.split(";") if part.strip())
    if role in ("query", "both") and label in junk_labels:
        raise refuse(f"junk names the query's own label {label!r}: it cannot be right and junk at once")
    return Row(line, path, role, label, junk_labels)


def _unsafe(path: str) -> str | None:
    """Why a path must not be followed out of the folder, or None."""
    if not path.strip():
        return "is empty"
    if "\0" in path:
        return "holds a NUL character"
    if "\\" in path:
        return "holds a backslash: separate folders by /"
    parts = PurePosixPath(path)
    if parts.is_absolute() or path[1:2] == ":":
        return "is absolute: name it relative to the folder"
    if ".." in parts.parts:
        return "leads out of the folder"
    return None
