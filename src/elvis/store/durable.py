"""What the operating system has to promise: written means on the disk, one writer at a time, clear errors."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import zlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from elvis.errors import DiskFull, IndexBusy, StoreError

LOCK_NAME = "writer.lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXT = ("no space left", "disk quota exceeded", "file too large", "os error 28", "os error 27", "os error 122")


def sync_files(files: Iterable[Path]) -> None:
    """Forces files and the folders they stand in to the disk."""
    folders: set[Path] = set()
    for file in files:
        _sync(file)
        folders.add(file.parent)
    for folder in sorted(folders):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to the disk; Windows has no such call and does it by itself."""
    if os.name != "nt":
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON file with its own checksum so that after a crash the old or the new one is there, whole.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_json(Path(folder, "a.json"), {"rows": 3})
        ...     read_json(Path(folder, "a.json"))
        {'rows': 3}
    """
    text = json.dumps({**content, "crc32": _json_checksum(content)}, indent=1, sort_keys=True)
    waiting = path.with_name(path.name + ".tmp")
    with waiting.open("w", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    waiting.replace(path)
    sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """The content of a file that `write_json` wrote.

    Raises:
        ValueError: it is cut short or damaged.
        OSError: it cannot be read.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.pop("crc32", None) != _json_checksum(content):
        raise ValueError("checksum differs")
    return content


def _json_checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def file_crc32(path: Path) -> int:
    """CRC-32 of a file, read in pieces."""
    checksum = 0
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


class WriterLock:
    """The right to write to an index, held by one process at a time and given back by the system when it dies."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock or says who has it.

        Raises:
            IndexBusy: another process, or another `Index` of this one, is writing.
        """
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor)
        except OSError as error:
            owner = os.read(descriptor, 1000).decode(errors="replace").strip()
            os.close(descriptor)
            raise IndexBusy(
                f"{self.path.parent} is being written to{f' by {owner}' if owner else ''}: wait for it to end"
            ) from error
        self._descriptor = descriptor
        self._note(f"process {os.getpid()} on {socket.gethostname()}")

    def release(self) -> None:
        """Gives the lock back; without effect when it is not held."""
        if self._descriptor is not None:
            self._note("")
            os.close(self._descriptor)
            self._descriptor = None

    def _note(self, text: str) -> None:
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):  # the lock counts, not the note; a full disk refuses even that
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.write(self._descriptor, text.encode())


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # Far behind the note in the file: Windows would not let the second process read a locked part.
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def translated(place: str, doing: str) -> Generator[None]:
    """Turns what the table engine and the system raise into one line of ours.

    Example:
        >>> with translated("pets", "adding"):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        ...
        elvis.errors.DiskFull: pets: the disk or a quota is full while adding: what was committed is safe; free some \
space and run the same command again
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if is_full(error):
            raise DiskFull(
                f"{place}: the disk or a quota is full while {doing}: what was committed is safe; "
                "free some space and run the same command again"
            ) from error
        raise StoreError(f"{place}: {doing} failed: {first_line(error)}") from error
    except BaseException as error:
        if not engine_panic(error):
            raise
        raise StoreError(f"{place}: {doing} failed, a file seems damaged: run elvis verify") from error


def is_full(error: BaseException) -> bool:
    """Whether an error says that no more can be written."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(sign in str(error).lower() for sign in _FULL_TEXT)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without the engine's own source places."""
    text = str(error).strip().partition("\n")[0].partition(", /rustc/")[0].partition(", /root/")[0]
    return text or type(error).__name__


def engine_panic(error: BaseException) -> bool:
    """Whether the table engine gave up on damaged data; what it raises then is its own, and not always an Exception."""
    return type(error).__name__ in ("PanicException", "RustPanic")
