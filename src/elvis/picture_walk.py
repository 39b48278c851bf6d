"""Which picture files are new or may have changed, without reading them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elvis.image_files import Skipped, find_images, why_not_opened
from elvis.store import Stamp


@dataclass(slots=True)
class Walk:
    """What stands in some places, compared with an index.

    Attributes:
        known: what the index holds, by absolute path.
        places: absolute paths that were walked.
        changed: absolute path, size in bytes and time stamp of every picture file that is new or has another
            size or time stamp than the index knows, in the order of the walk.
        unchanged: number of the others.
        skipped: files and folders that are not taken, with reasons.
    """

    known: Mapping[str, Stamp]
    places: list[str]
    changed: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    unchanged: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])

    def vanished(self) -> list[str]:
        """Pictures of the index below the walked places that are no longer on the disk, sorted.

        What lies below a place or folder that could not be read is not counted: it may only be out of reach.
        """
        unread = {os.path.abspath(each.path) for each in self.skipped}
        return sorted(
            path
            for path in self.known
            if _below(path, self.places) and not _below(path, unread) and not os.path.lexists(path)
        )


def walk(places: Sequence[Path | str], known: Mapping[str, Stamp]) -> Walk:
    """Looks at every file in some places; nothing is opened but files without a telling name.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.jpg").write_bytes(b"123")
        ...     [(Path(path).name, size) for path, size, _ in walk([folder], {}).changed]
        [('a.jpg', 3)]
    """
    found = Walk(known, [os.path.abspath(place) for place in places])
    seen: set[str] = set()
    for each in find_images(places):
        if isinstance(each, Skipped):
            found.skipped.append(each)
            continue
        path = os.path.abspath(each)
        if path in seen:
            continue
        seen.add(path)
        try:
            status = os.stat(path)
        except OSError as error:
            found.skipped.append(Skipped(each, why_not_opened(error)))
            continue
        before = known.get(path)
        if before is not None and (before.size, before.mtime_ns) == (status.st_size, status.st_mtime_ns):
            found.unchanged += 1
        else:
            found.changed.append((path, status.st_size, status.st_mtime_ns))
    return found


def _below(path: str, places: Sequence[str] | set[str]) -> bool:
    places = places if isinstance(places, set) else set(places)
    while path not in places:
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above
    return True
