"""The folder of an index: what stands where, what a version needs, what may be thrown away.

card.json        how the index was made
commits/         one small file a commit: which table version counts, and size and checksum of each of its files
pictures.lance/  the table
writer.lock      held while somebody writes
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from elvis.store.durable import sync_folder

TABLE = "pictures"
_NEWEST = 2**64 - 1
_HINT = "latest_version_hint.json"
_DELETIONS = re.compile(r"(\d+)-(\d+)-\d+\.\w+")  # fragment, version it was made from, a random number

logger = logging.getLogger(__name__)


class Layout:
    """Names and files of one index folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.card = folder / "card.json"
        self.commits = folder / "commits"
        self.table = folder / f"{TABLE}.lance"
        self.versions = self.table / "_versions"

    def manifest(self, version: int) -> Path:
        """Where the table engine keeps the manifest of a version: names count down, so the newest sorts first."""
        return self.versions / f"{_NEWEST - version:020d}.manifest"

    def manifest_versions(self) -> list[int]:
        """Versions that have a manifest, newest first, whole or not."""
        if not self.versions.is_dir():
            return []
        names = (path.stem for path in self.versions.glob("*.manifest"))
        return sorted((_NEWEST - int(name) for name in names if name.isdigit()), reverse=True)

    def table_files(self) -> list[str]:
        """Every file of the table, relative to it and with forward slashes."""
        found: list[str] = []
        for folder, _, names in os.walk(self.table):
            inside = Path(folder).relative_to(self.table).as_posix()
            found.extend(name if inside == "." else f"{inside}/{name}" for name in names)
        return sorted(found)

    def needed(self, versions: Iterable[int], files: Iterable[str]) -> set[str]:
        """Those of the files that one of the versions refers to.

        A manifest names its data and transaction files in plain text and its vector indexes by their sixteen bytes.
        Deletion files are named by fragment and by the version they were made from; of a fragment the latest
        before the version counts. Naming too many is harmless: they are looked at again at the next commit.
        """
        files = list(files)
        needed: set[str] = set()
        for version in versions:
            path = self.manifest(version)
            content = path.read_bytes()
            needed.add(path.relative_to(self.table).as_posix())
            deletions: dict[str, tuple[int, str]] = {}
            for file in files:
                top, _, rest = file.partition("/")
                if (
                    (top == "data" and _stem(rest) in content)
                    or (top == "_transactions" and rest.encode() in content)
                    or (top == "_indices" and _names_index(rest, content))
                ):
                    needed.add(file)
                elif top == "_deletions" and (name := _DELETIONS.fullmatch(rest)) and int(name[2]) < version:
                    best = deletions.get(name[1], (-1, ""))
                    deletions[name[1]] = max(best, (int(name[2]), file))
            needed.update(file for _, file in deletions.values())
        return needed

    def clean(self, versions: Iterable[int]) -> list[str]:
        """Removes every file of the table that none of the versions needs; gives what was removed."""
        files = self.table_files()
        keep = self.needed(versions, files)
        removed = [file for file in files if file not in keep]
        for file in sorted(removed, key=lambda name: not name.startswith("_versions/")):
            # Manifests first: a version must never outlive a file it refers to.
            (self.table / file).unlink()
        for folder in {(self.table / file).parent for file in removed if file.count("/") > 1}:
            if not any(folder.iterdir()):
                folder.rmdir()
        if any(file.startswith("_versions/") and not file.endswith(_HINT) for file in removed):
            sync_folder(self.versions)
        return removed

    def wipe(self) -> None:
        """Removes what an interrupted creation left behind, and nothing that is not ours."""
        for folder in (self.commits, self.table):
            if folder.exists():
                shutil.rmtree(folder)
        self.card.unlink(missing_ok=True)


def _stem(name: str) -> bytes:
    # data/NAME.lance and the blobs beside it, data/NAME/….blob
    return name.partition("/")[0].removesuffix(".lance").encode()


def _names_index(name: str, content: bytes) -> bool:
    identity = name.partition("/")[0]
    plain = bytes.fromhex(identity.replace("-", "")) if len(identity) == 36 else b""
    return identity.encode() in content or bool(plain and plain in content)
