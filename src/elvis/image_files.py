"""Which files are pictures: the walk over files and folders. Nothing is decoded here."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FORMATS: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heif", ".hif"),
    "GIF": (".gif",),
    "TIFF": (".tif", ".tiff"),
    "BMP": (".bmp", ".dib"),
    "JPEG2000": (".jp2", ".j2k", ".jpx", ".jpf", ".j2c", ".jpc"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
}
"""Formats that are tried, whatever a file is called, and the suffixes they go by. None of them runs a program
(as EPS does) or fetches more files. HEIF needs the package `pillow-heif`; AVIF a Pillow built with it."""

HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_SUFFIXES = frozenset(suffix for suffixes in FORMATS.values() for suffix in suffixes)
_SIGNATURES = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"\0\0\0\x0cjP  \r\n\x87\n",
    b"\xff\x4f\xff\x51",
)


def shown(path: Path | str) -> str:
    r"""A path on one line: newlines and other unprintable characters are written as escapes.

    Example:
        >>> shown("Gänse\nblümchen.jpg")
        'Gänse\\nblümchen.jpg'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(path))


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not taken for a picture, or a folder that cannot be read, and why."""

    path: Path
    reason: str


def find_images(places: Iterable[Path | str]) -> Iterator[Path | Skipped]:
    """Every picture in files and folders, folders with all that is below them; everything else as `Skipped`.

    A file counts as a picture when its suffix is one of `FORMATS`, or when its first bytes are those of one,
    or when it was named itself: whether it can be decoded is for `open_image` to say. Symbolic links are
    followed; a folder or a named file that was reached before is reported, so loops end. Within a folder the
    order is that of the names, whatever the file system's.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "b.JPG").write_bytes(b""), Path(folder, "a.txt").write_bytes(b"text")
        ...     [each.reason if isinstance(each, Skipped) else each.name for each in find_images([folder])]
        ['not a picture (.txt)', 'b.JPG']
    """
    folders: dict[tuple[int, int], Path] = {}
    named: set[str] = set()
    for place in map(Path, places):
        for path in _walk(place, folders):
            if isinstance(path, Skipped):
                yield path
            elif os.path.abspath(path) in named or (path == place and _folder_of(path) in folders):
                yield Skipped(path, "reached before")
            elif reason := _unfit(path, by_content=path != place):
                yield Skipped(path, reason)
            else:
                if path == place:
                    named.add(os.path.abspath(path))
                yield path


def _folder_of(path: Path) -> tuple[int, int]:
    try:
        status = Path(os.path.abspath(path)).parent.stat()
    except OSError:
        return -1, -1  # not a folder that was reached; opening the file will say what is wrong
    return status.st_dev, status.st_ino


def _walk(place: Path, folders: dict[tuple[int, int], Path]) -> Iterator[Path | Skipped]:
    waiting = [place]
    while waiting:
        path = waiting.pop()
        try:
            status = path.stat()
            if not stat.S_ISDIR(status.st_mode):
                yield path
                continue
            here = (status.st_dev, status.st_ino)
            if here in folders:
                yield Skipped(path, f"the same folder as {shown(folders[here])}")
                continue
            folders[here] = path
            waiting.extend(path / name for name in sorted(os.listdir(path), reverse=True))
        except (OSError, ValueError) as error:
            dangling = isinstance(error, FileNotFoundError) and path.is_symlink()
            yield Skipped(path, "a link that leads nowhere" if dangling else why_not_opened(error))


def _unfit(path: Path, by_content: bool) -> str | None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return "its name is no valid UTF-8: rename it"
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return f"{kind_of_file(mode)}, not a file"
        if not by_content or path.suffix.lower() in _SUFFIXES:
            return None
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        return why_not_opened(error)
    return None if looks_like_picture(start) else f"not a picture ({path.suffix or 'no suffix'})"


def looks_like_picture(start: bytes) -> bool:
    r"""Whether the first 16 bytes of a file are those of a format in `FORMATS`.

    Example:
        >>> looks_like_picture(b"\xff\xd8\xff\xe0"), looks_like_picture(b"plain text")
        (True, False)
    """
    if start[4:8] == b"ftyp":
        return start[8:12] in (*HEIC_BRANDS, b"avif", b"avis")
    if start[:1] == b"P" and start[1:2] in b"123456":
        return start[2:3].isspace() and (start[3:4].isdigit() or start[3:4] == b"#")
    return (start[:4] == b"RIFF" and start[8:12] == b"WEBP") or start.startswith(_SIGNATURES)


def kind_of_file(mode: int) -> str:
    """What `stat` says a path is, in words, when it is no regular file.

    Example:
        >>> kind_of_file(Path().stat().st_mode)
        'a folder'
    """
    return "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"


def why_not_opened(error: Exception) -> str:
    """The reason the operating system gave, in a few words.

    Example:
        >>> why_not_opened(FileNotFoundError(2, "No such file or directory", "a.jpg"))
        'no such file'
    """
    match error:
        case FileNotFoundError():
            return "no such file"
        case PermissionError():
            return "no permission to read it"
        case OSError() if error.strerror:
            return error.strerror[0].lower() + error.strerror[1:]
        case _:
            return shown(str(error))
