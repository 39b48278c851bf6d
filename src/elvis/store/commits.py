"""Commits: which version of the table counts.

The table engine neither syncs nor checks what it reads, so a version counts only once a commit file names it, and
that file is written last, when everything it names is on the disk. Versions without one are leftovers of an
interrupted write.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elvis.errors import IndexDamaged, IndexMissing
from elvis.store.card import REBUILD, IndexCard
from elvis.store.durable import file_crc32, first_line, read_json, sync_files, sync_folder, write_json
from elvis.store.layout import Layout

KEPT = 3
"""Commits whose versions stay readable: what to fall back to, and what slow readers still use."""

UNREADABLE = (OSError, ValueError, KeyError, TypeError)
"""What reading a commit file that is damaged may raise."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed state of an index.

    Attributes:
        number: counts commits from 0.
        version: of the table.
        rows: records in it.
        what: what was done, in words.
        at: when, ISO 8601 in UTC.
        files: size and CRC-32 of every file of the version, by its path inside the table.
        card: of the index, so that a damaged card file costs nothing.
    """

    number: int
    version: int
    rows: int
    what: str
    at: str
    files: dict[str, tuple[int, int]]
    card: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """The commit to serve, and what is wrong on the disk.

    Attributes:
        commit: newest one whose manifest and deletion files are whole.
        lost: newer commits that cannot be served, with reasons.
        damaged: data files of `commit` that are missing or have another size, with reasons; the records in
            them cannot be read, all others can.
    """

    commit: Commit
    lost: dict[int, str]
    damaged: dict[str, str]


def commit_numbers(layout: Layout) -> list[int]:
    """Numbers of the commit files there are, newest first, whole or not."""
    if not layout.commits.is_dir():
        return []
    names = (path.stem for path in layout.commits.glob("*.json"))
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def commit_path(layout: Layout, number: int) -> Path:
    """Where a commit file stands."""
    return layout.commits / f"{number:08d}.json"


def choose(layout: Layout) -> Choice:
    """The newest commit that can be served.

    Raises:
        IndexMissing: there is no index.
        IndexDamaged: there are commits, but none can be served.
    """
    numbers = commit_numbers(layout)
    while True:
        if not numbers:
            raise IndexMissing(
                f"{layout.folder} holds no index: make one with elvis index PICTURES --index {layout.folder}"
            )
        choice, lost = _choose(layout, numbers)
        if choice is not None and not lost and not choice.damaged:
            return choice
        # A writer may have committed and cleaned up while we looked: then look at what is there now.
        before, numbers = numbers, commit_numbers(layout)
        if before != numbers:
            continue
        if choice is not None:
            return choice
        reasons = "; ".join(lost.values())
        raise IndexDamaged(f"{layout.folder}: no commit is whole ({reasons}): restore a copy, or {REBUILD}")


def _choose(layout: Layout, numbers: list[int]) -> tuple[Choice | None, dict[int, str]]:
    lost: dict[int, str] = {}
    for number in numbers:
        try:
            commit = read_commit(layout, number)
            wrong = _wrong_sizes(layout, commit)
            essential = {name: why for name, why in wrong.items() if _finds_records(name)}
            essential |= _wrong_checksums(layout, commit, set(commit.files) - set(wrong))
        except UNREADABLE as error:
            lost[number] = f"{commit_path(layout, number).name}: {first_line(error)}"
            continue
        if essential:
            name, why = next(iter(essential.items()))
            lost[number] = f"{name}: {why}"
            continue
        return Choice(commit, lost, wrong), lost
    return None, lost


def _finds_records(name: str) -> bool:
    """Whether no record at all can be found, or too many are, without this file: manifests and deletion files."""
    return name.startswith(("_versions/", "_deletions/"))


def read_commit(layout: Layout, number: int) -> Commit:
    """One commit file; ValueError, KeyError, TypeError or OSError where it is not what was written."""
    content = read_json(commit_path(layout, number))
    files = {name: (int(size), int(crc)) for name, (size, crc) in content.pop("files").items()}
    return Commit(files=files, **content)


def write_commit(
    layout: Layout, previous: Commit | None, version: int, rows: int, what: str, card: IndexCard
) -> Commit:
    """Makes a version of the table count: its files are forced to the disk, then the commit file names them."""
    listed = layout.needed([version], layout.table_files())
    known = previous.files if previous else {}
    new = sorted(name for name in listed if name not in known)
    sync_files(layout.table / name for name in new)
    for folder in (layout.table / "data", layout.table, layout.folder):
        if folder.is_dir():
            sync_folder(folder)
    files = {name: known[name] for name in listed if name in known}
    for name in new:
        path = layout.table / name
        files[name] = (path.stat().st_size, file_crc32(path))
    commit = Commit(
        number=previous.number + 1 if previous else 0,
        version=version,
        rows=rows,
        what=what,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=files,
        card=card.to_json(),
    )
    content = {name: getattr(commit, name) for name in ("number", "version", "rows", "what", "at", "files", "card")}
    write_json(commit_path(layout, commit.number), content)
    return commit


def prune(layout: Layout, current: Commit, kept_commits: int = KEPT) -> list[str]:
    """Removes commits that are too old or newer than the current one, and every file that only they needed."""
    kept = [current.version]
    for number in commit_numbers(layout):
        if number == current.number:
            continue
        version = _usable_version(layout, number) if current.number - kept_commits < number < current.number else None
        if version is None:
            commit_path(layout, number).unlink()
        else:
            kept.append(version)
    for waiting in (*layout.commits.glob("*.tmp"), *layout.folder.glob("*.tmp")):
        waiting.unlink()
    return layout.clean(kept)


def _usable_version(layout: Layout, number: int) -> int | None:
    try:
        commit = read_commit(layout, number)
    except UNREADABLE as error:
        logger.warning("%s: commit %d is damaged and removed: %s", layout.folder, number, first_line(error))
        return None
    return commit.version if layout.manifest(commit.version).is_file() else None


def damaged_files(layout: Layout, commit: Commit, names: set[str] | None = None) -> dict[str, str]:
    """Files of a commit (or some of them) that are not what was written, with reasons; reads them whole."""
    wrong = _wrong_sizes(layout, commit)
    for name, (_, expected) in commit.files.items():
        if name in wrong or (names is not None and name not in names):
            continue
        if file_crc32(layout.table / name) != expected:
            wrong[name] = "checksum differs"
    return {name: why for name, why in wrong.items() if names is None or name in names}


def _wrong_sizes(layout: Layout, commit: Commit) -> dict[str, str]:
    wrong: dict[str, str] = {}
    for name, (size, _) in commit.files.items():
        try:
            found = (layout.table / name).stat().st_size
        except FileNotFoundError:
            wrong[name] = "missing"
            continue
        if found != size:
            wrong[name] = f"{found} bytes, expected {size}"
    return wrong


def _wrong_checksums(layout: Layout, commit: Commit, names: set[str]) -> dict[str, str]:
    return {
        name: "checksum differs"
        for name in sorted(filter(_finds_records, names))
        if zlib.crc32((layout.table / name).read_bytes()) != commit.files[name][1]
    }
