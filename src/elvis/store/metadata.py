"""A table of facts about pictures, such as `museum` or `year`, kept beside them and usable in filters."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from elvis.errors import StoreError
from elvis.store.durable import first_line
from elvis.store.names import path_to_text
from elvis.store.records import CORE_COLUMNS


class Metadata:
    """Columns by picture path.

    Attributes:
        columns: their names.
        paths: absolute path of every line.
    """

    def __init__(self, table: Any, paths: list[str]) -> None:
        self.columns: list[str] = table.column_names
        self.paths = paths
        self._table = table
        self._lines = {path: line for line, path in enumerate(paths)}

    def values_of(self, path: str) -> dict[str, Any]:
        """The values of one picture; none where the table does not name it."""
        line = self._lines.get(path)
        return {} if line is None else {name: self._table[name][line].as_py() for name in self.columns}

    def rows_for(self, paths: Container[str], current: Mapping[str, Mapping[str, Any]]) -> Any:
        """Arrow table with `path` and the columns, of those of the paths whose values differ from the current ones."""
        import pyarrow as pa

        lines = [
            line
            for path, line in self._lines.items()
            if path in paths and dict(current.get(path, {})) != self.values_of(path)
        ]
        keys = pa.array([path_to_text(self.paths[line]) for line in lines], pa.string())
        return self._table.take(pa.array(lines, pa.int64())).add_column(0, "path", keys)

    def unmatched(self, paths: Container[str]) -> list[str]:
        """Paths of the table that are none of the given ones."""
        return [path for path in self.paths if path not in paths]


def read_metadata(file: Path | str) -> Metadata:
    r"""Reads a CSV file with a header and the column `path`.

    Types are found from the values: whole numbers, numbers, dates, true and false, text. Relative paths count from the
    folder of the CSV file where the picture exists there, otherwise from the current folder.

    Raises:
        StoreError: it cannot be read, has no column `path`, names a picture twice, or uses a name of our own.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.csv").write_text("path,museum,year\na.jpg,Met,1911\n")
        ...     table = read_metadata(Path(folder, "a.csv"))
        ...     table.values_of(table.paths[0])
        {'museum': 'Met', 'year': 1911}
    """
    import pyarrow as pa
    from pyarrow import csv

    file = Path(file)
    try:
        options = csv.ConvertOptions(column_types={"path": pa.string()}, strings_can_be_null=True)
        table = csv.read_csv(file, convert_options=options, parse_options=csv.ParseOptions(newlines_in_values=True))
    except (OSError, ValueError) as error:  # Arrow's own errors are ValueErrors
        raise StoreError(f"{file}: no CSV table with a header: {first_line(error)}") from error
    if "path" not in table.column_names:
        raise StoreError(f"{file}: expected a column 'path', got {', '.join(table.column_names)}")
    if taken := [name for name in table.column_names if name in CORE_COLUMNS and name != "path"]:
        raise StoreError(f"{file}: the column {taken[0]!r} is one of the index's own: give it another name")
    if len(set(table.column_names)) != len(table.column_names):
        raise StoreError(f"{file}: two columns have the same name: rename one")
    paths = [_absolute(path or "", file.parent) for path in table["path"].to_pylist()]
    if len(set(paths)) != len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise StoreError(f"{file}: {twice} stands there twice: keep one line")
    table = table.drop_columns(["path"])
    # A column without any value has no type that a filter could use: text is what it most likely will hold.
    fields = [each.with_type(pa.string()) if pa.types.is_null(each.type) else each for each in table.schema]
    return Metadata(table.cast(pa.schema(fields)), paths)


def _absolute(path: str, folder: Path) -> str:
    beside = os.path.abspath(folder / path)
    return beside if os.path.lexists(beside) else os.path.abspath(path)
